"""Calls that the doors of ``torch_dtypes.compat`` and the original libraries both take: name and
results of each, for a module and a seed.

Numbers have eight digits, so that the sums by which QPyTorch rounds are exact. Layers multiply few
multiples of a power of two, so that their sums are exact on every machine.
"""

import base64
import itertools
import math
import random
import warnings
import zlib

import torch
from torch import nn

FLOATS = ((1, 2), (2, 1), (3, 4), (4, 3), (5, 2), (5, 10), (6, 9), (7, 12), (8, 7), (8, 22))
FIXED = ((8, 4), (8, 4, True, True), (8, 4, False), (8, 7), (6, 9), (16, 8), (24, 12), (8, -2))
BLOCKS = tuple(itertools.product((3, 4, 8, 16, 22), (-1, 0, 1, 2)))
NEAREST = {"rounding": "nearest"}


def numbers(seed, low, high, *shape):
    """Return numbers of eight digits whose last place is from 2^low to 2^high."""
    draw, count = random.Random(seed), math.prod(shape)
    drawn = [draw.randint(-255, 255) * 2.0 ** draw.randint(low, high) for _ in range(count)]
    return torch.tensor(drawn, dtype=torch.float64).float().reshape(shape)


def qtorch_cases(q, seed=0):
    """Yield the name and the tensors of each call of QPyTorch. ``q`` is its module, or the door."""
    for exp, man in FLOATS:
        lowest, highest = 2 - 2 ** (exp - 1), 2 ** (exp - 1)
        low = max(lowest - man - 3, lowest - 23, -149)
        x = numbers(seed, low, max(low, min(highest - 6, 119)), 64)
        yield f"float {exp} {man}", [q.quant.float_quantize(x, exp, man, **NEAREST)]
    for options in FIXED:
        wl, fl, *_ = options
        x = numbers(seed, -fl - 8, wl - fl - 8, 64)
        yield f"fixed {options}", [q.quant.fixed_point_quantize(x, *options, **NEAREST)]
    for wl, dim in BLOCKS:
        x = numbers(seed, -8, 0, 3, 4, 5)
        yield f"block {wl} {dim}", [q.quant.block_quantize(x, wl, dim, **NEAREST)]
    yield from _quantizers(q, seed)
    yield from _optimizers(q, seed)
    yield from _lowered(q, seed)


def _quantizers(q, seed):
    formats = {
        "fixed": q.FixedPoint(8, 4),
        "symmetric": q.FixedPoint(8, 4, symmetric=True),
        "float": q.FloatingPoint(5, 2),
        "block": q.BlockFloatingPoint(8, 0),
        "none": None,
    }
    for (forward, f), (backward, b) in itertools.product(formats.items(), repeat=2):
        zeros = (False, True) if isinstance(f, q.FixedPoint) and b is not None else (False,)
        for zero in zeros:
            round_both = q.quant.quantizer(
                f, b, "nearest", "nearest", zero, [torch.neg, torch.exp2] if zero else []
            )
            x = numbers(seed, -8, -2, 4, 8).requires_grad_()
            x.data[0, :4] = torch.tensor([8.0, -8.0, -8.25, 7.984375])
            y = round_both(x)
            y.backward(numbers(seed + 1, -7, -6, 4, 8))
            yield f"quantizer {forward} {backward} {zero}", [y.detach(), x.grad]


def _optimizers(q, seed):
    def eight(x):
        return q.quant.float_quantize(x, 5, 2, **NEAREST)

    def sixteen(x):
        return q.quant.fixed_point_quantize(x, 16, 12, **NEAREST)

    options = {
        "all": dict(weight_quant=eight, grad_quant=eight, momentum_quant=eight, acc_quant=sixteen),
        "scaled": dict(weight_quant=eight, grad_quant=eight, grad_scaling=0.25),
        "momentum": dict(weight_quant=sixteen, momentum_quant=eight),
        "accumulator": dict(acc_quant=eight),
    }
    kinds = {
        "sgd": lambda p: torch.optim.SGD(p, 0.125, momentum=0.5),
        "adam": lambda p: torch.optim.Adam(p, 0.125),
    }
    for (name, chosen), (kind, make) in itertools.product(options.items(), kinds.items()):
        p, idle = numbers(seed, -7, -6, 3, 5).requires_grad_(), torch.ones(3, requires_grad=True)
        optimizer = q.optim.OptimLP(make([p, idle]), **chosen)
        for step in range(4):
            p.grad = numbers(seed + step, -8, -5, 3, 5)
            optimizer.step()
        states = [v for v in optimizer.optim.state[p].values() if v.shape == p.shape]
        yield f"optimizer {name} {kind}", [p.detach().clone(), idle.detach(), *states]


class _Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 3, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        self.heads = nn.ModuleDict({"one": nn.Linear(12, 4)})

    def forward(self, x):
        return self.heads["one"](self.features(x).flatten(1))


def _lowered(q, seed):
    numbers_of = dict(forward_number=q.FloatingPoint(5, 2), backward_number=q.FixedPoint(8, 4))
    modes = dict(forward_rounding="nearest", backward_rounding="nearest")
    for types in (["conv", "linear"], ["activation", "pool"], []):
        for lower in (q.auto_low.lower, q.auto_low.sequential_lower):
            draw, model = random.Random(seed), _Network()
            for p in model.parameters():
                values = [draw.randint(-4, 4) / 8 for _ in range(p.numel())]
                p.data.copy_(torch.tensor(values).reshape(p.shape))
            lowered = lower(model, types, **numbers_of, **modes) or model
            y = lowered(numbers(seed, -6, -6, 2, 1, 4, 4))
            y.backward(numbers(seed, -7, -7, 2, 4))
            gradients = [p.grad for p in lowered.parameters()]
            yield f"{lower.__name__} {types}", [y.detach(), *gradients]


# The formats of the operands of each product, and further options.
MX_SPECS = {
    "one format": dict(w_elem_format="fp8_e4m3", a_elem_format="fp8_e4m3"),
    "six formats": dict(
        w_elem_format="fp6_e3m2",
        a_elem_format="fp8_e4m3",
        w_elem_format_bp="fp4",
        a_elem_format_bp="int4",
        a_elem_format_bp_ex="fp8_e5m2",
        a_elem_format_bp_os="int8",
    ),
    "bfloat": dict(w_elem_format="fp6_e2m3", a_elem_format="int8", bfloat=16),
    "even": dict(w_elem_format="int4", a_elem_format="fp4", bfloat=12, round="even"),
    "only forward": dict(
        w_elem_format="fp4", a_elem_format="fp4", bfloat=12, quantize_backprop=False
    ),
    "mixed modes": dict(
        w_elem_format="fp4",
        a_elem_format="fp6_e3m2",
        fp=12,
        round_mx_output="even",
        round_grad_input="floor",
        round_weight="even",
    ),
    "only floats": dict(bfloat=14, bfloat_subnorms=False),
}
ELEMENTS = (
    *("int8", "int4", "int2", "fp8_e5m2", "fp8_e4m3", "fp6_e3m2", "fp6_e2m3"),
    *("fp4_e2m1", "float16", "bfloat16"),
)


def mx_cases(mx, seed=0):
    """Yield the name and the tensors of each call of microxcaling. ``mx`` is its module, or the
    door."""
    quantize = mx.mx_ops.quantize_mx_op
    plain = mx.specs.finalize_mx_specs({"bfloat": 16, "block_size": 8})
    for element, mode in itertools.product(ELEMENTS, ("nearest", "even", "floor")):
        x = numbers(seed, -12, 0, 2, 12)
        yield f"blocks {element} {mode}", [quantize(x, plain, element, axes=[-1], round=mode)]
    for options in (
        dict(axes=[0]),
        dict(axes=[0, 2]),
        dict(axes=[1], block_size=0),
        dict(axes=[1], block_size=5),
    ):
        x = numbers(seed, -8, 0, 4, 5, 9)
        yield f"blocks {options}", [quantize(x, plain, "fp6_e3m2", **options)]
    for name, value in (
        *(("scale_bits", 5), ("shared_exp_method", "none"), ("mx_flush_fp32_subnorms", True)),
    ):
        specs = mx.specs.finalize_mx_specs({"bfloat": 16, "block_size": 4, name: value})
        x = numbers(seed, *((-12, 4) if name == "scale_bits" else (-140, -128)), 8, 8)
        yield f"blocks {name}", [quantize(x, specs, "int8", axes=[-1])]
    for options in (
        *({"bfloat": bits, "round": mode} for bits in (10, 16) for mode in ("nearest", "even")),
        *({"fp": 10, "round": "nearest"}, {"bfloat": 11, "bfloat_subnorms": False}),
    ):
        specs = mx.specs.finalize_mx_specs(dict(options))
        low, high = (-24, 7) if "fp" in options else (-149, 118)
        x = numbers(seed, low, high, 64)
        yield f"floats {options}", [mx.elemwise_ops.quantize_elemwise_op(x, specs)]
    for element, mode in itertools.product(ELEMENTS, ("nearest", "even")):
        x = numbers(seed, -20, 0, 64)
        yield (
            f"element {element} {mode}",
            [
                mx.elemwise_ops._quantize_elemwise(x, element, mode, saturate_normals=saturate)
                for saturate in (False, True)
            ],
        )
    x = numbers(seed, -24, 7, 64)
    yield (
        "floats by bits",
        [
            mx.elemwise_ops._quantize_bfloat(x, 12, "even"),
            mx.elemwise_ops._quantize_fp(x, 5, 3, "nearest", allow_denorm=False),
            mx.elemwise_ops._quantize_elemwise_core(x, 6, 4, 300.0, "even"),
            mx.mx_ops._quantize_mx(x, 8, "fp4", "max", [-1], 16, "floor"),
        ],
    )
    for name, options in MX_SPECS.items():
        yield from _products(
            mx, name, mx.specs.finalize_mx_specs(dict(options, block_size=8)), seed
        )
    for name, options in MX_VECTORS.items():
        yield from _vectors(mx, name, mx.specs.finalize_mx_specs(dict(options)), seed)


def _products(mx, name, specs, seed):
    def run(call, *shapes):
        operands = [
            numbers(seed + i, -9, -6, *shape).requires_grad_() for i, shape in enumerate(shapes)
        ]
        y = call(*operands)
        y.backward(numbers(seed + 9, -9, -6, *y.shape))
        return [y.detach(), *(x.grad for x in operands)]

    def linear(x, w, b):
        return mx.linear(x, w, b, mx_specs=specs)

    def convolve(x, w, b):
        return mx.conv2d(x, w, b, padding=1, mx_specs=specs)

    def transpose(x, w):
        layer = mx.ConvTranspose2d(9, 2, 2, stride=2, bias=False, mx_specs=specs)
        del layer.weight
        layer.weight = w
        return layer(x)

    def multiply(a, b):
        return mx.matmul(a, b, mx_specs=specs, mode_config="aw")

    yield f"linear {name}", run(linear, (4, 10), (3, 10), (3,))
    yield f"linear of sequences {name}", run(linear, (2, 4, 9), (3, 9), (3,))
    if name in ("one format", "bfloat", "only floats"):  # convolutions of the original lack keys
        yield f"convolution {name}", run(convolve, (2, 9, 3, 3), (3, 9, 3, 3), (3,))
        yield f"transposed {name}", run(transpose, (2, 9, 2, 2), (9, 2, 2, 2))
    yield f"matmul {name}", run(multiply, (2, 4, 10), (2, 10, 3))
    yield f"bmm {name}", run(lambda a, b: mx.bmm(a, b, mx_specs=specs), (2, 4, 10), (2, 10, 3))
    yield f"relu {name}", run(lambda x: mx.relu(x, mx_specs=specs), (4, 8))
    yield f"add {name}", run(lambda x, y: mx.simd_add(x, y, mx_specs=specs), (4, 8), (8,))


# Options of operators without products.
MX_VECTORS = {
    "bfloat": dict(bfloat=16),
    "even": dict(bfloat=12, round="even"),
    "powers of two": dict(fp=12, softmax_exp2=True, vec_use_exp2=True),
    "only forward": dict(bfloat=12, quantize_backprop=False),
}


def _vectors(mx, name, specs, seed):
    def run(call, *shapes):
        operands = [numbers(seed + i, -9, -6, *s).requires_grad_() for i, s in enumerate(shapes)]
        y = call(*operands)
        y.backward(numbers(seed + 9, -9, -6, *y.shape))
        return [y.detach(), *(x.grad for x in operands)]

    def normalise(layer, shape):
        layer.weight.data, layer.bias.data = (numbers(seed + i, -7, -6, *shape) for i in (3, 4))

        def call(x, *_):
            return layer(x)

        return call, layer

    for function in ("sigmoid", "tanh", "relu", "relu6", "silu", "gelu", "leaky_relu"):
        yield (
            f"{function} {name}",
            run(lambda x, f=function: getattr(mx, f)(x, mx_specs=specs), (4, 8)),
        )
    first = run(lambda x: mx.gelu(x, specs, True), (4, 8))
    yield f"first order gelu {name}", first
    for function in ("mul", "div", "add"):
        call = getattr(mx, f"simd_{function}")
        yield f"{function} {name}", run(lambda x, y, f=call: f(x, y, specs), (4, 8), (4, 8))
        yield f"{function} 3 {name}", run(lambda x, f=call: f(x, 3.0, specs), (4, 8))
    for function in ("square", "exp"):
        call = getattr(mx, f"simd_{function}")
        yield f"{function} {name}", run(lambda x, f=call: f(x, specs), (4, 8))
    for function in ("sqrt", "log"):
        call = getattr(mx, f"simd_{function}")
        yield f"{function} {name}", run(lambda x, f=call: f(x.abs() + 0.125, specs), (4, 8))
    pool = run(lambda x: mx.adaptive_avg_pool2d(x, (2, None), specs), (2, 3, 5, 4))
    yield f"pool {name}", pool
    if name == "only forward":  # sums that are not rounded depend on the machine
        return
    yield f"subtract {name}", run(lambda x, y: mx.simd_sub(x, y, specs), (4, 8), (8,))[::2]
    yield f"sum {name}", run(lambda x: mx.simd_reduce_sum(x, [0, -1], True, specs), (3, 4, 2))
    yield f"mean {name}", run(lambda x: mx.simd_reduce_mean(x, 1, mx_specs=specs), (3, 4, 2))
    yield f"norm {name}", run(lambda x: mx.simd_norm(x, mx_specs=specs), (3, 4))
    for dim in (-1, 0):
        yield f"softmax {dim} {name}", run(lambda x, d=dim: mx.softmax(x, d, specs), (4, 8))
    layers = {
        "layer": (mx.LayerNorm(6, mx_specs=specs), (6,), (3, 4, 6)),
        "group": (mx.GroupNorm(2, 6, specs), (6,), (3, 6, 4)),
        "batch": (mx.BatchNorm2d(6, specs), (6,), (3, 6, 2, 2)),
        "root mean square": (mx.RMSNorm(6, mx_specs=specs), (6,), (3, 4, 6)),
    }
    for kind, (layer, shape, of) in layers.items():
        call, layer = normalise(layer, shape)
        results = run(call, of)
        if kind == "root mean square":  # the original does not round the input's gradient
            results[1] = mx.elemwise_ops.quantize_elemwise_op(results[1], specs)
        yield f"{kind} norm {name}", [*results, layer.weight.grad, layer.bias.grad]
        if kind == "batch":
            yield f"evaluated {kind} norm {name}", [layer.running_mean]
    yield f"recurrent {name}", _recurrent(mx, specs, seed)


def _recurrent(mx, specs, seed):
    layer = mx.LSTM(2, 3, num_layers=2, bidirectional=True, mx_specs=specs)
    for i, (_, p) in enumerate(sorted(layer.named_parameters())):
        p.data = numbers(seed + i, -9, -8, *p.shape)
    x = numbers(seed, -9, -6, 3, 2, 2)
    lengths = torch.tensor([3, 1])
    y, (h, c) = layer(x)
    packed, _ = layer(nn.utils.rnn.pack_padded_sequence(x, lengths))
    (y.sum() + packed.data.sum()).backward()
    gradients = [p.grad for _, p in sorted(layer.named_parameters())]
    return [t.detach() for t in (y, h, c, packed.data)] + gradients


def same(a, b):
    """Tell where two tensors have the same bits, except for the sign of zero and the bits of
    NaN."""
    return (a == b) | (a.isnan() & b.isnan())


def differing(ours, theirs):
    """Return the names of cases whose results differ."""
    return [
        name
        for name, results in theirs.items()
        if not all(same(a, b).all() for a, b in zip(ours[name], results, strict=True))
    ]


def collect(cases, module, seed=0):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {name: list(results) for name, results in cases(module, seed)}


def pack(results):
    """Return the tensors of a case as a text: the bits of float32, compressed."""
    values = torch.cat([t.float().flatten() for t in results]).numpy().tobytes()
    return base64.b64encode(zlib.compress(values, 9)).decode()


def unpack(text, like):
    """Return the tensors of a text, in the shapes of ``like``."""
    values = torch.frombuffer(
        bytearray(zlib.decompress(base64.b64decode(text))), dtype=torch.float32
    )
    parts = values.split([t.numel() for t in like])
    return [part.reshape(t.shape) for part, t in zip(parts, like, strict=True)]

"""Models that quantize_ has converted, in whole graphs: torch.compile and torch.export with eager's
bits, forward and backward."""

import copy
import io
import itertools

import pytest
import torch
from capture import clean  # noqa: F401 (a fixture)
from representatives import thin_out
from torch import nn

import torch_dtypes
from torch_dtypes.quantization import product_operator, products
from torch_dtypes.quantization.products import Geometry, gradients, product

pytestmark = [
    # PyTorch's own.
    pytest.mark.filterwarnings(
        "ignore:.*is deprecated", "ignore:.*should not be instantiated:DeprecationWarning"
    ),
    pytest.mark.usefixtures("clean"),
]
SCALED = {"format": "q52", "scale": "power_of_two"}
RULES = {
    "0": dict(weight="q43", activation="q43", error="q52", grad="q52", accumulate="format"),
    "3": dict(weight="mxfp8_e4m3", activation="mxfp8_e4m3", error="mxfp8_e5m2", grad="mxfp8_e5m2"),
    "5": dict(
        weight="posit8es1",
        activation={"format": "posit8es1", "rounding": "stochastic"},
        error=SCALED,
        grad=SCALED,
    ),
    "7": dict(
        weight={"format": "int8", "per": "channel"},
        activation={"format": "int8", "when": "call"},
        output="e5m7",
    ),
    "9": dict(
        weight="q43",
        activation="q43",
        accumulate="chunked(4, accumulator=e5m7, rounding=stochastic)",
    ),
    "11": dict(weight="nvfp4", activation="nvfp4", accumulate="block(terms=4)"),
}


def network(rules=RULES):
    torch.manual_seed(0)
    layers = [
        nn.Conv2d(2, 4, 3, padding=1, padding_mode="circular"),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64, 32),
    ]
    for size in (32, 32, 32, 32):
        layers += [nn.Tanh(), nn.Linear(32, size)]
    return torch_dtypes.quantize_(nn.Sequential(*layers), rules)


def batch(seed=0):
    return torch.randn(6, 2, 4, 4, generator=torch.Generator().manual_seed(seed))


def step(model, run, x, seed):
    torch.manual_seed(seed)
    model.zero_grad()
    y = run(x)
    y.square().sum().backward()
    return [y.detach(), *(p.grad for p in model.parameters())]


def test_every_kind_of_rule_in_one_graph():
    eager = network()
    model = copy.deepcopy(eager)
    run = torch.compile(model, backend="aot_eager", fullgraph=True)
    found = [step(model, run, batch(), seed) for seed in (1, 2, 1)]
    for seed, got in zip((1, 2, 1), found, strict=True):
        for a, b in zip(got, step(eager, eager, batch(), seed), strict=True):
            assert torch.equal(a, b)
    assert not torch.equal(found[0][0], found[1][0])  # random modes draw anew at each run


# PyTorch 2.11's own.
@pytest.mark.filterwarnings("ignore:The given buffer is not writable:UserWarning")
def test_exported():
    model = network().eval()
    program = torch.export.export(model, (batch(),))
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    assert "torch_dtypes.product" in str(program.graph)
    for exported in (program, torch.export.load(file)):
        for seed in (1, 2):
            torch.manual_seed(3)
            expected = model(batch(seed))
            torch.manual_seed(3)
            assert torch.equal(exported.module()(batch(seed)), expected)


RECORDED = {
    **{name: rule for name, rule in RULES.items() if name in "057"},
    "3": dict(
        weight=dict(format="int8", per="channel"),
        activation=dict(format="int8", when="call"),
        arithmetic="integer",
        error="mxfp8_e5m2",
    ),
    "9": dict(
        weight=dict(format="q43", scale="free", clamped="zero"),
        activation=dict(format="q43", clamped="zero"),
        grad=dict(SCALED, per="channel"),
    ),
    "11": dict(output="q43", error="q52", bias="q43"),
}


# A trace is of tensors that are not empty.
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("way", thin_out(["trace", "export", "strict"]))
def test_what_is_recorded_has_the_gradients_of_eager_code(way, tmp_path):
    model = network(RECORDED)
    model.append(torch_dtypes.nn.Cast(forward="q43", backward=dict(SCALED, when="call")))
    if way == "trace":
        layer = torch_dtypes.quantize_(
            nn.Linear(32, 3), {nn.Linear: dict(weight="int8", error="q52")}
        )
        # Of a layer that does not round at random PyTorch's check holds, too.
        torch.jit.trace(layer, torch.ones(2, 32))
        runs = [torch.jit.trace(model, batch(), check_trace=False)]
        torch.jit.save(runs[0], tmp_path / "model.pt")
        runs.append(torch.jit.load(tmp_path / "model.pt"))
    else:
        program = torch.export.export(model, (batch(),), strict=way == "strict")
        torch.export.save(program, tmp_path / "model.pt2")
        runs = [program.module(), torch.export.load(tmp_path / "model.pt2").module()]
    for seed in (1, 2):
        y, *_ = step(model, model, batch(seed), seed)
        expected = {name: p.grad.clone() for name, p in model.named_parameters()}
        for run in runs:
            # An optimised execution's derivative of tanh differs in the last place.
            with torch.jit.optimized_execution(False):
                got, *_ = step(run, run, batch(seed), seed)
            assert torch.equal(got, y) and len(list(run.parameters())) == len(expected)
            # By name, since a strict export has another order of parameters.
            for name, p in run.named_parameters():
                assert torch.equal(p.grad, expected[name]), name


def test_gradients_by_scales_of_steps_before_are_refused_in_what_is_recorded():
    model = network({"3": dict(error={"format": "int8", "when": "delayed"})})
    module = torch.export.export(model, (batch(),)).module()
    assert torch.equal(module(batch()), model(batch()))
    with pytest.raises(RuntimeError, match="got a trace or an export, which remembers no calls"):
        module(batch()).sum().backward()


def test_scripts_of_layers_with_rules_are_refused():
    with pytest.raises(
        TypeError, match="expected a module without rules to script, but got a quantised Linear"
    ):
        torch.jit.script(network({"3": dict(weight="q43")}))


def test_scales_of_steps_before_break_the_graph_and_keep_eagers_bits():
    rule = dict(weight="q43", activation={"format": "int8", "when": "delayed"})
    eager = network({"3": rule})
    model = copy.deepcopy(eager)
    run = torch.compile(model, backend="aot_eager")
    for seed in range(3):
        for a, b in zip(
            step(model, run, batch(seed), 0), step(eager, eager, batch(seed), 0), strict=True
        ):
            assert torch.equal(a, b)


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("way", ["compile", "trace", "export"])
@pytest.mark.parametrize("has_gradients", [True, False], ids=["gradients", "values"])
@pytest.mark.parametrize("accumulator", thin_out(["int12", "int12_saturate"]))
def test_integer_layers_in_graphs(accumulator, has_gradients, way, tmp_path):
    activation = dict(format="uint8_affine", when="call")
    rule = dict(
        weight=dict(format="int8", per="channel"),
        activation=activation,
        arithmetic="integer",
        accumulator=accumulator,
    )
    torch.manual_seed(0)
    layers = [
        nn.Conv1d(2, 3, 3, stride=2, padding=1),
        nn.Tanh(),
        nn.ConvTranspose1d(3, 2, 2),
        nn.Flatten(),
        nn.Linear(8, 5),
    ]
    model = torch_dtypes.quantize_(
        nn.Sequential(*layers), {kind: rule for kind in (nn.Conv1d, nn.ConvTranspose1d, nn.Linear)}
    )
    with torch.set_grad_enabled(has_gradients):
        if way == "compile":
            runs = [torch.compile(model, backend="aot_eager", fullgraph=True)]
        elif way == "trace":
            runs = [torch.jit.trace(model, torch.randn(4, 2, 6))]
            torch.jit.save(runs[0], tmp_path / "model.pt")
            runs.append(torch.jit.load(tmp_path / "model.pt"))
        else:
            runs = [torch.export.export(model, (torch.randn(4, 2, 6),)).module()]
        for run in runs:
            x = torch.randn(4, 2, 6)
            y, want = run(x), model(x)
            assert torch.equal(y, want)
            # An optimised execution's derivative of tanh differs in the last place.
            if has_gradients and way != "trace":
                found, expected = (
                    torch.autograd.grad(t.square().sum(), list(m.parameters()))
                    for t, m in ((y, model if way == "compile" else run), (want, model))
                )
                assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


LAYERS = {
    "attention": (lambda: nn.MultiheadAttention(4, 2), lambda m, x: m(x, x, x)[0]),
    "lstm": (lambda: nn.LSTM(4, 4), lambda m, x: m(x)[0]),
    "gru": (lambda: nn.GRU(4, 4), lambda m, x: m(x)[0]),
    "cell": (lambda: nn.RNNCell(4, 4), lambda m, x: m(x[0])),
}


class Calls(nn.Module):
    def __init__(self, name):
        super().__init__()
        made, self.call = LAYERS[name]
        self.inner = made()

    def forward(self, x):
        return self.call(self.inner, x)


RULES_OF_PRODUCTS = {
    "policy": dict(
        weight="q43", activation="q43", accumulate="format(product=e5m3, accumulator=e5m3)"
    ),
    "operands": dict(weight="mxfp4", activation="mxfp4", error="mxfp4"),
    "float64": dict(weight="q43", activation="q43", accumulate="float64"),
}
CASES = [
    (*case, way)
    for way in ("trace", "export", "compile")
    for case in itertools.product(LAYERS, RULES_OF_PRODUCTS)
]


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.filterwarnings("ignore:.*batch_size:UserWarning")  # PyTorch's own, of an LSTM's trace
# PyTorch's own, where a graph breaks.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize("name, rule, way", thin_out(CASES, 5))
def test_graphs_of_layers_of_several_products_have_eagers_bits(name, rule, way):
    model, x = Calls(name), torch.randn(3, 2, 4)
    torch_dtypes.quantize_(model, {"inner": RULES_OF_PRODUCTS[rule]})
    if way == "trace":
        run = torch.jit.trace(model, x, check_trace=False)
    elif way == "export":
        run = torch.export.export(model, (x,)).module()
    else:
        run = torch.compile(model, backend="aot_eager")
    x = torch.randn(3, 2, 4)
    found = []
    for one in (model, run):
        with torch.jit.optimized_execution(False):
            y = one(x)
            found.append([y, *torch.autograd.grad(y.square().sum(), list(one.parameters()))])
    for a, b in zip(*found, strict=True):
        assert torch.equal(a, b)


def test_a_scale_that_inputs_share_is_in_a_whole_graph():
    activation = dict(format="int8", when="call")
    model = torch_dtypes.quantize_(
        nn.Bilinear(3, 4, 2), {nn.Bilinear: dict(activation=activation, output=activation)}
    )
    run = torch.compile(model, backend="aot_eager", fullgraph=True)
    for size in (1, 10):
        x, y = torch.randn(5, 3), size * torch.randn(5, 4)
        assert torch.equal(run(x, y), model(x, y))


# ---- the operator ----

PLANS = (
    "e8m23; format(accumulator=e5m7)",
    "e8m23; exact",
    "float64; machine",
    "e8m23; chunked(3, product=q43, accumulator=e5m7, kahan=True)",
    "e8m23; block(terms=4, extra_bits=2)",
    "e8m23; format(product=q43, accumulator=e5m7, order=pairwise)",
)


def plan(text):
    carrier, policy = text.split("; ")
    return "; ".join([carrier, policy, policy, policy])


@pytest.mark.parametrize("text", PLANS)
def test_plans_are_read_as_they_were_written(text):
    made, _ = product_operator._read(plan(text))
    assert product_operator._read(made.text) == (made, None)
    assert made.text == products.write_plan(made, None)


# 2.15's opcheck warns for any operator, PyTorch's own too.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize("text", [PLANS[0], PLANS[4]])
@pytest.mark.parametrize("kind", ["linear", "batched", "convolution", "transposed"])
def test_opcheck(text, kind):
    x, weight, bias, geometry = {
        "linear": (torch.randn(3, 2, 5), torch.randn(4, 5), torch.randn(4), None),
        "batched": (torch.randn(2, 3, 5), torch.randn(2, 4, 5), torch.randn(2, 3, 4), None),
        "convolution": (
            torch.randn(2, 4, 6),
            torch.randn(6, 2, 3),
            None,
            Geometry((1,), (1,), (1,), False, (0,), 2),
        ),
        "transposed": (
            torch.randn(2, 4, 6),
            torch.randn(4, 3, 3),
            torch.randn(3),
            Geometry((2,), (0,), (1,), True, (1,), 1),
        ),
    }[kind]
    operands = [t if t is None else t.requires_grad_() for t in (x, weight, bias)]
    arguments = (*operands, None, None, plan(text), *products.operator_arguments(geometry))
    torch.library.opcheck(torch.ops.torch_dtypes.product.default, arguments)
    y = torch.ops.torch_dtypes.product(*arguments)
    g = torch.randn_like(y)
    given = [t for t in operands if t is not None]
    made, _ = product_operator._read(plan(text))
    wide = [None if t is None else t.detach().to(made.carrier) for t in operands]
    with torch_dtypes.accumulate(made.policies[0]):
        assert torch.equal(y, product(*wide, geometry).float())
    expected = gradients(
        g.to(made.carrier),
        *wide[:2],
        bias is not None,
        geometry,
        (True, True, True),
        made.overrides()[1:],
    )
    for a, b in zip(
        torch.autograd.grad(y, given, g), (t for t in expected if t is not None), strict=True
    ):
        assert torch.equal(a, b.float())


# 2.15's opcheck warns for any operator, PyTorch's own too.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize("accumulator", ["int12", "int12_saturate"])
def test_opcheck_of_integers(accumulator):
    x, weight, bias = (
        torch.randn(*shape).mul(3).round().requires_grad_() for shape in ((3, 5), (4, 5), (4,))
    )
    steps = torch.ones(1, dtype=torch.float64), torch.ones(4, 1, dtype=torch.float64)
    text = f"{accumulator}; {128 * 128}"
    arguments = (x, weight, bias, *steps, text, *products.operator_arguments(None))
    torch.library.opcheck(torch.ops.torch_dtypes.product.default, arguments)
    assert torch.equal(
        torch.ops.torch_dtypes.product(*arguments), nn.functional.linear(x, weight, bias)
    )

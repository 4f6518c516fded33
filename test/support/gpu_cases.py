"""Calls, by name, whose results on a GPU have the CPU's bits. Each is a function of a device that
returns tensors.

They run on a GPU, and on the host where the GPU's kernels were compiled for it
(test/operators/test_gpu_route.py, tools/gpu_check.py)."""

import torch

import torch_dtypes
from torch_dtypes import _C

DTYPES = [
    "posit8es2",
    "posit16es2",
    "posit32es2",
    "q43",
    "q52",
    "e5m7",
    "e8m4",
    "tf32",
    "posit8es0",
]
MODES = ["nearest_even", "down", "to_odd", "stochastic", "up_down"]

CASES = {}


def case(function):
    """Register a function of a device and optionally a dtype and a rounding mode, under its name
    and theirs."""
    code = function.__code__
    wanted = code.co_varnames[: code.co_argcount]
    dtypes = DTYPES if "dtype" in wanted else [None]
    modes = MODES if "mode" in wanted else [None]
    for i, dtype in enumerate(dtypes):
        for j, mode in enumerate(modes):
            if dtype and mode not in (None, "nearest_even") and (i + j) % 2:
                continue  # each mode with half of the formats
            name = "-".join(x for x in (function.__name__, dtype, mode) if x)
            CASES[name] = (function, dtype, mode)
    return function


def run(name: str, device: str) -> list[torch.Tensor]:
    """Return a case's results on the CPU. Random words come from a CPU generator with one seed,
    whatever the device."""
    function, dtype, mode = CASES[name]
    arguments = {"device": device}
    if dtype:
        arguments["dtype"] = getattr(torch, dtype)
    if mode:
        arguments["mode"] = mode
    generator = torch.Generator().manual_seed(5)
    before = _C.set_word_source(generator)
    try:
        torch.manual_seed(5)
        results = function(**arguments)
    finally:
        _C.set_word_source(before)
    found = list(results) if isinstance(results, (list, tuple)) else [results]
    for t in found:
        assert t.device.type == torch.device(device).type, (name, t.device)
    return [t.detach().cpu() for t in found]


def bits(t: torch.Tensor) -> torch.Tensor:
    """Return codes, or a stock tensor's own bits. NaN is one code, since machines differ in its
    sign."""
    if _C.format_of(t.dtype) is None and not t.is_floating_point():
        return t.long()
    width = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[t.element_size()]
    return t.contiguous().view(width).long().masked_fill(t.isnan(), -(1 << 40))


def numbers(shape, seed=0, scale=6):
    """Return numbers of many sizes, on the CPU."""
    g = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=g) * torch.exp2(
        torch.randint(-scale, scale, shape, generator=g).float()
    )


def make_tensor(shape, dtype, device, seed=0):
    """Return a tensor of a dtype, cast on the CPU and moved."""
    mode = _C.rounding_override()
    _C.set_rounding_override(None)
    try:
        return numbers(shape, seed).to(dtype).to(device)
    finally:
        _C.set_rounding_override(mode)


# ---- casts ----


@case
def casts(device, dtype, mode):
    x = torch.cat(
        [numbers((1003,), 1, 40), torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan])]
    )
    results = []
    with torch_dtypes.rounding(mode):
        for stock in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
            cast = x.to(stock).to(device).to(dtype)
            results += [
                cast,
                cast.float(),
                cast.double(),
                cast.to(torch.float16),
                cast.to(torch.bfloat16),
            ]
        for stock in (torch.int64, torch.int32, torch.uint8, torch.bool):
            results.append(x.nan_to_num(0, 9, -9).clamp(-1e6, 1e6).to(stock).to(device).to(dtype))
        results.append(numbers((37, 21), 2).to(device).t()[1:, ::2].to(dtype))
        results.append(results[0].to(torch.posit16es1))
    return results


@case
def copies(device, dtype):
    x = make_tensor((5, 7), dtype, device)
    y = torch.empty(5, 7, dtype=dtype, device=device)
    y[:, ::2] = numbers((5, 4), 3).to(device)
    y[:, 1::2].copy_(x[:, 1::2])
    filled = torch.full((3, 2), 0.3, dtype=dtype, device=device).fill_(1.7)
    there = x.to("cpu", non_blocking=True)
    if device != "cpu":
        torch.cuda.synchronize()
    return [
        y,
        filled,
        x.clone(),
        x.t().contiguous(),
        there.to(device),
        torch.zeros_like(x),
        torch.ones(3, dtype=dtype, device=device),
    ]


# ---- arithmetic ----


@case
def arithmetic(device, dtype, mode):
    a, b, c = (make_tensor((34, 66), dtype, device, seed) for seed in (1, 2, 3))
    with torch_dtypes.rounding(mode):
        results = [
            a + b,
            a - b,
            a * b,
            a / b,
            a.abs().sqrt(),
            torch.addcmul(c, a, b),
            torch.addcdiv(c, a, b, value=0.3),
            torch.lerp(a, b, 0.25),
        ]
        results += [
            a + b[0],
            a * b[:, :1],
            a.t() - b.t(),
            a[::2, 1:] / b[1::2, :-1],
            a[:, 3:40:3] + 0,
            b.reciprocal(),
        ]
        results += [
            a * 0.5,
            a * 0.1,
            3 - a,
            a / 3,
            1e-30 * a,
            a + 1e20,
            torch.add(a, b, alpha=0.7),
            torch.rsub(a, 2, alpha=3),
        ]
        in_place = a.clone()
        in_place.mul_(b).add_(c[0]).div_(3)
        in_place[::2, ::3] += 1
    if not torch_dtypes.format_of(dtype).table_address:
        results += [torch.nextafter(a, b), torch.nextafter(a, b[0])]
    results += [in_place, torch.mul(a, b, out=torch.empty(66, 34, dtype=dtype, device=device).t())]
    return results


@case
def arithmetic_of_two_dtypes(device, dtype):
    a, b = make_tensor((9, 8), dtype, device), numbers((9, 8), 4).to(device)
    in_place = a.clone()
    in_place.add_(b.double())
    return [
        in_place,
        a + b.to(dtype),
        a * torch.tensor(0.3, device="cpu"),
        a + torch.tensor(2.0, device="cpu").to(dtype),
    ]


# ---- decoding, a stock kernel that is exact in any order, encoding ----


@case
def selections(device, dtype):
    a, b = make_tensor((17, 19), dtype, device, 1), make_tensor((17, 19), dtype, device, 2)
    index = torch.tensor([3, 1, 1], device=device)
    results = [
        a < b,
        a == a,
        torch.maximum(a, b),
        a.amax(0),
        a.sort(1).values,
        a.argmin(1),
        torch.where(a > 0, a, b),
        a.neg(),
        a.relu(),
        a.isfinite(),
    ]
    results += [
        a[index],
        torch.cat([a, b]),
        a.masked_fill(a > 1, 0.1),
        a.clamp(-1, 1),
        torch.nn.functional.max_pool1d(a, 2),
        a.flip(0),
    ]
    a.index_add_(0, index[:2], b[:2])
    a.index_put_((index[:1],), b[:1])
    return [*results, a]


@case
def gates(device, dtype, mode):
    """Compute the gradient of relu: codes that pass or do not, NaN among them, in several
    layouts."""
    a, b = make_tensor((17, 19), dtype, device, 1), make_tensor((17, 19), dtype, device, 2)
    special = torch.tensor([0.0, -0.0, torch.nan, torch.inf, -1.0]).to(dtype).to(device)
    a[0, :5], b[1, :5] = special, special
    backward, results = torch.ops.aten.threshold_backward, []
    with torch_dtypes.rounding(mode):
        for threshold in (0, 0.3, -1.5):
            results += [
                backward(a, b, threshold),
                backward(a.t(), b.t(), threshold),
                backward(a.t(), b.new_zeros(19, 17), threshold),
            ]
        x = (
            make_tensor((4, 3, 5, 5), dtype, device, 3)
            .to(memory_format=torch.channels_last)
            .requires_grad_()
        )
        torch.relu(x).backward(make_tensor((4, 3, 5, 5), dtype, device, 4))
        results += [
            x.grad,
            backward(a[1:, ::2], b[1:, ::2], 0),
            backward(a, b.float(), 0.1),
            backward(a[:0], b[:0], 0),
        ]
    return results


@case
def functions(device):
    results = []
    for dtype in (torch.posit16es2, torch.q43):
        x = make_tensor((9, 11), dtype, device)
        results += [
            x.exp(),
            x.tanh(),
            x.sigmoid(),
            x.abs().log(),
            torch.nn.functional.gelu(x),
            x.clone().exp_(),
            x.t()[::2].cos(),
        ]
    return results


# ---- sums ----

POLICIES = [
    ("exact", {}),
    ("format", {}),
    ("format", {"fused": True}),
    ("format", {"kahan": True}),
    ("chunked(4)", {}),
    ("format", {"product": "e5m7", "accumulator": "e8m10"}),
    ("format", {"rounding": "stochastic"}),
    ("format", {"product": "exact"}),
    ("chunked(3)", {"outer": "e8m10"}),
    ("format", {"order": "tree"}),
    ("format", {"order": "lanes(2)", "rounding": "stochastic"}),
    ("block", {"terms": 4, "extra_bits": 2}),
    ("block", {"terms": 3, "late": 2, "interleave": 2, "rounding": "stochastic"}),
]


@case
def sums(device, dtype):
    a, b, c = (
        make_tensor((2, 5, 9), dtype, device, 1),
        make_tensor((2, 9, 18), dtype, device, 2),
        make_tensor((2, 5, 18), dtype, device, 3),
    )
    results = []
    for policy, options in POLICIES:
        if options.get("product") == "exact" and dtype is torch.posit32es2:
            continue  # float64 lacks these products
        with torch_dtypes.accumulate(policy, **options):
            results += [
                a @ b,
                torch.baddbmm(c, a, b),
                a[0] @ b[0, :, :2],
                a.sum(),
                a.mean((0, 2)),
                a[0, 0] @ b[0, :, 0],
            ]
            if "order" not in options:
                results.append(b.cumsum(1))
            results += [torch.einsum("bmk,bkn->bn", a, b), torch.addmm(c[0], a[0], b[0], beta=0.5)]
            results.append(torch.addmm(c[0], a[0], b[0], beta=0.1, alpha=0.3))
    return results


@case
def sums_in_tiles(device, dtype):
    """Compute so many results that each thread has several."""
    a, b = make_tensor((4101, 7), dtype, device, 1), make_tensor((7, 1030), dtype, device, 2)
    results = []
    for options in ({}, {"accumulator": "fp32"}):
        with torch_dtypes.accumulate("format", **options):
            results.append(a @ b)
    return results


@case
def convolutions(device):
    results = []
    for policy, options in [*POLICIES[:4], *POLICIES[-3:]]:
        x = make_tensor((2, 3, 7, 6), torch.posit16es2, device, 1).requires_grad_()
        w, bias = (
            make_tensor((4, 3, 3, 2), torch.posit16es2, device, 2).requires_grad_(),
            make_tensor((4,), torch.posit16es2, device, 3).requires_grad_(),
        )
        with torch_dtypes.accumulate(policy, **options):
            y = torch.nn.functional.conv2d(x, w, bias, stride=2, padding=1)
            y.backward(torch.ones_like(y))
            up = torch.nn.functional.conv_transpose2d(
                y.detach(), w.detach(), stride=2, output_padding=1
            )
        results += [y, x.grad, w.grad, bias.grad, up]
    return results


# ---- chop ----


@case
def chop_values(device, mode):
    results = []
    for name in ("posit16es2", "q43", "e5m10", "fixed4_3", "posit32es2", "e4m3fn_saturate"):
        for stock in (torch.float32, torch.float64, torch.float16):
            x = numbers((7, 33), 1, 12).to(stock).to(device)
            results += [
                torch_dtypes.chop(x, name, rounding=mode),
                torch_dtypes.chop(x.t()[::2], name, rounding=mode),
            ]
        results.append(
            torch_dtypes.chop(numbers((1000,), 2).to(device), name, rounding=mode, flip_prob=0.3)
        )
    return results


@case
def chopped_blocks(device, mode):
    results = []
    for name in ("mxfp4", "mxfp8_e4m3", "mxint8", "block<posit8es1,e8m0,16>"):
        x = numbers((5, 70), 1, 12).to(device)
        x[1, 40] = torch.nan
        results.append(torch_dtypes.target(name).quantize(x, rounding=mode))
    return results


# ---- optimizers ----


@case
def optimizers(device):
    results = []
    for options in ({"foreach": False}, {"foreach": True}, {"fused": True}):
        for make in (
            lambda p, o: torch.optim.SGD(p, lr=0.1, momentum=0.9, **o),
            lambda p, o: torch.optim.Adam(p, lr=0.01, **o),
        ):
            # A parameter without elements has no memory. The others in the same launch must not
            # follow it.
            params = [
                make_tensor(shape, torch.posit16es2, device, 1).requires_grad_()
                for shape in ((0,), (6, 5), (2, 0), (3,))
            ]
            step = make(params, options)
            for seed in range(3):
                for p in params:
                    p.grad = make_tensor(p.shape, torch.posit16es2, device, 10 + seed)
                step.step()
            results += params
    return results


@case
def training(device):
    """Train a network with sums whose bits do not depend on the device."""
    torch.manual_seed(1)
    net = (
        torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
        .to(torch.posit16es2)
        .to(device)
    )
    step = torch.optim.SGD(net.parameters(), lr=0.1)
    x, y = (
        numbers((12, 6), 1, 1).to(torch.posit16es2).to(device),
        numbers((12, 3), 2, 1).to(torch.posit16es2).to(device),
    )
    with torch_dtypes.accumulate("format"):
        for _ in range(3):
            step.zero_grad()
            (net(x) - y).square().mean().backward()
            step.step()
    return list(net.parameters())

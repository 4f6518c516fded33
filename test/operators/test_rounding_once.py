"""Functions that reduce or normalise are rounded once: the result is PyTorch's float64 result on
the same values, rounded.

The rounding cast is this package's; test/numbers/ checks it against exact oracles."""

import importlib.util
import re
from pathlib import Path

import pytest
import reductions
import torch
from representatives import thin_out
from torch import masked
from torch.nn import functional as F

import torch_dtypes
from torch_dtypes import _C
from torch_dtypes.host.hooks import composed

pytestmark = [
    pytest.mark.filterwarnings(f"ignore:{text}")
    for text in ("reduction. 'mean' divides", "index_reduce", "torch.searchsorted")
]
# Thousands of small calls are eight times as fast with one thread.
pytestmark.append(pytest.mark.usefixtures("one_thread"))
FORMATS = (
    "q43",
    "e4m3fn",
    "e4m3fn_saturate",
    "posit8es0",
    "posit8es1",
    "fixed3_4",
    "posit16es2",
    "e5m10",
)
# Bounds of float32's own error, as a share of the largest result.
SLACK = {"interpolate": 2.0**-13, "matrix_norm": 2.0**-15}
OTHER = 2.0**-18


def values_of(dtype):
    bits = 8 * dtype.itemsize
    codes = torch.arange(-(1 << bits - 1), 1 << bits - 1).to(
        torch.uint8 if bits == 8 else torch.int16
    )
    values = torch_dtypes.from_codes(codes, dtype).double()
    return values[~values.isnan()].unique()


def codes_apart(found, exact, values, dtype, slack):
    """Return the largest number of codes between `found` and the rounded exact numbers. A result
    within the slack of the exact number counts as one code."""
    wrong = found.isnan() != exact.to(dtype).isnan()
    places = torch.searchsorted(values, found.double() + 0.0)
    near = slack * exact[exact.isfinite()].abs().amax() if exact.isfinite().any() else 0.0
    low, middle, high = (
        torch.searchsorted(values, (exact + e).to(dtype).double() + 0.0) for e in (-near, 0.0, near)
    )
    apart = (places - middle).abs()
    apart = torch.where((places >= low) & (places <= high), apart.clamp(max=1), apart)
    return torch.where(wrong, len(values), torch.where(found.isnan(), 0, apart)).max().item()


def gradients(results, operands, dtype):
    pairs = [r for r in results if r.requires_grad]
    wanted = [x for x in operands if x.requires_grad]
    if not pairs or not wanted:
        return []
    slopes = [(reductions.classes(*r.shape, seed=4, count=2) * 2.0 - 1).to(dtype) for r in pairs]
    return torch.autograd.grad(pairs, wanted, slopes)


def run(name, dtype):
    """Return results and gradients, in the dtype and in stock float64."""
    function, inputs = reductions.CASES[name]
    made = []
    for wanted in (dtype, torch.float64):
        operands = [
            x.to(dtype).to(wanted).requires_grad_(not hasattr(x, "is_fixed")) for x in inputs
        ]
        results = function(*operands)
        results = [results] if isinstance(results, torch.Tensor) else list(results)
        made.append([*results, *gradients(results, operands, wanted)])
    return made


def worst(name, dtype, values):
    slack = next((s for begin, s in SLACK.items() if name.startswith(begin)), OTHER)
    found, exact = run(name, dtype)
    assert all(f.dtype is dtype and f.shape == e.shape for f, e in zip(found, exact, strict=True))
    return max(
        codes_apart(f.detach(), e.detach(), values, dtype, slack)
        for f, e in zip(found, exact, strict=True)
    )


def exception_of(name):
    plain = name.split(",")[0]
    return next((key for key in reductions.EXCEPTIONS if plain in (key, f"{key} weight")), None)


@pytest.mark.parametrize("format_name", thin_out(FORMATS, 3))
def test_results_and_gradients_are_rounded_once(format_name):
    dtype = torch_dtypes.dtype(format_name)
    values = values_of(dtype)
    wrong = {
        name: apart
        for name in reductions.CASES
        if exception_of(name) is None and (apart := worst(name, dtype, values)) > 1
    }
    assert wrong == {}


@pytest.mark.parametrize("exception", reductions.EXCEPTIONS)
def test_exceptions_are_needed(exception):
    names = [name for name in reductions.CASES if exception_of(name) == exception]
    assert names and max(worst(name, torch.q43, values_of(torch.q43)) for name in names) > 1


# ---- completeness of the lists and the cases ----


def cases_of(function: str) -> bool:
    return any(re.match(rf"{re.escape(function)}(\W|$)", name) for name in reductions.CASES)


def test_every_row_has_a_case():
    rows = [
        name.replace("entropy_loss", "entropy")
        for name, steps, _, _ in _C.operator_facts()
        if "Composed" in steps
    ]
    assert len(rows) > 12 and [name for name in rows if not cases_of(name)] == []
    for module, names in composed.FUNCTIONS.items():
        start = "masked." if "masked" in module else ""
        assert [name for name in names if not cases_of(start + name.partition(":")[0])] == []


def test_every_function_that_reduces_has_a_case():
    select = (
        "max_pool",
        "max_unpool",
        "amax",
        "amin",
        "argmax",
        "argmin",
        "MaskedTensor",
        "as_masked_tensor",
        "masked_tensor",
        "logaddexp",
    )
    kinds = "loss|pool|norm|entropy|div|distance|dist$|similarity|interpolate|softm"
    names = [name for name in dir(F) if re.search(kinds, name) and name[0] != "_"]
    names += [
        f"masked.{name}"
        for name in dir(masked)
        if callable(getattr(masked, name)) and name[0] != "_"
    ]
    same = {"softmax", "log_softmax", "gumbel_softmax", "lp_pool2d", "threshold"}
    missing = [
        n
        for n in names
        if not cases_of(n)
        and not any(s in n for s in select)
        and n.split(".")[-1] not in same
        and not n.endswith("_indices")
    ]
    assert missing == []


# ---- policies ----


@pytest.mark.parametrize("policy", ["format", "exact", "chunked(32)"])
@pytest.mark.parametrize(
    "name", ["kl_div, mean", "nanmean", "masked.mean", "normalize 2.0", "kl_div, batchmean"]
)
def test_a_policy_that_rounds_within_sums_still_does(name, policy):
    """Each case is written out with PyTorch's code of single operators."""
    written = {
        "kl_div, mean": lambda x, p: (torch.xlogy(p, p) - p * x).mean(),
        "kl_div, batchmean": lambda x, p: (torch.xlogy(p, p) - p * x).sum() / x.size(0),
        "nanmean": lambda x: x.nansum(0) / len(x),
        "masked.mean": lambda x: (
            torch.where(reductions.choose(1000), x, 0).sum(0) / reductions.choose(1000).sum(0)
        ),
        "normalize 2.0": lambda x: x / x.norm(2, 1, keepdim=True).clamp_min(1e-12),
    }
    function, inputs = reductions.CASES[name]

    def codes_of(call):
        operands = [x.to(torch.q43).requires_grad_() for x in inputs]
        result = call(*operands)
        return [
            torch_dtypes.codes(t).tolist()
            for t in (result, *torch.autograd.grad(result.sum(), operands))
        ]

    with torch_dtypes.accumulate(policy):
        found = codes_of(function)
        assert found == codes_of(written[name])
    assert found != codes_of(function)


@pytest.mark.parametrize(
    "mean",
    [torch.nanmean, lambda x: masked.mean(x, 0), lambda x: F.l1_loss(x, torch.zeros_like(x))],
)
def test_the_policy_float64_is_obeyed(mean):
    # float32 cannot hold the sum of the first two
    x = torch.tensor([2.0**15, 2.0**-10, -(2.0**15)], dtype=torch.e5m10)
    x = x.abs() if mean(x.double()) > 1 else x
    with torch_dtypes.accumulate("float64"):
        found = mean(x)
    assert found.double() == mean(x.double()).to(x.dtype).double()
    assert x[2] > 0 or mean(x).double() != found.double()


# ---- operands of several dtypes, requested dtypes ----


def test_several_dtypes_promote_or_raise_as_single_operators_do():
    x, stock = torch.ones(4, 3, dtype=torch.q43), torch.ones(4, 3)
    for call in (F.kl_div, F.l1_loss, F.pairwise_distance, F.poisson_nll_loss):
        assert call(x, stock).dtype is torch.float32
    assert (
        F.cosine_embedding_loss(x, x, torch.ones(4)).dtype
        is F.hinge_embedding_loss(x, stock).dtype
        is torch.q43
    )
    with pytest.raises(
        RuntimeError,
        match=r"expected operands of one dtype, but got self torch\.q43, weight torch\.float32",
    ):
        F.cross_entropy(
            x, torch.zeros(4, dtype=torch.long), weight=torch.ones(3), label_smoothing=0.1
        )


@pytest.mark.parametrize(
    "asked", [torch.float32, torch.float64, torch.q43, torch.posit16es2], ids=str
)
def test_a_dtype_that_is_asked_for_is_the_results(asked):
    x = reductions.LONG.to(torch.q43)
    for call in (torch.nanmean, masked.mean):
        found = call(x, dim=0, dtype=asked)
        assert found.dtype is asked
        torch.testing.assert_close(found, x.double().mean().to(asked), rtol=1e-6, atol=0)


def test_what_is_all_masked_is_the_outermost_number_of_a_format_without_infinities():
    x, none = torch.ones(2, 3, dtype=torch.posit8es1), torch.zeros(2, 3, dtype=torch.bool)
    assert masked.logsumexp(x, 1, mask=none).tolist() == [-4096.0] * 2
    assert (
        masked.log_softmax(x, 1, mask=torch.tensor([True, True, False])).tolist()
        == [[-0.6875, -0.6875, -4096.0]] * 2
    )
    assert masked.logsumexp(x.to(torch.q43), 1, mask=none).tolist() == [float("-inf")] * 2


@pytest.mark.parametrize(
    "call",
    [
        lambda x, **o: torch.linalg.vecdot(x, x.flip(0), **o),
        lambda x, **o: F.normalize(x, **o),
        lambda x, **o: torch.nanmean(x, 1, **o),
    ],
)
def test_out_has_the_bits_of_the_result(call):
    x = reductions.ROWS.to(torch.q43)
    expected, out = call(x), torch.empty(0, dtype=torch.q43)
    assert call(x, out=out) is out and out.shape == expected.shape
    assert torch.equal(torch_dtypes.codes(out), torch_dtypes.codes(expected))
    with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
        call(x.clone().requires_grad_(), out=torch.empty_like(out))


@pytest.mark.parametrize("function", [torch.prod, masked.prod, lambda x: x.cumprod(0)[-1]])
def test_products_leave_the_range_of_float32_on_the_way(function):
    x = (
        torch.cat([torch.full((5,), 2.0**50), torch.full((5,), 2.0**-50), torch.tensor([3.0])])
        .to(torch.posit16es2)
        .requires_grad_()
    )
    made = function(x)
    (gradient,) = torch.autograd.grad(made, x)
    assert (
        made.item() == 3
        and gradient[-1].item() == 1
        and gradient[0] == torch.tensor(3 * 2.0**-50, dtype=x.dtype)
    )


def test_the_document_has_every_row():
    path = Path(__file__).resolve().parents[2] / "tools" / "rounded_once_table.py"
    spec = importlib.util.spec_from_file_location("rounded_once_table", path)
    table = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(table)
    assert table.page() == table.PAGE.read_text(), (
        "docs/numerics.md is not up to date: python tools/rounded_once_table.py"
    )


def test_values_from_the_report():
    torch.manual_seed(0)
    x, t = torch.randn(128, 10), torch.randint(10, (128,))
    right = F.cross_entropy(x, t, label_smoothing=0.1).item()
    for name in ("q43", "e4m3fn", "posit8es0"):
        assert F.cross_entropy(
            x.to(torch_dtypes.dtype(name)), t, label_smoothing=0.1
        ).item() == pytest.approx(right, rel=0.07)
    alike = torch.randn(8, 512)
    for name in ("posit8es1", "e4m3fn_saturate"):
        a, b = (
            alike.to(torch_dtypes.dtype(name)),
            (alike + 0.1 * torch.randn(8, 512)).to(torch_dtypes.dtype(name)),
        )
        assert 0 < F.cosine_embedding_loss(a, b, torch.ones(8)).item() < 0.02

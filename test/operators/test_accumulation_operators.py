"""Operators that follow the accumulation policy: their shapes, orders and variants; attention;
random steps."""

import math

import pytest
import torch
import torch.nn.functional as F
from conftest import codes_of
from oracle_stochastic import MODES as STOCHASTIC
from oracle_sums import over, step_sum
from sums import FORMATS, assert_codes, dtype_of, ends, lines, some, step_codes, values_of

import torch_dtypes
from torch_dtypes import accumulate

OWN = ("exact", "format", "chunked(3)")  # policies that no stock kernel obeys
POLICIES = ("machine", "float32", "float64", *OWN)


# ---- operators ----

OPERATORS = {
    "bmm": (torch.bmm, (2, 3, 4), (2, 4, 5)),
    "addmm of a row": (torch.addmm, (5,), (3, 4), (4, 5)),
    "addmm of a number": (torch.addmm, (), (3, 4), (4, 5)),
    "baddbmm": (torch.baddbmm, (2, 3, 5), (2, 3, 4), (2, 4, 5)),
    "baddbmm of a matrix": (torch.baddbmm, (3, 1), (2, 3, 4), (2, 4, 5)),
    "addbmm": (torch.addbmm, (3, 5), (2, 3, 4), (2, 4, 5)),
    "addbmm of a row": (torch.addbmm, (5,), (2, 3, 4), (2, 4, 5)),
    "addmv of a number": (torch.addmv, (), (9, 4), (4,)),
    "tensordot": (lambda a, b: torch.tensordot(a, b, dims=2), (2, 3, 4), (3, 4, 5)),
    "matmul of a vector": (torch.matmul, (4,), (2, 4, 5)),
    "matmul of batches": (torch.matmul, (2, 1, 3, 4), (6, 4, 5)),
    "einsum over batches": (lambda a, b: torch.einsum("bij,bjk->ik", a, b), (2, 3, 4), (2, 4, 5)),
    "einsum of heads": (
        lambda a, b: torch.einsum("bihd,bjhd->bhij", a, b),
        (2, 3, 2, 4),
        (2, 5, 2, 4),
    ),
    "linear": (F.linear, (3, 4), (5, 4), (5,)),
    "sum": (torch.sum, (2, 4)),
    "sum of a number": (lambda x: x.sum(-1, keepdim=True), ()),
    "sum over a dimension": (lambda x: x.sum(1), (3, 4, 5)),
    "sum over dimensions": (lambda x: x.sum((0, -1)), (3, 4, 5)),
    "sum, dimensions kept": (lambda x: x.sum((-3, 1), keepdim=True), (3, 4, 5)),
    "sum over no dimension": (lambda x: x.sum(()), (3, 4)),
    "mean": (torch.mean, (2, 4)),
    "mean over dimensions": (lambda x: x.mean((0, -1), keepdim=True), (3, 4, 5)),
    "cumsum": (lambda x: x.cumsum(1), (3, 4, 5)),
    "cumsum, last": (lambda x: x.cumsum(-1), (3, 4)),
    "cumsum of a number": (lambda x: x.cumsum(0), ()),
    "strided": (lambda a, b: a[::2, 1::2] @ b[:, ::3], (6, 9), (4, 7)),
    "expanded": (lambda a, b: a.expand(3, 4) @ b.expand(4, 5), (4,), (4, 1)),
    "summed strided": (lambda x: x.transpose(0, 2)[::2].sum((1, 2)), (3, 4, 5)),
    "running, strided": (lambda x: x.t()[:, ::2].cumsum(0), (6, 4)),
}


def summed_in_float64(name, sizes):
    """Return a format whose sums of products (in posit8es2: sums) are exact in float64, but not
    always in float32."""
    return "posit8es2" if name == "posit8es1" and len(sizes) == 1 else name


@pytest.mark.parametrize("name", ["q43", "posit8es1"])
@pytest.mark.parametrize("operator", OPERATORS)
def test_exact_operators_round_once(operator, name):
    """PyTorch's float64 result, rounded, is the correctly rounded one here."""
    call, *sizes = OPERATORS[operator]
    name = summed_in_float64(name, sizes)
    for seed in range(0, 100, 10):
        operands = [ends(name, *size, seed=seed + i) for i, size in enumerate(sizes)]
        with accumulate("exact"):
            found = call(*operands)
        expected = call(*(t.double() for t in operands)).to(found.dtype)
        assert found.dtype == dtype_of(name) and found.shape == expected.shape
        assert_codes(found, codes_of(expected).flatten().tolist(), FORMATS[name], operator)


@pytest.mark.parametrize("options", [{}, {"kahan": True}], ids=str)
def test_format_in_other_operators_is_that_of_mm(options):
    """The sums and their order are those of mm: for a batch's products alone, or (addbmm) one after
    the other. test_accumulation_layouts.py has others."""
    spec, a, b, c = (
        FORMATS["posit16es1"],
        some("posit16es1", 2, 3, 7),
        some("posit16es1", 2, 7, 4, seed=1),
        some("posit16es1", 3, 4, seed=2),
    )
    starts = values_of(c, spec)
    dots = [lines(a[i], b[i], spec) for i in range(2)]
    joined = [p + q for p, q in zip(*dots, strict=True)]
    with accumulate("format", **options):
        assert_codes(torch.bmm(a, b), step_codes(dots[0] + dots[1], spec, **options), spec, "bmm")
        assert_codes(
            torch.baddbmm(c, a, b),
            step_codes(dots[0] + dots[1], spec, starts=starts * 2, **options),
            spec,
            "baddbmm",
        )
        assert_codes(
            torch.addbmm(c, a, b),
            step_codes(joined, spec, starts=starts, **options),
            spec,
            "addbmm",
        )


def test_format_sums_in_the_order_of_the_index():
    spec, x = FORMATS["q43"], some("q43", 3, 4, 5)
    with accumulate("format"):
        found = {
            dims: (x.sum(dims), x.mean(dims)) for dims in ((0,), (1, 2), (0, 2), (2, 0), (0, 1, 2))
        }
    for dims, (total, mean) in found.items():
        kept = [d for d in range(3) if d not in dims]
        rows = x.permute(*kept, *sorted(dims)).reshape(total.numel(), -1)
        sums = [step_sum([(None, v) for v in values_of(row, spec)], spec, spec) for row in rows]
        assert_codes(total, [spec.encode(v) for v in sums], spec, f"sum {dims}")
        assert_codes(
            mean, [spec.encode(over(v, rows.shape[1])) for v in sums], spec, f"mean {dims}"
        )


@pytest.mark.parametrize("policy", OWN)
def test_out_and_in_place(policy):
    a, b, c, v = (
        some("q43", 3, 4),
        some("q43", 4, 3, seed=1),
        some("q43", 3, 3, seed=2),
        some("q43", 3, seed=3),
    )
    batch = torch.stack([a, a + a])
    calls = [
        lambda **out: torch.mm(a, b, **out),
        lambda **out: torch.addmm(c, a, b, **out),
        lambda **out: torch.bmm(batch, batch.mT.contiguous(), **out),
        lambda **out: torch.mv(c, v, **out),
        lambda **out: torch.dot(v, v, **out),
        lambda **out: torch.matmul(a, b, **out),
        lambda **out: torch.sum(a, 1, **out),
        lambda **out: torch.mean(a, 0, **out),
        lambda **out: torch.mean(a, 1, keepdim=True, **out),
        lambda **out: torch.mean(a, **out),
        lambda **out: torch.cumsum(a, 1, **out),
    ]
    with accumulate(policy):
        for call in calls:
            expected, wide = call(), torch.empty(40, dtype=torch.q43)
            for out in (
                torch.empty_like(expected),
                torch.empty(0, dtype=torch.q43),
                wide[: 2 * expected.numel() : 2].view(expected.shape),
            ):
                assert call(out=out) is out
                assert torch.equal(codes_of(out), codes_of(expected))
        for name, args in (
            ("addmm_", (a, b)),
            ("addbmm_", (batch, torch.stack([b, b]))),
            ("cumsum_", (1,)),
        ):
            changed = c.clone()
            assert getattr(changed, name)(*args) is changed
            assert torch.equal(codes_of(changed), codes_of(getattr(c, name[:-1])(*args))), name
        assert torch.equal(codes_of(v.clone().addmv_(c, v)), codes_of(torch.addmv(v, c, v)))
        square = c.clone()
        # The result overwrites its own operand.
        assert torch.equal(codes_of(torch.mm(square, c, out=square)), codes_of(torch.mm(c, c)))
        with pytest.raises(
            RuntimeError, match=r"expected a tensor of size \[3, 3\], but got \[3\]"
        ):
            v.clone().addmm_(a, b)


def test_dtype_of_a_sum():
    """With dtype= of another format, the values are converted first, as in stock PyTorch."""
    x = some("posit16es1", 3, 5)
    with accumulate("exact"):
        for call in (
            lambda t, **k: t.sum(1, **k),
            lambda t, **k: t.mean((0, 1), **k),
            lambda t, **k: t.cumsum(0, **k),
            torch.sum,
        ):
            found = call(x, dtype=torch.q43)
            assert found.dtype == torch.q43
            assert torch.equal(codes_of(found), codes_of(call(x.to(torch.q43))))
            assert torch.equal(codes_of(call(x, dtype=x.dtype)), codes_of(call(x)))
            assert call(x, dtype=torch.float64).dtype == torch.float64


@pytest.mark.parametrize("policy", POLICIES)
def test_empty_and_meta(policy):
    def make(*sizes, device):
        return torch.ones(sizes, dtype=torch.q43, device=device)

    def results(device):
        a, none = make(3, 4, device=device), make(3, 0, device=device)
        return [
            none @ make(0, 2, device=device),
            a[:0] @ make(4, 2, device=device),
            torch.addmm(make(2, device=device), none, make(0, 2, device=device)),
            torch.bmm(make(0, 3, 4, device=device), make(0, 4, 2, device=device)),
            make(0, device=device) @ make(0, device=device),
            none.sum(),
            none.sum(0),
            none.sum(1),
            none.mean(1),
            none.cumsum(1),
            a.sum(1),
            a.mean((0, 1)),
            a.cumsum(0),
            a @ a.t(),
            F.linear(a, make(5, 4, device=device), make(5, device=device)),
            F.conv1d(make(2, 3, 6, device=device), make(4, 3, 2, device=device)),
            F.conv_transpose1d(
                make(2, 3, 6, device=device), make(3, 4, 2, device=device), stride=2
            ),
            F.scaled_dot_product_attention(a[None], a[None], a[None]),
            F.scaled_dot_product_attention(a[None], a[None], a[None], is_causal=True),
        ]

    with accumulate(policy):
        here, meta = results("cpu"), results("meta")
    for i, (x, y) in enumerate(zip(here, meta, strict=True)):
        assert y.is_meta and (x.shape, x.dtype) == (y.shape, y.dtype), i
    assert (
        here[2].float().tolist() == [[1, 1]] * 3
        and not here[0].float().any()
        and here[8].float().isnan().all()
    )


@pytest.mark.parametrize("policy", OWN)
def test_wrong_arguments(policy):
    a, b = some("q43", 3, 4), some("q43", 3, 4, seed=1)
    with accumulate(policy):
        for call in (
            lambda: torch.mm(a, b),
            lambda: torch.mv(a, b[:, 0]),
            lambda: torch.dot(a[0], b[:, 0]),
            lambda: torch.mm(a, b[0]),
        ):
            with pytest.raises(
                RuntimeError,
                match=r"mat1 and mat2 shapes cannot be multiplied|expected argument 2 with 2 "
                r"dimensions, but got 1",
            ):
                call()
        two = (
            r"of one number format, but got q43 and posit8es1.*\(torch.q43\) or "
            r"x.to\(torch.posit8es1\), or give the result's dtype: torch_dtypes.matmul\(a, b, out="
        )
        with pytest.raises(RuntimeError, match=two):
            a @ b.t().to(torch.posit8es1)
        with pytest.raises(RuntimeError, match=r"expanded size|must match"):
            torch.addmm(a, a, b.t())
        for call in (
            lambda: a.sum(2),
            lambda: a.cumsum(-3),
            lambda: a[0, 0].cumsum(1),
            lambda: a.mean((0, 2)),
        ):
            with pytest.raises(IndexError, match="Dimension out of range"):
                call()


# ---- attention ----


def attention(q, k, v, policy, bias=None, scale=None):
    """Compute the two products by the policy, masks and softmax in float32."""
    with accumulate(policy):
        scores = (q @ k.mT).float() * (scale or 1 / math.sqrt(q.shape[-1])) + (
            0 if bias is None else bias
        )
        weights = scores.softmax(-1)
        return weights.masked_fill(scores.isneginf().all(-1, keepdim=True), 0).to(q.dtype) @ v


@pytest.mark.parametrize("policy", OWN)
@pytest.mark.parametrize("name", ["q43", "posit16es1"])
def test_attention(name, policy):
    q, k, v = (
        some(name, 2, 4, 5, 6, spread=0.5),
        some(name, 2, 4, 7, 6, seed=1),
        some(name, 2, 4, 7, 3, seed=2),
    )
    q, k, v = (t.float().clamp(-2, 2).to(t.dtype) for t in (q, k, v))
    keep = torch.rand(5, 7, generator=torch.Generator().manual_seed(1)) < 0.6
    keep[2] = False  # attends to nothing: zeros, as in stock PyTorch
    bias = torch.zeros(5, 7).masked_fill(~keep, -math.inf)
    causal = torch.zeros(5, 7).masked_fill(~torch.ones(5, 7, dtype=torch.bool).tril(), -math.inf)
    added = some("q43", 5, 7, seed=4, spread=0.3).float().clamp(-1, 1)
    grouped = [t[:, ::2] for t in (k, v)]
    cases = [
        (q, k, v, {}, None),
        (q, k, v, {"scale": 0.5}, None),
        (q, k, v, {"is_causal": True}, causal),
        (q, k, v, {"attn_mask": keep}, bias),
        (q, k, v, {"attn_mask": added}, added),
        (q, k, v, {"attn_mask": added.to(q.dtype)}, added.to(q.dtype).float()),
        (q[0], k[0], v[0], {}, None),
        (q, *grouped, {"enable_gqa": True}, None),
    ]
    for i, (q_, k_, v_, options, mask) in enumerate(cases):
        with accumulate(policy):
            found = F.scaled_dot_product_attention(q_, k_, v_, **options)
        if "enable_gqa" in options:
            k_, v_ = (t.repeat_interleave(2, 1) for t in (k_, v_))
        expected = attention(q_, k_, v_, policy, mask, options.get("scale"))
        assert torch.equal(codes_of(found), codes_of(expected)), (i, options)


@pytest.mark.parametrize("policy", ["exact", "format"])
def test_attention_s_gradients_are_those_of_its_steps(policy):
    operands = [
        some("posit16es1", 2, 5, 4, seed=i, spread=0.5)
        .float()
        .clamp(-2, 2)
        .to(torch.posit16es1)
        .requires_grad_()
        for i in range(3)
    ]
    with accumulate(policy):
        by_kernel = torch.autograd.grad(F.scaled_dot_product_attention(*operands).sum(), operands)
    q, k, v = operands
    with accumulate(policy):
        weights = ((q @ k.mT).float() * 0.5).softmax(-1).to(q.dtype)
        by_steps = torch.autograd.grad((weights @ v).sum(), operands)
    for x, y in zip(by_kernel, by_steps, strict=True):
        assert torch.equal(codes_of(x), codes_of(y))


@pytest.mark.parametrize("policy", OWN)
def test_fused_attention_refuses(policy):
    layer = torch.nn.MultiheadAttention(8, 2, batch_first=True).to(torch.posit16es2).eval()
    x = torch.ones(1, 3, 8, dtype=torch.posit16es2)
    with torch.no_grad(), accumulate(policy):
        with pytest.raises(
            NotImplementedError,
            match=r"no stock kernel obeys\. Call the ordinary "
            r"operator.*set_fastpath_enabled\(False\)",
        ):
            # A mode, such as that of `--device cuda`, would prevent the fast path.
            with torch._C.DisableTorchFunction():
                layer(x, x, x)
        torch.backends.mha.set_fastpath_enabled(False)
        try:
            assert layer(x, x, x)[0].shape == x.shape
        finally:
            torch.backends.mha.set_fastpath_enabled(True)
        with pytest.raises(NotImplementedError, match=r"grouped_mm.*no stock kernel obeys"):
            torch.nn.functional.grouped_mm(x.expand(2, 3, 8), torch.ones(2, 8, 4).to(x.dtype))
        with pytest.raises(NotImplementedError, match=r"grouped_mm.*no stock kernel obeys"):
            torch.nn.functional.grouped_mm(
                x[0], torch.ones(2, 8, 4).to(x.dtype), offs=torch.tensor([1, 3], dtype=torch.int32)
            )
    with torch.no_grad(), accumulate("float64"):
        assert layer(x, x, x)[0].shape == x.shape


# ---- random steps ----


def run_seeded(call, seed=1):
    torch.manual_seed(seed)
    return codes_of(call())


@pytest.mark.parametrize("mode", STOCHASTIC)
def test_random_steps_follow_the_seed_and_not_the_threads(mode, one_thread):
    a, b, x = some("q43", 40, 9), some("q43", 9, 300, seed=1), some("q43", 2, 3, 8, 8)
    calls = [
        lambda: a @ b,
        lambda: b.t() @ a.t(),
        lambda: a.sum(0),
        lambda: b.cumsum(1),
        lambda: F.conv2d(x, x[:, :, :3, :3]),
    ]
    for call in calls:
        for policy, options in (
            ("format", {"rounding": mode}),
            ("chunked(4)", {"rounding": mode}),
            ("exact", {}),
        ):
            with (
                accumulate(policy, **options),
                torch_dtypes.rounding("nearest_even" if options else mode),
            ):
                first, again, other = run_seeded(call), run_seeded(call), run_seeded(call, 2)
                torch.set_num_threads(4)
                threaded = run_seeded(call)
                torch.set_num_threads(1)
            assert torch.equal(first, again) and torch.equal(first, threaded), policy
            assert not torch.equal(first, other), policy


@pytest.mark.parametrize("name", ["q43", "posit8es1", "posit16es1", "fixed4_4"])
@pytest.mark.parametrize("policy", ["format", "chunked(5)", "exact"])
def test_stochastic_sums_are_unbiased(name, policy):
    """Average 20,000 dot products of the same operands. With no random step, as in some formats,
    they are all equal."""
    a, column = (
        some(name, *size, seed=2).float().remainder(1).sub(0.5).to(dtype_of(name))
        for size in ((1, 12), (12, 1))
    )
    b = column.expand(12, 20000)
    torch.manual_seed(3)
    with (
        accumulate(policy, **({} if policy == "exact" else {"rounding": "stochastic"})),
        torch_dtypes.rounding("stochastic"),
    ):
        found = (a @ b).double()
    expected = (a.double() @ column.double()).item()
    assert (
        abs(found.mean().item() - expected)
        <= 5 * found.std().item() / math.sqrt(found.numel()) + 1e-12
    )


def test_random_steps_are_independent():
    """From 8 in e5m2, where the next value is 10, two steps of 1/2 each round up with probability
    1/4."""
    n = 16000
    start, half = torch.full((n,), 8.0).to(torch.q52), torch.full((2, n), 0.5).to(torch.q52)
    torch.manual_seed(5)
    with accumulate("format", rounding="stochastic"):
        found = torch.addmm(start, torch.ones(1, 2, dtype=torch.q52), half).float().flatten()
        lanes = torch.addmm(start, torch.ones(1, 2, dtype=torch.q52), half).float().flatten()
    for value, p in ((8, 9 / 16), (10, 6 / 16), (12, 1 / 16)):
        assert abs((found == value).sum().item() - n * p) < 5 * math.sqrt(n * p * (1 - p)), value
    up = (found > 8).double()
    for other in (up.roll(1), up.roll(256), (lanes > 8).double()):
        assert abs(torch.corrcoef(torch.stack([up, other]))[0, 1]) < 5 / math.sqrt(n)

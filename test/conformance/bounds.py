"""Bounds on the distance of a result in a format from the exact one, for the whole suite.

Every operator runs three more times on the exact values of the operands, in stock dtypes:

exact: in float64.
single: in float32, in which most of this package's kernels compute.
stepped: in float64, with the result of every kernel below autograd rounded to the format
    (`StepRounding`). Such intermediate values are all that an operator of several kernels sees.

A result `y` in the format passes where

    encode(exact - slack) <= y <= encode(exact + slack)
        as ordered codes. encode rounds once to the format; for a dtype that rounds
        stochastically, down on the left and up on the right

    slack = 0
            for operators that are documented as correctly rounded
          = 4 max|single - exact| + 2^-20 |exact|
            for operators of one kernel: the loss of float32 on these very values, since the
            order of a sum is free; 2^-20 is 16 units in the last place of float32
          + 4 max|stepped - exact| + 4 gap(exact)
            for operators of several kernels and for gradients: the loss by rounding between
            the kernels, since this package may use other kernels, and 4 steps between
            neighbouring values of the format
          + 4 k smallest
            k kernels flush numbers below the smallest positive value

The maxima run over the elements of one result, so that an element that lost nothing by chance does
not get a bound of 0. NaN is required where `exact` rounds to NaN. Where `single` or `stepped` is
finite and `exact` is not, or the other way round, `y` may be either.
"""

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

import torch_dtypes
from torch_dtypes import _C

CONTAINER = {1: torch.float8_e5m2fnuz, 2: torch.bfloat16, 4: torch.float32, 8: torch.float64}
BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def ordered_codes(t: torch.Tensor) -> torch.Tensor:
    """Return integers in the order of the values, where neighbours differ by one. The integers of
    NaN have no meaning."""
    bits = torch_dtypes.format_of(t.dtype).bits
    codes = t.detach().contiguous().view(BITS[t.dtype.itemsize]).long()
    if torch_dtypes.format_of(t.dtype).kind == _C.Kind.posit:
        return (codes << (64 - bits)) >> (64 - bits)
    magnitude = codes & ((1 << (bits - 1)) - 1)
    return torch.where((codes >> (bits - 1)) & 1 == 1, -magnitude, magnitude)


def gap(magnitude: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return in float64 the distance from |value| to the next larger value of the format. At the
    largest value it is the distance below."""
    limit = torch.finfo(dtype).max
    last = ordered_codes(torch.tensor([limit], dtype=dtype)) - 1
    codes = torch.minimum(
        ordered_codes(magnitude.nan_to_num(0.0, limit, limit).clamp(max=limit).to(dtype)), last
    )
    return from_positive_codes(codes + 1, dtype) - from_positive_codes(codes, dtype)


def from_positive_codes(codes: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return codes.to(BITS[dtype.itemsize]).contiguous().view(dtype).double()


def neighbour(x: torch.Tensor, towards: torch.Tensor) -> torch.Tensor:
    """Compute torch.nextafter in float64: the next value of the operands' format. float64's own
    next number would be rounded away."""
    x, towards = torch.broadcast_tensors(x, towards)
    start = x.double()
    codes = ordered_codes(x) + torch.sign(towards.double() - start).long()
    result = torch.copysign(
        from_positive_codes(codes.abs(), x.dtype), torch.where(codes == 0, start, codes.double())
    )
    return torch.where(start.isnan() | towards.isnan(), torch.nan, result)


def smallest(dtype: torch.dtype) -> float:
    return from_positive_codes(torch.ones(1, dtype=torch.int64), dtype).item()


def directions(dtype: torch.dtype) -> tuple[torch.dtype, torch.dtype]:
    """Return the dtypes that round the ends of a bound: the dtype itself, or outward ones for a
    stochastic dtype, which may return either neighbour."""
    if torch_dtypes.format_of(dtype).rounding != _C.Rounding.stochastic:
        return dtype, dtype
    return torch_dtypes.with_rounding(dtype, "down"), torch_dtypes.with_rounding(dtype, "up")


class StepRounding(TorchDispatchMode):
    """Rounds what every kernel returns to a format. Notes how many kernels ran and whether any of
    them was random."""

    def __init__(self, dtype: torch.dtype):
        super().__init__()
        self.dtype, self.kernels, self.random = dtype, 0, False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        # Zeros of forward mode have no memory, and some kernels read it once a mode has intervened.
        args, kwargs = tree_map(
            lambda t: (
                torch.zeros_like(t) if isinstance(t, torch.Tensor) and t._is_zerotensor() else t
            ),
            (args, kwargs or {}),
        )
        result = func(*args, **kwargs)
        schema = func._schema
        self.random |= torch.Tag.nondeterministic_seeded in func.tags
        if func.namespace != "aten" or any(
            r.alias_info is not None and not r.alias_info.is_write for r in schema.returns
        ):
            return result
        # In-place kernels on tensor lists return nothing.
        given = dict(zip((a.name for a in schema.arguments), args, strict=False)) | kwargs
        written = [
            given.get(a.name)
            for a in schema.arguments
            if a.alias_info is not None and a.alias_info.is_write
        ]
        rounded = False
        for t in tree_leaves((written, result)):
            if (
                isinstance(t, torch.Tensor)
                and t.dtype is torch.float64
                and t.layout is torch.strided
                and not t.is_nested
            ):
                if (
                    t.numel()
                    and not t._is_zerotensor()
                    and torch._debug_has_internal_overlap(t) != 1
                ):
                    t.copy_(t.to(self.dtype))
                rounded = True
        self.kernels += rounded and schema.name not in (
            "aten::detach",
            "aten::clone",
            "aten::alias",
        )
        return result


def slack(exact, single, stepped, kernels: int, dtype: torch.dtype, composed: bool) -> torch.Tensor:
    """Compute the formula above in float64, element by element."""

    def loss(other):
        if other is None or not other.numel():
            return 0.0
        difference = (other.double() - exact).abs()
        return (
            difference[difference.isfinite()].max().item() if difference.isfinite().any() else 0.0
        )

    result = 4 * loss(single) + 2.0**-20 * exact.abs().nan_to_num(0.0, 0.0)
    if composed:
        result = (
            result + 4 * loss(stepped) + 4 * gap(exact.abs(), dtype) + 4 * kernels * smallest(dtype)
        )
    return result


def mismatch(result, exact, single, stepped, allowed: torch.Tensor | float) -> str | None:
    """Return None where `result` is within the bound, or a line that names the place where it is
    not."""
    exact = exact.double()
    if not result.numel():
        return None
    unchecked = torch.zeros_like(exact, dtype=torch.bool)
    for other in (single, stepped):
        if other is not None:
            unchecked |= (exact.isfinite() != other.isfinite()) & (
                result.isfinite() == other.isfinite()
            )
    if torch_dtypes.is_format_dtype(result.dtype):
        target = exact.to(result.dtype)
        below, above = directions(result.dtype)
        low, high = (
            ordered_codes((exact - allowed).to(below)),
            ordered_codes((exact + allowed).to(above)),
        )
        codes = ordered_codes(result)
        inside = (low <= codes) & (codes <= high)
        values, target = result.detach().double(), target.double()
    else:
        values, target = result.detach().double(), exact
        inside = ((values - exact).abs() <= allowed + 2.0**-20 * exact.abs()) | (values == exact)
    nan = target.isnan()
    bad = ~unchecked & torch.where(nan | values.isnan(), nan != values.isnan(), ~inside)
    if not bad.any():
        return None
    worst = int(
        torch.where(
            bad, (values - exact).abs().nan_to_num(float("inf"), float("inf")), -1.0
        ).argmax()
    )
    got, want = values.flatten()[worst].item(), exact.flatten()[worst].item()
    bound = allowed.flatten()[worst].item() if isinstance(allowed, torch.Tensor) else allowed
    return (
        f"{int(bad.sum())} of {bad.numel()} values, expected {want:.9g} within {bound:.2g}, but "
        f"got {got:.9g}"
    )

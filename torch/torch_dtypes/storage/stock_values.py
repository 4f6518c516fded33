"""Values of a format tensor in a stock dtype that has all of them, and back, code for code.

Files for every reader hold these values.
"""

from __future__ import annotations

import torch

from .. import _C
from ..formats.caches import clearable_cache
from ..formats.code_types import bits_dtype, compute_type, values_of_codes
from ..policies.rounding import rounding_block

# Fraction bits, and True for infinities. The narrowest is first; of two as narrow, the one that
# more readers know.
_STOCK = {
    torch.float8_e4m3fn: (3, False),
    torch.float8_e5m2: (2, True),
    torch.float16: (10, True),
    torch.bfloat16: (7, True),
    torch.float32: (23, True),
    torch.float64: (52, True),
}


def _specials(fmt: _C.Format) -> str:
    """Name the codes that are not finite numbers: "ieee", "fn", "none", "fnuz" or "p3109".

    Posits and takums are "fnuz", since their NaR is also the only special code.
    """
    if fmt.is_tapered:
        return "fnuz"
    return "none" if fmt.kind in (_C.Kind.fixed, _C.Kind.table) else fmt.specials.name


def _holds(stock: torch.dtype, dtype: torch.dtype) -> bool:
    """Return whether the stock dtype has every value of the format.

    It depends on the magnitude, the power of two that divides all values, the significant bits and
    the infinities. (Every stock dtype here has a NaN.)
    """
    fmt, info, stock_info = _C.format_of(dtype), torch.finfo(dtype), torch.finfo(stock)
    fraction, infinity = _STOCK[stock]
    if fmt.kind == _C.Kind.table:
        values = values_of_codes(fmt)
        values = values[~values.isnan()]
        return (infinity or not values.isinf().any().item()) and torch.equal(
            values.to(stock).double(), values
        )
    reaches = max(info.max, -info.min) <= stock_info.max
    # The smallest subnormal number.
    fine = 2.0**fmt.lsb_exponent >= stock_info.smallest_normal * stock_info.eps
    return (
        reaches
        and fine
        and fmt.significand_bits <= fraction + 1
        and (infinity or _specials(fmt) not in ("ieee", "p3109"))
    )


@clearable_cache
def stock_dtype_of(dtype: torch.dtype) -> torch.dtype:
    """Return the narrowest stock dtype with every value of a format dtype, at most float64."""
    return next(stock for stock in _STOCK if _holds(stock, dtype))


# Casts keep every value, but two things are lost. A NaN stays a NaN only (for a table's NaNs, the
# one that casts give), and a saturating format takes infinities for overflow. So the codes of both
# are translated by their bits: a NaN's sign, and its payload at the fraction's upper end, where
# hardware conversions put it.


def _stock_nan(code: torch.Tensor, fmt: _C.Format, stock: torch.dtype) -> torch.Tensor:
    fraction, sign = _STOCK[stock][0], 8 * stock.itemsize - 1
    magnitude = torch.full_like(code, (1 << sign) - 1)
    if _specials(fmt) == "ieee":
        payload = (code & ((1 << fmt.man_bits) - 1)) << (fraction - fmt.man_bits)
        magnitude = magnitude >> fraction << fraction | payload
    return magnitude | ((code >> (fmt.bits - 1)) & 1) << sign


def _own_nan(bits: torch.Tensor, fmt: _C.Format, stock: torch.dtype) -> torch.Tensor:
    fraction, sign = _STOCK[stock][0], 8 * stock.itemsize - 1
    code = torch.full_like(bits, fmt.nan_code)
    if _specials(fmt) == "ieee":
        payload = (bits & ((1 << fraction) - 1)) >> (fraction - fmt.man_bits)
        code = torch.where(payload == 0, code, (fmt.max_code + 1) | payload)
    return code | ((bits >> sign) & 1) << (fmt.bits - 1)  # set in the only NaN of others


def _translate(
    source: torch.Tensor, target: torch.Tensor, special: torch.Tensor, translation
) -> None:
    """Write translation(bits of source) to the bits of target where special is True.

    All are contiguous.
    """
    places = special.flatten().nonzero().flatten()
    if places.numel():
        bits = source.view(bits_dtype(source.dtype)).view(-1)[places].long()
        written = target.view(bits_dtype(target.dtype)).view(-1)
        written[places] = translation(bits).to(written.dtype)


def exact_values(x: torch.Tensor) -> torch.Tensor:
    """Return the exact values, to compute with: in float32 if it has every one, else in float64."""
    return x.to(compute_type(x.dtype))


def values_in_numpy(x: torch.Tensor):
    """Return a new NumPy array of the exact values."""
    return exact_values(x).numpy()


def values_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return the values of a contiguous format tensor, a new tensor in stock_dtype_of its dtype."""
    tensor, fmt, stock = tensor.detach(), _C.format_of(tensor.dtype), stock_dtype_of(tensor.dtype)
    values = tensor.to(stock)
    # Other formats have at most one NaN.
    if tensor.device.type != "meta" and _specials(fmt) in ("ieee", "fn"):
        _translate(tensor, values, tensor.isnan(), lambda code: _stock_nan(code, fmt, stock))
    return values


def from_values(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return the format tensor whose values_of these are.

    Several codes may have one value: in a format without subnormals, fractions below the smallest
    number are 0. They become one code.

    Raises:
        ValueError: values of another stock dtype, or one that the format does not have.
    """
    fmt, stock = _C.format_of(dtype), stock_dtype_of(dtype)
    if not isinstance(values, torch.Tensor) or values.dtype is not stock:
        raise ValueError(
            f"expected the values of a tensor of {dtype} as {stock}, but got "
            f"{getattr(values, 'dtype', type(values))}"
        )
    values = values.contiguous()
    with rounding_block("nearest_even"):  # up_down would move exact values too
        result = values.to(dtype)
    if values.device.type == "meta":
        return result
    wide = values.float() if stock.itemsize == 1 else values  # PyTorch's float8 has few operators
    specials, sign = _specials(fmt), 8 * stock.itemsize - 1
    if specials in ("ieee", "p3109"):
        _translate(
            values,
            result,
            wide.isinf(),
            lambda bits: (fmt.max_code + 1) | ((bits >> sign) & 1) << (fmt.bits - 1),
        )
    if specials != "none":
        _translate(values, result, wide.isnan(), lambda bits: _own_nan(bits, fmt, stock))
    if fmt.symmetric:  # the code below the lowest value is a number too, but nothing rounds to it
        _translate(
            values,
            result,
            wide == -(2.0**fmt.int_bits),
            lambda bits: torch.full_like(bits, 1 << (fmt.bits - 1)),
        )
    back = result.to(wide.dtype)
    wrong = (back != wide) & ~(back.isnan() & wide.isnan())
    if wrong.any():
        raise ValueError(
            f"expected values of {dtype}, but got {wide[wrong][0].item()}, which it lacks; "
            "write the file again"
        )
    return result

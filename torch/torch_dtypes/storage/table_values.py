"""Values of a table's tensor in a stock dtype, and back, code for code.

Files for every reader hold these values. They come from a lookup, not from casts: a cast gives one
NaN of several, and no infinity where the table saturates. A table's second NaN has other bits of a
stock NaN, and so has a code beyond its last value, which is NaN too.
"""

from __future__ import annotations

import torch

from .. import _C
from ..formats.code_types import bits_dtype, values_of_codes
from .stock_values import _STOCK, _holds, stock_dtype_of

# The NaN of casts. Further NaNs of a table differ from it in the lowest bits, so that all are
# quiet.
_NAN = {
    torch.float8_e4m3fn: 0x7F,
    torch.float8_e5m2: 0x7F,
    torch.float16: 0x7E00,
    torch.bfloat16: 0x7FC0,
    torch.float32: 0x7FC00000,
    torch.float64: 0x7FF8000000000000,
}


def is_table(dtype: torch.dtype) -> bool:
    return _C.format_of(dtype).kind == _C.Kind.table


def _values(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the value of each code, and the codes that are NaN, the one of casts first."""
    fmt = _C.format_of(dtype)
    values = values_of_codes(fmt)
    nans = values.isnan().nonzero().flatten()
    own = nans == fmt.nan_code
    return values, torch.cat([nans[own], nans[~own]])


def _stock_of(dtype: torch.dtype, nans: int) -> torch.dtype:
    """Return the narrowest stock dtype that has every value, and enough quiet NaNs.

    The last NaN does not count: some casts write it for any.
    """
    rooms = {
        stock: 2**fraction - 1 if infinity else 2 for stock, (fraction, infinity) in _STOCK.items()
    }
    return next(stock for stock in _STOCK if nans <= rooms[stock] and _holds(stock, dtype))


def _bits_of(values: torch.Tensor, nans: torch.Tensor, stock: torch.dtype) -> torch.Tensor:
    """Return the bits of each code's value in a stock dtype, as integers of its width."""
    words = bits_dtype(stock)
    bits = values.to(stock).view(words).long()
    places = torch.arange(len(nans), device="cpu")
    bits[nans] = _NAN[stock] ^ (places >> 1) ^ (places & 1) << (8 * stock.itemsize - 1)
    return bits.to(words)


def values_of_table(tensor: torch.Tensor) -> torch.Tensor:
    """Return the values of a contiguous tensor of a table, as a new tensor."""
    values, nans = _values(tensor.dtype)
    stock = _stock_of(tensor.dtype, len(nans))
    if tensor.device.type == "meta":
        return torch.empty_like(tensor, dtype=stock)
    codes = tensor.detach().view(bits_dtype(tensor.dtype)).long() & (len(values) - 1)
    return _bits_of(values, nans, stock).to(tensor.device)[codes].view(stock)


def table_of_values(stored: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return the tensor of a table whose ``values_of_table`` these are.

    A NaN of other bits becomes the NaN of casts.

    Raises:
        ValueError: values of another stock dtype, or one that the table does not have.
    """
    values, nans = _values(dtype)
    stock, before = _stock_of(dtype, len(nans)), stock_dtype_of(dtype)
    if not isinstance(stored, torch.Tensor) or stored.dtype not in (stock, before):
        raise ValueError(
            f"expected the values of a tensor of {dtype} as {stock}, but got "
            f"{getattr(stored, 'dtype', type(stored))}"
        )
    if stored.device.type == "meta":
        return stored.to(dtype)
    if stored.dtype is not stock:  # a file of a version that knew one NaN
        nans = nans[:1]
    known = ~values.isnan()
    known[nans] = True
    codes = known.nonzero().flatten()
    bits, order = _bits_of(values, nans, stored.dtype)[codes].long().sort()
    codes, bits = codes[order].to(stored.device), bits.to(stored.device)
    stored_bits = stored.contiguous().view(bits_dtype(stored.dtype)).long()
    places = torch.searchsorted(bits, stored_bits).clamp(max=len(bits) - 1)
    result, missing, numbers = codes[places], bits[places] != stored_bits, stored.double()
    # NaNs of other bits, and the other zero.
    for others, same in (
        (nans, numbers.isnan()),
        ((values == 0).nonzero().flatten(), numbers == 0),
    ):
        if len(others):
            result, missing = (
                torch.where(missing & same, others[0].to(result.device), result),
                missing & ~same,
            )
    if missing.any():
        raise ValueError(
            f"expected values of {dtype}, but got {numbers[missing][0].item()}, which it lacks; "
            "write the file again"
        )
    return result.to(bits_dtype(dtype)).view(dtype)

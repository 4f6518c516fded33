"""accelerate (seen with 1.15): the size of an element, and weights on a disk.

It reads the size off the end of the dtype's name (0 for ``posit16es2``). It writes weights as
arrays of NumPy, which here hold codes, with the dtype's name in the index.
"""

from __future__ import annotations

import torch

from .. import _C
from ..formats.codes import codes, from_codes
from ..formats.dtypes import dtype as format_named
from ..formats.dtypes import is_format_dtype


def dtype_byte_size(stock, dtype):
    """Return the bytes of an element, from a format dtype itself."""
    return dtype.itemsize if is_format_dtype(dtype) else stock(dtype)


def offload_weight(stock, weight, weight_name, offload_folder, index=None):
    """Write the codes of a format tensor, and its dtype's name into the index."""
    if not _C.is_format_tensor(weight):
        return stock(weight, weight_name, offload_folder, index)
    index = stock(codes(weight.detach()), weight_name, offload_folder, index)
    if index is not None:
        index[weight_name]["dtype"] = str(weight.dtype).removeprefix("torch.")
    return index


def load_offloaded_weight(stock, weight_file, weight_info):
    """Read codes in the dtype that the index names."""
    name = weight_info["dtype"]
    dtype = getattr(torch, name, None) or format_named(name)
    if not is_format_dtype(dtype):
        return stock(weight_file, weight_info)
    integer = codes(torch.empty(0, dtype=dtype, device="cpu")).dtype
    return from_codes(
        stock(weight_file, {**weight_info, "dtype": str(integer).removeprefix("torch.")}), dtype
    )

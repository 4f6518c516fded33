"""accelerate (seen with 1.15): how many bytes an element takes, which it reads off the end of the
dtype's name (0 of ``posit16es2``), and weights that lie on a disk, which it writes as arrays of
NumPy: codes, with the dtype's name in the index."""

from __future__ import annotations

import torch

from .. import _C
from ..formats.codes import codes, from_codes
from ..formats.dtypes import dtype as format_named
from ..formats.dtypes import is_format_dtype


def dtype_byte_size(stock, dtype):
    """Bytes of an element: the format dtype knows."""
    return dtype.itemsize if is_format_dtype(dtype) else stock(dtype)


def offload_weight(stock, weight, weight_name, offload_folder, index=None):
    """Writes the codes of a format tensor, and its dtype's name into the index."""
    if not _C.is_format_tensor(weight):
        return stock(weight, weight_name, offload_folder, index)
    index = stock(codes(weight.detach()), weight_name, offload_folder, index)
    if index is not None:
        index[weight_name]["dtype"] = str(weight.dtype).removeprefix("torch.")
    return index


def load_offloaded_weight(stock, weight_file, weight_info):
    """Reads codes back in the dtype that the index names."""
    name = weight_info["dtype"]
    dtype = getattr(torch, name, None) or format_named(name)
    if not is_format_dtype(dtype):
        return stock(weight_file, weight_info)
    integer = codes(torch.empty(0, dtype=dtype, device="cpu")).dtype
    return from_codes(
        stock(weight_file, {**weight_info, "dtype": str(integer).removeprefix("torch.")}), dtype
    )

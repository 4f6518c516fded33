"""accelerate (seen with 1.15): how many bytes an element takes, which it reads off the end of the dtype's name (0 of ``posit16es2``), and
weights that lie on a disk, which it writes as arrays of NumPy: codes, with the dtype's name in the index."""

from __future__ import annotations

import torch

from .. import _C
from .._exchange import exchange_code
from ..formats import dtype as format_named
from ..formats import is_format_dtype
from ..interchange import codes, from_codes


def _dtype_byte_size(dtype):
    return _torch_dtypes_dtype_byte_size(dtype)  # noqa: F821


def dtype_byte_size(stock, dtype):
    return dtype.itemsize if is_format_dtype(dtype) else stock(dtype)


def install_sizes(module) -> None:
    exchange_code(module.dtype_byte_size, _dtype_byte_size, "_torch_dtypes_dtype_byte_size", dtype_byte_size)


def _offload_weight(weight, weight_name, offload_folder, index):
    return _torch_dtypes_offload_weight(weight, weight_name, offload_folder, index)  # noqa: F821


def offload_weight(stock, weight, weight_name, offload_folder, index):
    if not _C.is_format_tensor(weight):
        return stock(weight, weight_name, offload_folder, index)
    index = stock(codes(weight.detach()), weight_name, offload_folder, index)
    if index is not None:
        index[weight_name]["dtype"] = str(weight.dtype).removeprefix("torch.")
    return index


def _load_offloaded_weight(weight_file, weight_info):
    return _torch_dtypes_load_offloaded_weight(weight_file, weight_info)  # noqa: F821


def load_offloaded_weight(stock, weight_file, weight_info):
    name = weight_info["dtype"]
    dtype = getattr(torch, name, None) or format_named(name)
    if not is_format_dtype(dtype):
        return stock(weight_file, weight_info)
    integer = codes(torch.empty(0, dtype=dtype, device="cpu")).dtype
    return from_codes(stock(weight_file, {**weight_info, "dtype": str(integer).removeprefix("torch.")}), dtype)


def install_offloading(module) -> None:
    exchange_code(module.offload_weight, _offload_weight, "_torch_dtypes_offload_weight", offload_weight)
    exchange_code(module.load_offloaded_weight, _load_offloaded_weight, "_torch_dtypes_load_offloaded_weight", load_offloaded_weight)

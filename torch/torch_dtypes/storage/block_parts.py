"""The parts of a packed ``BlockTensor`` as stock tensors, under names and dtypes that others read.

NVIDIA's ModelOpt names the parts so: ``weight``, ``weight_scale`` and ``weight_scale_2``. The
dtypes are those that safetensors calls F4, F8_E4M3, F8_E5M2 and F8_E8M0.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from ..formats import naming
from ..formats.dtypes import format_of
from ..targets.base import COMPUTED
from ..targets.block_targets import BlockFormat
from ..targets.block_tensors import BlockTensor, rebuild_block_tensor
from ..targets.lookup import target_of_file

# The name of a part is the tensor's name and one of these.
SCALE, TENSOR_SCALE = "_scale", "_scale_2"
_ELEMENTS = {
    "e2m1finite": torch.float4_e2m1fn_x2,
    "e4m3fn_saturate": torch.float8_e4m3fn,
    "e5m2_saturate": torch.float8_e5m2,
}
_SCALES = {"e8m0": torch.float8_e8m0fnu, "e4m3fn_saturate": torch.float8_e4m3fn}


def _find_stock_dtype(fmt: BlockFormat) -> torch.dtype | None:
    """Return the stock dtype of the elements, whichever way they are rounded; None if there is
    none."""
    return _ELEMENTS.get(naming.name_of_format(naming.to_nearest(format_of(fmt.element))))


def split_block_tensor(t: BlockTensor) -> dict[str, torch.Tensor]:
    """Return the parts by the ends of their names. Codes without a stock dtype are bytes or
    integers."""
    data, bits = t.data, (t.shape[-1] if t.shape else 1) * t.format.bits
    # Two numbers of 4 bits share a byte, so a row of an odd length ends within one. Such a tensor
    # is bytes without rows.
    if bits % 8 == 0:
        data = data.view(_find_stock_dtype(t.format) or torch.uint8)
        data = data.view(*t.shape[:-1], *([bits // 8] if t.shape else []))
    own = _SCALES.get(t.format.scale)
    parts = {"": data, SCALE: t.scale_codes if own is None else t.scale_codes.view(own)}
    if t.tensor_scale is not None:
        parts[TENSOR_SCALE] = t.tensor_scale
    return parts


def describe_block_tensor(t: BlockTensor) -> dict[str, object]:
    """Return plain data, from which ``take_block_tensor`` rebuilds the tensor of its parts."""
    return {
        "format": t.format.name,
        "shape": list(t.shape),
        "dtype": str(t.dtype)[6:],
        # quantize(x, scale=...) gives it to formats without one.
        "tensor_scale": t.tensor_scale is not None,
    }


def take_block_tensor(
    tensors: dict[str, torch.Tensor], name: str, described: Mapping[str, object]
) -> BlockTensor:
    """Take the parts out of ``tensors`` and rebuild the tensor.

    Args:
        described: the format, and where they are known the shape, the dtype, and whether the
            tensor has a scale. Without a shape, rows have as many numbers as their bytes hold.

    Raises:
        ValueError: no block format, a missing part, or parts that do not fit the format.
    """
    fmt = target_of_file(described["format"])
    if not isinstance(fmt, BlockFormat):
        raise ValueError(
            f"expected a block format, such as 'mxfp4', for {name!r}, but got {fmt.name!r}"
        )
    has_above = described.get("tensor_scale", fmt.tensor_scale)
    ends = ("", SCALE, TENSOR_SCALE) if has_above else ("", SCALE)
    if missing := [name + end for end in ends if name + end not in tensors]:
        raise ValueError(f"expected {missing[0]!r}, a part of {name!r} in {fmt.name}, but got none")
    data, codes = tensors[name], tensors[name + SCALE]
    for part, tensor, stock in (
        (name, data, _find_stock_dtype(fmt)),
        (name + SCALE, codes, _SCALES.get(fmt.scale)),
    ):
        if tensor.is_floating_point() and tensor.dtype != stock:
            raise ValueError(
                f"expected {part!r} as {stock or 'integers'} for {fmt.name}, but got {tensor.dtype}"
            )
    shape = described.get("shape")
    if shape is None:
        shape = (*data.shape[:-1], data.shape[-1] * 8 // fmt.bits) if data.dim() else ()
    dtype = getattr(torch, str(described.get("dtype", "float32")), None)
    above = tensors[name + TENSOR_SCALE] if has_above else None
    made = rebuild_block_tensor(
        fmt.name,
        shape,
        dtype,
        data.reshape(-1).view(torch.uint8),
        codes.view(torch.uint8) if codes.is_floating_point() else codes,
        None if above is None else above.reshape(()).to(COMPUTED.get(dtype)),
    )
    for end in ends:
        del tensors[name + end]
    return made

"""Pack codes of any number of bits into bytes without gaps. Code i has bits i*n to i*n + n - 1, the
lowest bit of a byte first."""

from __future__ import annotations

import torch

# Codes at a time: each single bit takes a byte in between.
_CHUNK = 1 << 20


def packed_size(count: int, bits: int) -> int:
    """Return the bytes that ``count`` codes take."""
    return -(-count * bits // 8)


def pack(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """Pack integers from 0 to 2^bits - 1 (in any integer dtype) into bytes, in row-major order."""
    flat = codes.reshape(-1)
    if bits == 8 * codes.dtype.itemsize:
        return flat.contiguous().view(torch.uint8)
    if bits == 8:
        return flat.to(torch.uint8)
    if bits == 4:
        pairs = torch.nn.functional.pad(flat, (0, flat.numel() % 2)).to(torch.uint8).view(-1, 2)
        return pairs[:, 0] | pairs[:, 1] << 4
    shifts, weights = (
        torch.arange(bits, dtype=flat.dtype, device=flat.device),
        1 << torch.arange(8, device=flat.device),
    )
    parts = []
    # A multiple of eight codes, so that no two chunks share a byte.
    for chunk in flat.split(_CHUNK):
        single = (chunk.unsqueeze(1) >> shifts & 1).to(torch.uint8).view(-1)
        single = torch.nn.functional.pad(single, (0, -single.numel() % 8)).view(-1, 8)
        parts.append((single * weights).sum(1).to(torch.uint8))
    return torch.cat(parts) if parts else torch.empty(0, dtype=torch.uint8, device=flat.device)


def unpack(data: torch.Tensor, bits: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    """Undo ``pack``: return ``count`` codes as integers of ``dtype``."""
    if bits == 8 * dtype.itemsize:
        return data.view(dtype).clone()
    if bits == 8:
        return data.to(dtype)
    if bits == 4:
        return torch.stack((data & 15, data >> 4), 1).view(-1)[:count].to(dtype)
    shifts, weights = (
        torch.arange(8, dtype=torch.uint8, device=data.device),
        1 << torch.arange(bits, device=data.device),
    )
    parts = []
    for chunk in data.split(_CHUNK // 8 * bits):
        single = (chunk.unsqueeze(1) >> shifts & 1).view(-1)
        parts.append(
            (single[: single.numel() // bits * bits].view(-1, bits) * weights).sum(1).to(dtype)
        )
    return torch.cat(parts)[:count] if parts else torch.empty(0, dtype=dtype, device=data.device)

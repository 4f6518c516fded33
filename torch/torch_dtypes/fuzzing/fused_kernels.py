"""Turn off kernels that do the work of many operators at once."""

from __future__ import annotations

import contextlib

import torch
from torch import nn


def disable_fused_kernels(stack: contextlib.ExitStack, model: nn.Module | None) -> None:
    """Turn off kernels that do the work of many operators at once and that PyTorch can replace by
    those operators."""
    stack.callback(torch.backends.cuda.enable_flash_sdp, torch.backends.cuda.flash_sdp_enabled())
    # The flag holds for the CPU's kernel too; torch.nn.attention.sdpa_kernel is slow to import.
    torch.backends.cuda.enable_flash_sdp(False)
    stack.callback(
        torch.backends.cuda.enable_mem_efficient_sdp,
        torch.backends.cuda.mem_efficient_sdp_enabled(),
    )
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    stack.callback(torch.backends.cuda.enable_cudnn_sdp, torch.backends.cuda.cudnn_sdp_enabled())
    torch.backends.cuda.enable_cudnn_sdp(False)
    stack.callback(
        torch.backends.mha.set_fastpath_enabled, torch.backends.mha.get_fastpath_enabled()
    )
    # The fast path runs a whole nn.TransformerEncoderLayer as one operator.
    torch.backends.mha.set_fastpath_enabled(False)
    if model is None or any(isinstance(m, nn.LSTM) for m in model.modules()):
        before = torch.backends.mkldnn.enabled  # its LSTM has no float64 form either
        # Mkldnn.flags() would also set its TF32, with a warning.
        torch._C._set_mkldnn_enabled(False)
        stack.callback(torch._C._set_mkldnn_enabled, before)
    if model is None or any(isinstance(m, nn.RNNBase) for m in model.modules()):
        stack.callback(torch._C._set_cudnn_enabled, torch.backends.cudnn.enabled)
        torch._C._set_cudnn_enabled(False)  # its recurrent layers are one operator each

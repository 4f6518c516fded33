"""safetensors.torch (0.4 to 0.8): its functions write tensors of ours as values with the dtypes' names in the metadata.

With them transformers' save_pretrained, the checkpoints of its Trainer, accelerate and PEFT do, which call them. (load_model of 0.6 takes
files in the model's own dtypes only and says so of ours; before and after, it brings back what save_model wrote.)
"""

from __future__ import annotations

import torch

from .. import _C
from .._exchange import exchange_code
from ..safetensors_files import values_for


def _save(tensors, metadata):
    return _torch_dtypes_save(tensors, metadata)  # noqa: F821


def _save_file(tensors, filename, metadata):
    return _torch_dtypes_save_file(tensors, filename, metadata)  # noqa: F821


def save(stock, tensors, metadata):
    return stock(*values_for(tensors, metadata))


def save_file(stock, tensors, filename, metadata):
    values, described = values_for(tensors, metadata)
    return stock(values, filename, described)


class _Sizes(dict):
    """safetensors' sizes of elements by dtype, which it asks for tensors that share memory (save_model, load_model): ours have one too."""

    def __missing__(self, dtype):
        if isinstance(dtype, torch.dtype) and _C.format_of(dtype) is not None:
            return dtype.itemsize
        raise KeyError(dtype)


def install(module) -> None:
    exchange_code(module.save, _save, "_torch_dtypes_save", save)
    exchange_code(module.save_file, _save_file, "_torch_dtypes_save_file", save_file)
    module._SIZE = _Sizes(module._SIZE)

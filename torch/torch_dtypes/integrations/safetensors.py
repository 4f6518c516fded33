"""safetensors.torch (0.4 to 0.8): its functions write tensors of ours as values with the dtypes'
names in the metadata.

With them transformers' save_pretrained, the checkpoints of its Trainer, accelerate and PEFT do,
which call them. (load_model of 0.6 takes files in the model's own dtypes only and says so of ours;
before and after, it brings back what save_model wrote.)
"""

from __future__ import annotations

import torch

from .. import _C
from ..storage.safetensors import values_for


def save(stock, tensors, metadata=None):
    """Writes format tensors as values, and their dtypes' names into the metadata."""
    return stock(*values_for(tensors, metadata))


def save_file(stock, tensors, filename, metadata=None):
    """The same into a file."""
    values, described = values_for(tensors, metadata)
    return stock(values, filename, described)


class Sizes(dict):
    """safetensors' sizes of elements by dtype, which it asks for tensors that share memory
    (save_model, load_model): ours have one too."""

    def __missing__(self, dtype):
        if isinstance(dtype, torch.dtype) and _C.format_of(dtype) is not None:
            return dtype.itemsize
        raise KeyError(dtype)

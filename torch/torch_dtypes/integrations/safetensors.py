"""safetensors.torch (0.4 to 0.8): its functions write format tensors as values, and block tensors
as their parts.

The names of the formats are in the metadata. transformers' save_pretrained, the checkpoints of its
Trainer, accelerate and PEFT call these functions. (load_model of 0.6 takes files in the model's own
dtypes only, and refuses these. Other releases restore what save_model wrote.)
"""

from __future__ import annotations

import torch

from .. import _C
from ..storage.safetensors import replace_by_values


def save(stock, tensors, metadata=None):
    """Write format tensors as values, and their dtypes' names into the metadata."""
    return stock(*replace_by_values(tensors, metadata))


def save_file(stock, tensors, filename, metadata=None):
    """Write a file with format tensors as values, and their dtypes' names in the metadata."""
    values, header = replace_by_values(tensors, metadata)
    return stock(values, filename, header)


class Sizes(dict):
    """safetensors' sizes of elements by dtype, with those of format dtypes.

    It reads them for tensors that share memory (save_model, load_model).
    """

    def __missing__(self, dtype):
        if isinstance(dtype, torch.dtype) and _C.format_of(dtype) is not None:
            return dtype.itemsize
        raise KeyError(dtype)

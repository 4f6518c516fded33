"""Entry point `torch.backends`: PyTorch calls `load` at the end of `import torch`.

The package stays dormant until something asks for it: a dtype by name (`torch.posit16es2`),
`import torch_dtypes`, or a file that holds format tensors. Before that, two things differ from
stock PyTorch: the function `torch.__getattr__` and the names that `torch.load(weights_only=True)`
allows. This module lies beside the package, so that it runs none of its code.
"""

from __future__ import annotations

import importlib
import re

# Names of built-in dtypes; test_dormant.py compares it with the list of formats.
_DTYPES = re.compile(r"(posit\d+es\d|q\d\d|tf32|e\d+m\d+)")

# Functions named in files of torch.save, by their modules. Files of release 0.1 name the second
# module.
_IN_FILES = {
    ("torch_dtypes.storage.pickling", "torch_dtypes._serialization"): (
        "rebuild_tensor",
        "rebuild_dtype",
        "rebuild_format",
    ),
    ("torch_dtypes.targets.block_tensors", "torch_dtypes.quantization.block_tensors"): (
        "rebuild_block_tensor",
    ),
}


class _Rebuild:
    """A function that a file names, without its module, which is imported at the first call."""

    def __init__(self, module: str, name: str):
        self.module, self.name = module, name

    def __call__(self, *args):
        return getattr(importlib.import_module(self.module), self.name)(*args)


def load() -> None:
    """Install the hooks that wake the package. PyTorch calls it once a process."""
    import torch

    stock = torch.__getattr__

    def find_dtype(name: str):
        """Find a name as stock PyTorch does, or a built-in dtype, which loads the package."""
        if _DTYPES.fullmatch(name):
            try:
                importlib.import_module("torch_dtypes")
            except Exception as error:  # hasattr(torch, name) is False then
                raise AttributeError(
                    f"torch.{name}: expected torch_dtypes to load, but got "
                    f"{type(error).__name__}: {error}"
                ) from error
            if name in vars(torch):
                return vars(torch)[name]
        return stock(name)

    # Python's warnings skip frames of such a file, so that a warning of PyTorch names its caller's
    # line (stacklevel=2).
    find_dtype.__code__ = find_dtype.__code__.replace(
        co_filename=f"{__file__} (importlib._bootstrap)"
    )
    torch.__getattr__ = find_dtype
    for modules, names in _IN_FILES.items():
        for name in names:
            function = _Rebuild(modules[0], name)
            torch.serialization.add_safe_globals([(function, f"{m}.{name}") for m in modules])

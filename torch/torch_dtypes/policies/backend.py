"""The back end that computes: this package's kernels, or stock tensor operations."""

from __future__ import annotations

import torch

from .. import _C

__all__ = ["backend", "set_backend"]


def backend(tensor: torch.Tensor) -> str:
    """Return the back end that rounds ``tensor`` and computes with it, ``"kernels"`` or
    ``"stock"``.

    ``"kernels"`` are this package's own, for the CPU and, in a build with CUDA kernels, for CUDA
    devices. ``"stock"`` are PyTorch's tensor operations, which run on a device of any kind. Both
    give the same bits. Where stock operations have no way, they raise ``NotImplementedError``.

    Args:
        tensor: of any dtype. Its device decides, unless ``set_backend`` was called.

    Raises:
        TypeError: not a tensor.

    Example::

        >>> torch_dtypes.backend(torch.ones(3))
        'kernels'
    """
    return _C.backend(tensor)


def set_backend(name: str | None) -> None:
    """Set one back end for every device and thread of the process, to test or to compare them.

    Args:
        name: ``"stock"`` or ``"kernels"``, or None to let each device have its own again.

    Raises:
        ValueError: another name.

    Example::

        >>> torch_dtypes.set_backend("stock")
        >>> torch_dtypes.chop(torch.tensor([3.3]), "q43")
        tensor([3.2500])
        >>> torch_dtypes.set_backend(None)
    """
    if name not in ("stock", "kernels", None):
        raise ValueError(f'expected "stock", "kernels" or None as the back end, but got {name!r}')
    _C.set_backend(None if name is None else name == "stock")

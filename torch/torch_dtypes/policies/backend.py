"""The code that computes: this package's kernels, or stock tensor operations."""

from __future__ import annotations

import torch

from .. import _C

__all__ = ["backend", "set_backend"]


def backend(tensor: torch.Tensor) -> str:
    """Returns ``"kernels"`` or ``"stock"``: what rounds ``tensor`` and computes with it.

    ``"kernels"`` are this package's own, for the CPU and, in a build with CUDA kernels, for CUDA
    devices. ``"stock"`` are PyTorch's tensor operations, which run on a device of any kind. Both
    give the same bits; what stock operations have no way to do raises ``NotImplementedError``.

    Args:
        tensor: of any dtype. Its device decides, unless ``set_backend`` has.

    Raises:
        TypeError: not a tensor.

    Example::

        >>> torch_dtypes.backend(torch.ones(3))
        'kernels'
    """
    return _C.backend(tensor)


def set_backend(name: str | None) -> None:
    """Sets one back end for every device and thread of the process, to test or to compare them.

    Args:
        name: ``"stock"`` or ``"kernels"``; None: each device has its own again, as ``backend``
            says.

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

"""The arrays that this door takes: torch tensors, NumPy and JAX arrays, and what NumPy makes arrays
of."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import numpy as np
import torch

from ...formats.arguments import outline
from .set_backend import BACKENDS, get_backend


def is_jax(x: object) -> bool:
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(x, jax.Array)


def take(x: Any) -> Any:
    """Return x as an array of the chosen backend, of floating-point numbers in torch and JAX.

    Raises:
        TypeError: x is no tensor under ``backend("torch")``, or no array of numbers.
        ValueError: the environment names another backend.
    """
    chosen = get_backend()
    if isinstance(x, torch.Tensor) and chosen in ("auto", "torch"):
        return x if x.is_floating_point() or x.is_complex() else x.to(torch.get_default_dtype())
    if chosen == "torch":
        raise TypeError(
            f"expected a torch tensor under backend('torch'), but got {outline(x)}; convert it by "
            "torch.as_tensor"
        )
    if chosen not in BACKENDS:
        raise ValueError(f"expected a backend of {', '.join(BACKENDS)}, but got {chosen!r}")
    if chosen == "jax" or (chosen == "auto" and is_jax(x)):
        import jax.numpy as jnp

        x = jnp.asarray(x.numpy(force=True) if isinstance(x, torch.Tensor) else x)
        return x if jnp.issubdtype(x.dtype, jnp.inexact) else x.astype(jnp.float32)
    return np.asarray(x.numpy(force=True) if isinstance(x, torch.Tensor) else x)


def library(*arrays: object) -> ModuleType:
    """Return the module of the functions on these arrays."""
    if any(isinstance(x, torch.Tensor) for x in arrays):
        return torch
    if get_backend() == "jax" or any(map(is_jax, arrays)):
        import jax.numpy

        return jax.numpy
    return np

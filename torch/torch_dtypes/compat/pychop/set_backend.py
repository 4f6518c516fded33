"""Pychop's choice of the library whose arrays are rounded."""

from __future__ import annotations

import importlib
import os

__all__ = ["backend", "get_backend"]

# Pychop keeps the choice in the environment, so that a script may set it there.
_VARIABLE = "chop_backend"
BACKENDS = ("numpy", "torch", "jax", "auto")


def backend(lib: str = "auto", verbose: int = 0) -> None:
    """Choose the library of arrays: ``"numpy"``, ``"torch"`` or ``"jax"``, to whose arrays
    arguments are converted (of torch, only tensors are taken); with ``"auto"`` an array says it.

    Raises:
        ValueError: another name.
        ImportError: JAX is not installed. Pychop would take NumPy in its place.
    """
    if lib not in BACKENDS:
        raise ValueError(
            f"expected a backend of {', '.join(map(repr, BACKENDS))}, but got {lib!r}; this door "
            "has no TensorFlow"
        )
    if lib == "jax":
        try:
            importlib.import_module("jax")
        except ImportError as error:
            raise ImportError(
                "expected JAX for backend('jax'), but it is not installed; pip install jax"
            ) from error
    os.environ[_VARIABLE] = lib
    if verbose:
        print(f"backend: {lib}")


def get_backend() -> str:
    """Return the chosen library of arrays."""
    return os.environ.get(_VARIABLE, "auto")

"""Pychop's optimizers, which raise one error."""

from . import layers

__all__ = [name for name in layers.REFUSED if name.startswith(("Quantized", "IQuantized"))]

for _name in __all__:
    globals()[_name] = getattr(layers, _name)

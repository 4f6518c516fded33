"""Pychop's conversions of models, which raise one error."""

from . import layers

__all__ = list(layers.CONVERSIONS)

for _name in __all__:
    globals()[_name] = getattr(layers, _name)

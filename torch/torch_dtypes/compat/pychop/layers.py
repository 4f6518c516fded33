"""Pychop's choppers with a straight-through gradient, and names of its quantised layers, optimizers
and conversions of models, which raise one error."""

from __future__ import annotations

from .chop import Chop
from .fixed_point import Chopf
from .integer import Chopi

_LAYERS = [
    f"{name}{dims}d"
    for name in ("Conv", "ConvTranspose", "MaxPool", "AvgPool", "AdaptiveAvgPool", "BatchNorm")
    for dims in (1, 2, 3)
]
_LAYERS += [f"InstanceNorm{dims}d" for dims in (1, 2, 3)]
_LAYERS += ["Linear", "RNN", "LSTM", "GRU", "AvgPool", "LayerNorm", "GroupNorm", "Embedding"]
_LAYERS += ["MultiheadAttention", "Attention", "Dropout", "ReLU", "Sigmoid", "Tanh", "LeakyReLU"]
_LAYERS += ["Softmax", "GELU", "ELU", "PReLU", "SiLU"]
_OPTIMIZERS = ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta"]
CONVERSIONS = [f"{kind}post_quantization" for kind in ("", "static_", "dynamic_", "mixed_")]
REFUSED = [f"{i}Quantized{name}" for i in ("", "I") for name in _LAYERS + _OPTIMIZERS]
REFUSED += CONVERSIONS

__all__ = ["ChopSTE", "ChopfSTE", "ChopiSTE", "LightChopSTE", *REFUSED]


class ChopSTE(Chop):
    """``Chop``: its gradient passes straight through by itself."""


class ChopfSTE(Chopf):
    """``Chopf``: its gradient passes straight through by itself."""


class ChopiSTE(Chopi):
    """``Chopi``: its gradient passes straight through by itself."""


LightChopSTE = ChopSTE  # its name in older releases


class _Refused:
    """Stands for a name of Pychop's that this door lacks, and raises when it is called."""

    def __init__(self, *args, **kwargs) -> None:
        raise NotImplementedError(
            "expected PyTorch's own layers and optimizers with this door, but got Pychop's "
            f"{type(self).__name__}; use torch_dtypes.quantize_(model, {{torch.nn.Linear: "
            "dict(weight='e5m10', activation='e5m10')}), and torch_dtypes.optim.LowPrecision for "
            "an optimizer with narrow states"
        )


for _name in REFUSED:
    globals()[_name] = type(_name, (_Refused,), {"__module__": __name__})

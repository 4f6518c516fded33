"""QPyTorch's conversion of models: a quantizer behind each layer of some kinds."""

from __future__ import annotations

import copy
from collections.abc import Collection

import torch
from torch import nn

from .number import Number, expect
from .quant import Quantizer

__all__ = ["lower", "sequential_lower"]

# The layers that QPyTorch knows, by the names of kinds. Recurrent layers are of none.
_NAMES = {
    "conv": "Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d Unfold Fold",
    "linear": "Linear Bilinear",
    "pool": "MaxPool1d MaxPool2d MaxPool3d MaxUnpool1d MaxUnpool2d MaxUnpool3d AvgPool1d AvgPool2d "
    "AvgPool3d FractionalMaxPool2d LPPool1d LPPool2d AdaptiveMaxPool1d AdaptiveMaxPool2d "
    "AdaptiveMaxPool3d AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d",
    "pad": "ReflectionPad1d ReflectionPad2d ReplicationPad1d ReplicationPad2d ZeroPad2d "
    "ConstantPad1d ConstantPad2d ConstantPad3d",
    "activation": "ELU Hardshrink Hardtanh LeakyReLU LogSigmoid PReLU ReLU ReLU6 RReLU SELU "
    "Sigmoid Softplus Softshrink Softsign Tanh Tanhshrink Threshold Softmin Softmax Softmax2d "
    "LogSoftmax",
    "normalization": "BatchNorm1d BatchNorm2d BatchNorm3d GroupNorm InstanceNorm1d InstanceNorm2d "
    "InstanceNorm3d LayerNorm LocalResponseNorm",
    "dropout": "Dropout Dropout2d Dropout3d AlphaDropout",
    "loss": "L1Loss MSELoss CrossEntropyLoss NLLLoss PoissonNLLLoss KLDivLoss BCELoss "
    "BCEWithLogitsLoss MarginRankingLoss HingeEmbeddingLoss MultiLabelMarginLoss SmoothL1Loss "
    "SoftMarginLoss MultiLabelSoftMarginLoss MultiMarginLoss TripletMarginLoss",
}


def _find_types(kinds: Collection[str]) -> frozenset[type]:
    for kind in kinds:
        expect(kind in _NAMES, f"layer_types of {', '.join(_NAMES)}, but got {kind!r}")
    return frozenset(getattr(nn, name) for kind in kinds for name in _NAMES[kind].split())


class _RoundOutput:
    """A forward hook. Unlike a replaced ``forward`` it is copied and pickled with its layer."""

    def __init__(self, quantize: Quantizer) -> None:
        self.quantize = quantize

    def __call__(self, module: nn.Module, inputs: tuple, output: torch.Tensor) -> torch.Tensor:
        return self.quantize(output)


def lower(
    model: nn.Module,
    layer_types: Collection[str] = (),
    forward_number: Number | None = None,
    backward_number: Number | None = None,
    forward_rounding: str = "stochastic",
    backward_rounding: str = "stochastic",
) -> None:
    """Let each layer of the given kinds round what it returns, in place.

    Raises:
        AssertionError: an unknown kind, number or rounding.
    """
    quantize = Quantizer(forward_number, backward_number, forward_rounding, backward_rounding)
    types = _find_types(layer_types)
    for module in model.modules():
        if type(module) in types:
            module.register_forward_hook(_RoundOutput(quantize))


def sequential_lower(
    model: nn.Module,
    layer_types: Collection[str] = (),
    forward_number: Number | None = None,
    backward_number: Number | None = None,
    forward_rounding: str = "stochastic",
    backward_rounding: str = "stochastic",
) -> nn.Module:
    """Return a copy of a model in which ``nn.Sequential(layer, quantizer)`` stands for each layer
    of the given kinds.

    Raises:
        AssertionError: an unknown kind, number or rounding.
    """
    quantize = Quantizer(forward_number, backward_number, forward_rounding, backward_rounding)
    types = _find_types(layer_types)

    def convert(module: nn.Module) -> nn.Module:
        if not module._modules:
            return nn.Sequential(module, quantize) if type(module) in types else module
        for name, child in module._modules.items():
            if child is not None:
                module._modules[name] = convert(child)
        return module

    return convert(copy.deepcopy(model))

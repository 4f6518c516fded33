"""transformers' own switch: ``from_pretrained(folder, quantization_config=...)`` with the rules of
``quantize_``, by transformers' public registration of quantisers."""

from __future__ import annotations

import copy
import os
import re
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from types import FunctionType
from typing import Any

import torch
from torch import nn

from .. import _C
from ..formats.arguments import outline
from ..quantization.convert import dequantize_, quantize_
from ..quantization.layers import is_quantized, state_of
from ..quantization.rounders import load_scales
from ..quantization.rules import read_rules
from ..targets.lookup import Target, target
from .transformers import split_experts

try:
    from transformers.quantizers.auto import register_quantization_config, register_quantizer
    from transformers.quantizers.base import HfQuantizer
    from transformers.utils.quantization_config import QuantizationConfigMixin
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "TransformersConfig needs transformers, which is not installed: pip install transformers"
    ) from error

METHOD = "torch_dtypes"


@register_quantization_config(METHOD)
class TransformersConfig(QuantizationConfigMixin):
    """Rules of ``quantize_`` as a quantisation config of transformers::

        rules = {"nn.Linear": dict(weight="mxfp4", activation="mxfp8"), "lm_head": None}
        config = torch_dtypes.integrations.TransformersConfig(rules)
        model = AutoModelForCausalLM.from_pretrained(folder, quantization_config=config)

    ``quantize_`` runs when the weights are loaded. They stay as they are, in the dtype of
    ``from_pretrained``, and layers round them while they run. ``save_pretrained`` writes them
    unrounded, with rules and scales in ``config.json``. ``from_pretrained`` of that folder brings
    the same model back, bit for bit. The model trains, also with adapters of PEFT.
    ``model.dequantize()`` takes the rules away. Experts run one by one
    (``experts_implementation="eager"``), where rules reach their products.

    Args:
        rules: as for ``quantize_``: a dict, the path of a YAML file, which is read here, or the
            name of a recipe. A file has to hold its keys, so they are names, regular expressions or
            types of ``torch.nn``.
        calibrate: batches for scales from data, as for ``quantize_``. They are not saved.
        scales: the scales of a saved model, as ``config.json`` has them.

    Raises:
        TypeError: a key or a value that a file cannot hold.
        ModuleNotFoundError: without transformers.
    """

    def __init__(
        self,
        rules: Mapping[Any, Any] | str | os.PathLike,
        calibrate: Iterable | None = None,
        *,
        scales: Mapping[str, Any] | None = None,
        quant_method: str = METHOD,
    ) -> None:
        if quant_method != METHOD:
            raise ValueError(f"expected quant_method={METHOD!r}, but got {quant_method!r}")
        self.quant_method = quant_method
        if not isinstance(rules, Mapping) and os.fspath(rules).endswith((".yaml", ".yml")):
            rules = read_rules(rules)
        self.rules = (
            {_plain_key(key): _plain(value, key) for key, value in rules.items()}
            if isinstance(rules, Mapping)
            else os.fspath(rules)
        )
        self.scales = scales
        self._calibrate = calibrate

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for ``config.json``."""
        kept = {"quant_method": METHOD, "rules": copy.deepcopy(self.rules)}
        return {**kept, "scales": self.scales} if self.scales else kept

    def apply_(self, model: nn.Module) -> nn.Module:
        """Run ``quantize_`` on a model with these rules and scales, in place. Return the model."""
        scales = None if self.scales is None else _state_dict_of(self.scales)
        quantize_(model, self.rules, self._calibrate if scales is None else scales)
        if scales is not None:  # histories too, which quantize_ does not need
            for name, module in model.named_modules():
                if is_quantized(module):
                    load_scales(state_of(module).all_rounders(), scales._metadata.get(name, {}))
        return model

    def __deepcopy__(self, memo: dict) -> TransformersConfig:
        return TransformersConfig(self.rules, self._calibrate, scales=copy.deepcopy(self.scales))


@register_quantizer(METHOD)
class Quantizer(HfQuantizer):
    """Runs ``quantize_`` on the models that transformers loads."""

    requires_calibration = False
    quantization_config: TransformersConfig

    def _process_model_after_weight_loading(self, model, **_):
        split_experts(model)
        return self.quantization_config.apply_(model)

    def get_state_dict_and_metadata(self, model):
        """Put the present scales into the config, which is saved next."""
        metadata = model.state_dict()._metadata
        model.config.quantization_config.scales = {
            name: {
                role: {key: _plain_tensor(value) for key, value in kept.items()}
                for role, kept in of["scales"].items()
            }
            for name, of in metadata.items()
            if "scales" in of
        }
        return super().get_state_dict_and_metadata(model)

    def _dequantize(self, model, dtype=None):
        return dequantize_(model)

    def is_serializable(self) -> bool:
        return True

    @property
    def is_trainable(self) -> bool:
        return True

    @property
    def is_qat_trainable(self) -> bool:
        return True

    @property
    def is_compileable(self) -> bool:
        return True


def _plain_key(key: object) -> str:
    if isinstance(key, re.Pattern):
        return key.pattern
    if isinstance(key, type) and getattr(nn, key.__name__, None) is key:
        return f"nn.{key.__name__}"
    if isinstance(key, str):
        return key
    what = f"the predicate {key.__name__}" if isinstance(key, FunctionType) else outline(key)
    raise TypeError(
        "expected a module's name, a regular expression or a type of torch.nn as a rule's key, "
        f"which config.json can hold, but got {what}; give a regular expression over names, as in "
        "'.*self_attn'"
    )


def _plain(value: object, key: object) -> Any:
    """Return a rule's value as plain data."""
    if isinstance(value, Mapping):
        return {name: _plain(one, key) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one, key) for one in value]
    if isinstance(value, (torch.dtype, _C.Format, Target)):
        a_target = target(value)
        if target(a_target.name) == a_target:
            return a_target.name
    elif value is None or isinstance(value, (str, bool, int, float)):
        return value
    raise TypeError(
        f"expected formats, names and numbers in the rule of {key!r}, which config.json can hold, "
        f"but got {outline(value)}; give a format by a name that defines it"
    )


def _plain_tensor(value: object) -> Any:
    if isinstance(value, torch.Tensor):
        return {"dtype": str(value.dtype).removeprefix("torch."), "values": value.tolist()}
    return value


def _state_dict_of(scales: Mapping[str, Any]) -> OrderedDict:
    """Return a state dict that has these scales alone."""
    state = OrderedDict()
    state._metadata = {
        name: {
            "scales": {
                role: {
                    key: torch.tensor(value["values"], dtype=getattr(torch, value["dtype"]))
                    if isinstance(value, Mapping)
                    else value
                    for key, value in kept.items()
                }
                for role, kept in of.items()
            }
        }
        for name, of in scales.items()
    }
    return state

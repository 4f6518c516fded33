"""Checks of quantize_ before it changes a model, and its warning."""

from __future__ import annotations

import warnings

import torch
from torch import nn

from .. import _C
from ..formats.arguments import with_article
from ..targets.block_targets import BlockFormat
from .attention import may_attend
from .key_value_cache import takes_cache
from .layer_state import LayerState, place_of
from .parameters import has_parametrisation, has_weights, masters_of, parameter_names
from .places import ATTENTION, CACHE, PRODUCTS, LayerRule, Place
from .products import has_products, is_product, makes_products
from .rules import Choice, Choices
from .scale_rules import stores_inputs_first
from .summary import reached_parameters, unreached_modules

_WITHOUT_FLOATING_INPUT = (nn.Embedding, nn.EmbeddingBag)


def warn_of_unreached(model: nn.Module, chosen: Choices) -> None:
    """Warn of a module without a rule that holds many parameters.

    A rule of types does not reach weights that a user's module multiplies by functions, as the
    experts of a mixture.
    """
    named = {model.get_submodule(name) for name in chosen} | chosen.excluded
    reached, total = reached_parameters(model)
    for name, module, count in unreached_modules(model):
        if (
            count > total / 10
            and module not in named
            and not type(module).__module__.startswith("torch.nn.")
        ):
            warnings.warn(
                f"expected rules that reach most parameters, but got {reached / total:.1%} of "
                f"them, while {name or 'the model'!r}, {with_article(type(module).__name__)}, has "
                f"{count / total:.1%} and no rule; name it in a rule, or leave it as it is by "
                f"{{{name!r}: None}}",
                stacklevel=3,
            )


def check_effects(model: nn.Module, chosen: dict[str, Choice]) -> None:
    """Refuse a rule with a place that none of its modules has.

    A rule with other places may name a bias that its layers lack, if they have parameters.
    """
    heard: dict[str, set[str]] = {}
    for name, choice in chosen.items():
        module = model.get_submodule(name)
        heard.setdefault(choice.key, set()).update(_places_of(module))
        if makes_products(module):
            heard[choice.key].update(PRODUCTS)
        if may_attend(module):
            heard[choice.key].update(ATTENTION)
        if choice.rule.names_cache and takes_cache(module):
            heard[choice.key].update(CACHE)
        if not choice.rule.is_only("bias") and (hasattr(module, "bias") or has_weights(module)):
            heard[choice.key].add("bias")
    for name, choice in chosen.items():
        if choice.rule.native is not None:
            continue
        named = PRODUCTS if choice.rule.names_products else ()
        for place in (*choice.rule.places(), *named):
            if place not in heard[choice.key]:
                what = with_article(type(model.get_submodule(name)).__name__)
                raise ValueError(
                    f"expected a rule {choice.key} with places that its modules have, but got "
                    f"{place}= for {name!r}, {what}, which has none"
                )


def _places_of(module: nn.Module) -> set[str]:
    names = parameter_names(module)
    places = {"output", "error"}
    if not isinstance(module, _WITHOUT_FLOATING_INPUT):
        places.add("activation")
    if names:
        places.add("grad")
    if any(place_of(LayerRule(bias=True), name) for name in names):
        places.add("bias")
    if any(place_of(LayerRule(weight=True), name) for name in names):
        places.add("weight")
    return places


def check_whole(place: Place, role: str, shape: tuple[int, ...], where: str) -> None:
    """Refuse parameters that do not divide into whole blocks, if blocks must not be padded. Inputs
    are checked when they arrive."""
    if isinstance(place.target, BlockFormat):
        try:
            place.target.check_shape(shape)
        except ValueError as error:
            raise ValueError(f"{role} of {where}: {error}") from error


def check_parametrised(module: nn.Module, state: LayerState, where: str) -> None:
    """Refuse a parametrised layer other than a single product.

    A product takes rounded operands directly. In other layers, rounded tensors have to replace
    the parameters, and a parametrisation leaves no attribute to replace.
    """
    rule = state.rule
    if state.is_product:
        return
    for name in state.names:
        if has_parametrisation(module, name) and (
            rule.native or state.plan or rule.grad or name in state.inner or place_of(rule, name)
        ):
            raise ValueError(
                f"expected plain parameters, but {name} of {where} is parametrised "
                "(torch.nn.utils.parametrize), which only linear layers and convolutions may be; "
                "call parametrize.remove_parametrizations, or give only activation, output and "
                "error"
            )


def check_containers(model: nn.Module, chosen: dict[str, Choice]) -> None:
    """Refuse a module that runs in a dtype, with inner layers that do not. It passes them tensors
    of its dtype, and their products need weights of one dtype."""
    natively = {
        name: model.get_submodule(name)
        for name, choice in chosen.items()
        if choice.rule.native is not None
    }
    of_attentions = {m.out_proj for m in model.modules() if isinstance(m, nn.MultiheadAttention)}
    for name, module in natively.items():
        for part, inner in module.named_modules():
            multiplies = has_products(inner)
            if (
                multiplies
                and not any(inner is m for m in natively.values())
                and inner not in of_attentions
            ):
                start = f"{name}." if name else ""
                raise ValueError(
                    f"expected everything in {name or 'the model'!r} (rule {chosen[name].key}) to "
                    f"be {chosen[name].rule.native}, but got {start + part!r}, whose parameters "
                    f"stay float32; give the layers in it a rule too: {start + '.*'!r}"
                )


def check_module(module: nn.Module, rule: LayerRule, where: str) -> None:
    if isinstance(module, torch.jit.ScriptModule):
        raise TypeError(
            f"expected a Python module to quantise, but {where} is a script; quantize_ it "
            "before torch.jit.script"
        )
    if isinstance(module, nn.modules.lazy.LazyModuleMixin) and module.has_uninitialized_params():
        raise ValueError(
            f"expected initialised parameters, but {where} has none yet; first run the model once "
            "on a batch"
        )
    if rule.grad is not None and rule.native is None and getattr(module, "sparse", False):
        raise ValueError(
            f"expected dense gradients to round (grad), but {where} has sparse=True; make the "
            f"{type(module).__name__} with sparse=False"
        )
    if "forward" in module.__dict__:
        raise ValueError(
            f"expected a module with its class's forward, but {where} has its own as an attribute, "
            "which would not round; define it in a class"
        )
    for name, parameter in module._parameters.items():
        if parameter is not None and parameter.is_complex():
            raise TypeError(
                f"expected real parameters, but {name} of {where} is {parameter.dtype}; give the "
                "module no rule, since formats have no complex numbers"
            )
    for name in parameter_names(module):
        dtype = masters_of(module, name)[0].dtype
        if _C.format_of(dtype) is not None:
            raise TypeError(
                f"expected float32 parameters, but {name} of {where} is {dtype}; use model.float()"
            )


def check_products(module: nn.Module, rule: LayerRule, where: str) -> None:
    kind = with_article(type(module).__name__)
    what = "arithmetic='integer'" if rule.arithmetic == "integer" else "accumulate="
    if rule.arithmetic == "integer" and (not is_product(module) or stores_inputs_first(module)):
        raise ValueError(
            f"expected {what} of nn.Linear or a convolution of torch.nn, but got it of {where}, "
            f"{kind}"
        )
    stock = type(module).__module__.startswith("torch.nn.")
    if stock and not has_products(module):
        raise ValueError(
            f"expected {what} of a layer with products, but got it of {where}, "
            f"{kind}; leave it out, since no policy applies to its sums"
        )

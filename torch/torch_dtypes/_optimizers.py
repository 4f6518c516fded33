"""The private functions behind torch.optim's steps, for lists of parameters of ours.

Stock PyTorch has up to three functions for a step: a loop of single operators, one over lists (foreach=True) and a fused one. Their formulas
differ a little, so that bfloat16's bits depend on the way; ours do not: whichever is asked for, a step has the bits of the loop.
"""

from __future__ import annotations

import functools
import importlib
import math
import warnings

import torch

from . import _C

_FUNCTIONS = {
    "adadelta": "adadelta", "_adafactor": "adafactor", "adagrad": "adagrad", "adam": "adam", "adamax": "adamax", "asgd": "asgd", "nadam": "nadam",
    "radam": "radam", "rmsprop": "rmsprop", "rprop": "rprop", "sgd": "sgd",
}  # fmt: skip
# Over lists, stock computes these by other formulas; RAdam's divides by 0 in the first steps and relies on 1 / inf being 0, and a format may
# have no infinity.
_OTHER_OVER_LISTS = {"_adafactor", "adagrad", "asgd", "nadam", "radam"}

_raises_eps = True
_told = False  # that an eps was raised, in this process


def set_optimizer_eps(policy: str) -> None:
    """What becomes of an optimizer's ``eps`` that is 0 in the parameters' dtype, as Adam's 1e-8 is in ``torch.q52``.

    Such an ``eps`` does not keep a step from dividing 0 by 0: the first gradient that is 0 makes its parameter NaN.

    Args:
        policy: ``"raise"`` (the default): a step computes with the dtype's smallest positive number instead, and says so once a process by a
            ``UserWarning``. Parameter groups keep the number that was given. ``"keep"``: with what was given.

    An ``eps`` that the format holds or rounds to a number above 0, and that of stock parameters, is never touched; nor is 0 itself. Posits
    round nothing to 0, so theirs stays (but with ``underflow="zero"``). Of Adafactor's two it is ``eps[0]``, whose square must not be 0; RAdam's
    is raised to the reciprocal of the largest number where that is more, since it divides by ``eps`` before it multiplies.

    Raises:
        ValueError: another policy.
    """
    global _raises_eps
    if policy not in ("raise", "keep"):
        raise ValueError(f"expected policy to be 'raise' or 'keep', but got {policy!r}")
    _raises_eps = policy == "raise"


@functools.cache
def _smallest(dtype: torch.dtype) -> float:
    """The smallest positive number, or 0 where nothing positive is rounded to 0."""
    f = _C.format_of(dtype)
    if f.kind.name == "posit" and f.underflow.name == "minpos":
        return 0.0
    zero, one = torch.zeros(1, dtype=dtype), torch.ones(1, dtype=dtype)
    return torch.nextafter(zero, one).double().item()


def _raised(dtype: torch.dtype, settings: dict, inverts: bool) -> dict:
    """The settings of a step, with an eps that is not 0 in the dtype; inverts: nor one whose reciprocal leaves its range."""
    global _told
    for name in ("eps", "eps1"):
        eps = settings.get(name)
        if not isinstance(eps, (int, float)) or eps <= 0:
            continue
        least = _smallest(dtype)
        if name == "eps1":
            least = math.sqrt(least)
        elif inverts and least > 0:
            least = max(least, 1 / torch.finfo(dtype).max)
        if eps < least:
            settings = {**settings, name: least}
            if not _told:
                _told = True
                warnings.warn(
                    f"the optimizer's eps of {eps} is 0 in {dtype} and would let it divide 0 by 0: its steps compute with {least}, raised to the "
                    "least that works. Give an eps that the dtype has, or torch_dtypes.set_optimizer_eps('keep').",
                    UserWarning, stacklevel=2,
                )  # fmt: skip
    return settings


def _step(stock, own, inverts, params, *lists, **settings):
    """One call of such a function: ours for the parameters of each dtype of ours, stock's for the others."""
    if not any(map(_C.is_format_tensor, params)):
        return None
    places = {}
    for i, p in enumerate(params):
        places.setdefault(p.dtype if _C.is_format_tensor(p) else None, []).append(i)
    for dtype, indices in places.items():
        of_dtype = _raised(dtype, settings, inverts) if dtype is not None and _raises_eps else settings
        run = stock if dtype is None else own
        if len(places) == 1:
            run(params, *lists, **of_dtype)
            continue
        parts = [[x[i] for i in indices] if isinstance(x, list) and len(x) == len(params) else x for x in (params, *lists)]
        run(*parts, **of_dtype)
        for whole, part in zip(lists, parts[1:], strict=True):  # the first step of SGD puts its buffers into the list
            if part is not whole:
                for i, x in zip(indices, part, strict=True):
                    whole[i] = x
    return True  # done: stock's result is none


def _by_loop(over_lists, loop, params, *lists, **settings):
    refused = settings.get("differentiable") or settings.get("capturable")  # as stock refuses it over lists
    return (over_lists if refused else loop)(params, *lists, **settings)


def install(extend) -> None:
    """Puts them in front of stock's; extend: ``_hooks._extend``."""
    for module_name, name in _FUNCTIONS.items():
        module = importlib.import_module("torch.optim." + module_name)
        loop, over_lists = (getattr(module, way + name) for way in ("_single_tensor_", "_multi_tensor_"))
        own = {"_single_tensor_": loop, "_multi_tensor_": over_lists}
        if module_name in _OTHER_OVER_LISTS:
            own["_multi_tensor_"] = functools.partial(_by_loop, over_lists, loop)
        if fused := getattr(module, "_fused_" + name, None):
            own["_fused_"] = fused
        for way, function in own.items():
            stock = getattr(module, way + name)
            extend(module, way + name, functools.partial(_step, stock, function, module_name == "radam"))

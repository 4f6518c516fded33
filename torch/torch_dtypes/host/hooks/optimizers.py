"""Hooks of the private functions behind torch.optim's steps, for format parameters.

PyTorch has up to three functions for a step: a loop of single operators, one over lists
(foreach=True) and a fused one. Their formulas differ a little, so that bfloat16's bits depend on
the choice. With format parameters each of them gives the bits of the loop.
"""

from __future__ import annotations

import functools
import sys

import torch

from ... import _C
from ...optim.eps import with_eps
from ..exchange import copy_stock
from ..table import Hook, Kind

_FUNCTIONS = {
    "adadelta": "adadelta",
    "_adafactor": "adafactor",
    "adagrad": "adagrad",
    "adam": "adam",
    "adamax": "adamax",
    "asgd": "asgd",
    "nadam": "nadam",
    "radam": "radam",
    "rmsprop": "rmsprop",
    "rprop": "rprop",
    "sgd": "sgd",
}
# Over lists, PyTorch computes these by other formulas. RAdam's divides by 0 in the first steps and
# relies on 1 / inf being 0, and a format may have no infinity.
_OTHER_OVER_LISTS = {"_adafactor", "adagrad", "asgd", "nadam", "radam"}
_FUSED = {"adagrad", "adam", "sgd"}


def step(stock, own, name, params, *lists, **settings):
    """Split a step's lists by dtype, and run the stock function for stock parameters alone.

    For each format dtype, an eps that the format rounds to 0 is raised (optim/eps.py). SGD, Adam
    and AdamW run in one pass over memory, for every choice of function (OptimizerSteps.cpp). Over
    lists, Adafactor, Adagrad, ASGD, NAdam and RAdam take the for-loop's function; so do capturable
    Adam and AdamW.
    """
    if not any(map(_C.is_format_tensor, params)):
        return None
    places = {}
    for i, p in enumerate(params):
        places.setdefault(p.dtype if _C.is_format_tensor(p) else None, []).append(i)
    if name in _ONE_PASS:
        own = functools.partial(_on_shards, own)
    for dtype, indices in places.items():
        of_dtype = settings if dtype is None else with_eps(dtype, settings, name)
        run = stock if dtype is None else own
        if len(places) == 1:
            run(params, *lists, **of_dtype)
            continue
        parts = [
            [x[i] for i in indices] if isinstance(x, list) and len(x) == len(params) else x
            for x in (params, *lists)
        ]
        run(*parts, **of_dtype)
        # The first step of SGD puts its buffers into the list.
        for whole, part in zip(lists, parts[1:], strict=True):
            if part is not whole:
                for i, x in zip(indices, part, strict=True):
                    whole[i] = x
    return True  # done: the stock function returns None


def _by_loop(over_lists, loop, params, *lists, **settings):
    refused = settings.get("differentiable")  # PyTorch refuses it over lists
    return (over_lists if refused else loop)(params, *lists, **settings)


def _capturable_by_loop(other, loop, params, *lists, **settings):
    """Run Adam's step by the loop where it is capturable.

    PyTorch's formula over lists differs then. One pass reads the number of steps from the GPU's
    memory, which a capture refuses. Gradients are scaled in the fused function only.
    """
    scaled = any(
        x is not None for x in (*lists[5:], settings.get("grad_scale"), settings.get("found_inf"))
    )
    # PyTorch's loop refuses the CPU.
    kept = (
        scaled
        or settings.get("differentiable")
        or not settings.get("capturable")
        or params[0].is_cpu
    )
    return (other if kept else loop)(params, *lists, **settings)


def _are_numbers(*settings) -> bool:
    return all(isinstance(x, (int, float)) for x in settings)


def _plain(params, grads) -> bool:
    """Return whether a step can be one pass.

    It needs plain strided tensors and parameters, and no record for autograd.
    """
    kinds = (torch.Tensor, torch.nn.Parameter)
    return not torch.is_grad_enabled() and all(
        type(t) in kinds and t.layout is torch.strided for t in (*params, *grads)
    )


def _are_counts(steps, params) -> bool:
    """Return whether steps are plain tensors with numbers.

    Before PyTorch 2.13 they are on the default device. On meta they have no number, and PyTorch's
    loop raises.
    """
    return all(
        type(t) is torch.Tensor and (not t.is_meta or p.is_meta)
        for t, p in zip(steps, params, strict=True)
    )


def _adam(
    stock, params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, *scaling, **settings
):
    """Run Adam's or AdamW's step in one pass, or by PyTorch's loop.

    The pass is in aten/src/ATen/native/formats/optimizers/OptimizerSteps.cpp.
    """
    s = settings
    scaling = (*scaling, s.get("grad_scale"), s.get("found_inf"))
    plain = _are_numbers(s["lr"], s["beta1"], s["beta2"], s["weight_decay"], s["eps"]) and not (
        s["capturable"] or s["differentiable"]
    )
    if (
        not plain
        or any(x is not None for x in scaling)
        or not _plain(params, grads)
        or not _are_counts(state_steps, params)
    ):
        return stock(
            params,
            grads,
            exp_avgs,
            exp_avg_sqs,
            max_exp_avg_sqs,
            state_steps,
            *scaling[:-2],
            **settings,
        )
    if state_steps[0].is_cpu:  # as in PyTorch, adding a tensor is quicker there
        torch._foreach_add_(state_steps, torch.tensor(1.0, device="cpu"), alpha=1.0)
    else:
        torch._foreach_add_(state_steps, 1)
    step = torch._fused_adamw_ if s["decoupled_weight_decay"] else torch._fused_adam_
    step(
        params,
        grads,
        exp_avgs,
        exp_avg_sqs,
        max_exp_avg_sqs if s["amsgrad"] else [],
        state_steps,
        lr=s["lr"],
        beta1=s["beta1"],
        beta2=s["beta2"],
        weight_decay=s["weight_decay"],
        eps=s["eps"],
        amsgrad=s["amsgrad"],
        maximize=s["maximize"],
    )
    return None


def _sgd(stock, params, grads, momentum_buffers, *scaling, **settings):
    """Run SGD's step in one pass, or by PyTorch's loop."""
    s = settings
    scaling = (*scaling, s.get("grad_scale"), s.get("found_inf"))
    first = [b is None for b in momentum_buffers] if s["momentum"] != 0 else []
    plain = (
        _are_numbers(s["lr"], s["momentum"], s["dampening"], s["weight_decay"])
        and not s["has_sparse_grad"]
    )
    if not plain or any(x is not None for x in scaling) or not _plain(params, grads):
        return stock(params, grads, momentum_buffers, *scaling[:-2], **settings)
    for i, begins in enumerate(first):
        if begins:
            momentum_buffers[i] = torch.empty_like(grads[i])
    # Random words need this order. One by one where only some buffers begin.
    parts = [slice(None)] if len(set(first)) < 2 else [slice(i, i + 1) for i in range(len(params))]
    for part in parts:
        torch._fused_sgd_(
            params[part],
            grads[part],
            momentum_buffers[part] if first else [],
            weight_decay=s["weight_decay"],
            momentum=s["momentum"],
            lr=s["lr"],
            dampening=s["dampening"],
            nesterov=s["nesterov"],
            maximize=s["maximize"],
            is_first_step=any(first[part]),
        )
    return None


def _on_shards(step, params, *lists, **settings):
    """Step on each rank's own part of distributed tensors that are split alike.

    The step of an element needs that element alone.
    """
    module = sys.modules.get("torch_dtypes.host.distributed.format_dtensor")
    if module is None or not all(isinstance(p, module.FormatDTensor) for p in params):
        return step(params, *lists, **settings)
    parts = [
        [module.take_part(t, p) for t, p in zip(x, params, strict=True)]
        if isinstance(x, list) and x
        else x
        for x in lists
    ]
    if any(isinstance(x, list) and any(t is NotImplemented for t in x) for x in parts):
        return step(params, *lists, **settings)
    step([module.take_part(p, p) for p in params], *parts, **settings)
    for whole, part in zip(lists, parts, strict=True):  # SGD's buffers of the first step
        for i, t in enumerate(part if isinstance(part, list) else ()):
            if whole[i] is None and t is not None:
                whole[i] = module.DTensor(t, params[i]._spec, requires_grad=False)
    return None


_ONE_PASS = {"adam": _adam, "sgd": _sgd}


def dtype_of(params, *_lists, **_settings) -> torch.dtype | None:
    """Return the format dtype among a step's parameters, or None."""
    return next(
        (
            p.dtype
            for p in params or ()
            if isinstance(p, torch.Tensor) and _C.format_of(p.dtype) is not None
        ),
        None,
    )


def _rows():
    """Make rows for the loop, the function over lists and the fused one of each optimizer."""
    for module_name, name in _FUNCTIONS.items():
        module = "torch.optim." + module_name
        ways = (
            "_single_tensor_",
            "_multi_tensor_",
            *(("_fused_",) if module_name in _FUSED else ()),
        )
        stock = {
            way: copy_stock(Hook(f"{module}.{way + name}", Kind.ASKED, None).find()[1])
            for way in ways
        }
        own = dict(stock)
        if module_name in _OTHER_OVER_LISTS:
            own["_multi_tensor_"] = functools.partial(
                _by_loop, stock["_multi_tensor_"], stock["_single_tensor_"]
            )
        if one_pass := _ONE_PASS.get(module_name):
            if module_name == "adam":
                own = {
                    way: functools.partial(_capturable_by_loop, function, stock["_single_tensor_"])
                    for way, function in stock.items()
                }
            own = {way: functools.partial(one_pass, function) for way, function in own.items()}
        for way in ways:
            run = functools.partial(step, stock[way], own[way], module_name)
            yield Hook(f"{module}.{way + name}", Kind.ASKED, run)


HOOKS = list(_rows())

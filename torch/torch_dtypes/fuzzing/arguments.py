"""Checks of the arguments of ``fuzzy``."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

import torch
from torch import nn

from ..formats.arguments import boolean, choice

LEVELS = ("operator", "instruction")


def has_float64(device: torch.device) -> bool:
    return device.type not in ("mps", "meta")


def check_seed(seed: object) -> int | None:
    if seed is not None and (
        isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**63
    ):
        raise ValueError(f"expected seed from 0 to 2^63 - 1, or None, but got {seed!r}")
    return seed


def check_level(level: object, fused: object, accumulate: object) -> tuple[str, bool]:
    choice("level", level, LEVELS)
    if level == "operator" and not boolean("fused", fused):
        raise ValueError(
            "expected level='instruction' with fused=False, but got level='operator', which rounds "
            "no product by itself; leave fused out"
        )
    if level == "instruction" and accumulate is not None:
        raise ValueError(
            f"expected level='instruction' or accumulate=, but got both ({accumulate}); "
            "instructions add up in index order, so leave accumulate out"
        )
    return level, boolean("fused", fused)


def check_model(model: object, any_dtype: bool) -> None:
    if not isinstance(model, nn.Module):
        raise TypeError(
            "expected a torch.nn.Module, or None for all that runs in the block, but got "
            f"{type(model).__name__}"
        )
    for name, p in model.named_parameters():
        if p.dtype is not torch.float32 and p.is_floating_point() and not any_dtype:
            raise TypeError(
                "expected float32 parameters, whose arithmetic fuzzy(format=...) perturbs, but "
                f"{name} is {p.dtype}; leave format out, or use model.float()"
            )
        if not has_float64(p.device):
            raise ValueError(
                f"expected a model on the CPU or another device with float64, but {name} is on "
                f"{p.device}; use model.cpu()"
            )


def find_module_names(model: nn.Module | None, modules: object) -> set[str]:
    if model is None:
        raise ValueError(
            "expected a model with modules=, but got None: modules are named as in "
            "model.named_modules()"
        )
    if isinstance(modules, str) or not isinstance(modules, Iterable):
        raise TypeError(
            f"expected modules as a list of names or modules, but got {modules!r}; put it into a "
            "list"
        )
    known = dict(model.named_modules(remove_duplicate=False))
    chosen = set()
    for m in modules:
        if isinstance(m, nn.Module):
            names = [name for name, module in known.items() if module is m]
        else:
            names = [m] if m in known else []
        if not names:
            near = difflib.get_close_matches(str(m), known, 3) if isinstance(m, str) else []
            hint = (
                f"; did you mean {' or '.join(map(repr, near))}?"
                if near
                else "; names are those of model.named_modules()"
            )
            raise ValueError(
                "expected modules of the model, but got "
                f"{m if isinstance(m, str) else type(m).__name__!r}{hint}"
            )
        chosen.update(names)
    if not chosen:
        raise ValueError(
            "expected modules to perturb, but got none: leave modules= out to perturb all"
        )
    return chosen

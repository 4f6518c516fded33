"""The suite ``optimizers``: a step of SGD, Adam and AdamW, over stock float32's fused one."""

from __future__ import annotations

from collections.abc import Sequence

import torch

import torch_dtypes

from .measuring import Group, Row, Sizes, name_of

SUMMARY = "An optimizer's step, by default one pass over weights, gradients and states, over stock float32's with fused=True."
_DTYPES = ("posit16es2", "q52")
_SETTINGS = {"SGD": {"lr": 1e-3, "momentum": 0.9}, "Adam": {}, "AdamW": {}}
_TARGET = 1.5


def groups(sizes: Sizes, dtypes: Sequence[torch.dtype] | None) -> list[Group]:
    named = {name_of(d): d for d in dtypes or map(torch_dtypes.dtype, _DTYPES)}

    def group(optimizer: str, elements: int) -> Group:
        def spaces():
            made = {}
            for name, d in {"float32": torch.float32, **named}.items():
                p = [torch.randn(elements // 4).to(d).requires_grad_() for _ in range(4)]
                for t in p:
                    t.grad = (torch.randn(t.shape) / 100).to(d)
                eps = {} if optimizer == "SGD" else {"eps": 1e-4}  # that all formats have
                made[name] = {"optimizer": getattr(torch.optim, optimizer)(p, **_SETTINGS[optimizer], **eps, fused=name == "float32")}
            return made

        rows = [Row(f"{optimizer} step, {elements:,} parameters", n, "float32", _TARGET if n in _DTYPES else None) for n in named]
        return Group(dict.fromkeys(("float32", *named), "optimizer.step()"), spaces, rows, rounds=20 if elements < 1e7 else 5, quick_rounds=3)

    return [group(optimizer, elements) for elements in sizes.parameters for optimizer in _SETTINGS]

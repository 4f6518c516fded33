"""The suite ``optimizers``: a step of SGD, Adam and AdamW, over the fused step of stock float32."""

from __future__ import annotations

from collections.abc import Sequence

import torch

import torch_dtypes

from .measuring import Group, Row, Sizes, named_dtypes

SUMMARY = (
    "An optimizer's step, by default one pass over weights, gradients and states, over stock "
    "float32's with fused=True; LowPrecision around Adam over Adam by itself."
)
_ADAM = {"posit16es2": 4.0, "q52": 2.0}
_TARGETS = {"SGD": dict.fromkeys(_ADAM, 1.5), "Adam": _ADAM, "AdamW": _ADAM}
_SETTINGS = {"SGD": {"lr": 1e-3, "momentum": 0.9}, "Adam": {}, "AdamW": {}}
_WRAPPED: dict[str, dict] = {
    "q52, float32 masters": {},
    "q52, stochastic updates": {"master": None},
    "q52, masters and states in e6m9": {"master": "e6m9", "state": "e6m9"},
}


def groups(sizes: Sizes, dtypes: Sequence[torch.dtype] | None) -> list[Group]:
    named = named_dtypes(dtypes, tuple(_ADAM))

    def group(optimizer: str, elements: int) -> Group:
        def spaces():
            variables = {}
            for name, d in {"float32": torch.float32, **named}.items():
                p = [torch.randn(elements // 4).to(d).requires_grad_() for _ in range(4)]
                for t in p:
                    t.grad = (torch.randn(t.shape) / 100).to(d)
                eps = {} if optimizer == "SGD" else {"eps": 1e-4}  # a value that all formats have
                variables[name] = {
                    "optimizer": getattr(torch.optim, optimizer)(
                        p, **_SETTINGS[optimizer], **eps, fused=name == "float32"
                    )
                }
            return variables

        rows = [
            Row(
                f"{optimizer} step, {elements:,} parameters",
                n,
                "float32",
                _TARGETS[optimizer].get(n),
            )
            for n in named
        ]
        return Group(
            dict.fromkeys(("float32", *named), "optimizer.step()"),
            spaces,
            rows,
            rounds=20 if elements < 1e7 else 5,
            quick_rounds=3,
        )

    steps = [group(optimizer, elements) for elements in sizes.parameters for optimizer in _SETTINGS]
    return [*steps, *(_low_precision(elements) for elements in sizes.parameters)]


def _low_precision(elements: int) -> Group:
    """Compare LowPrecision around Adam, with q52 parameters, with the same Adam (the stock default,
    operator by operator) in float32."""

    def spaces():
        variables = {}
        for name, options in {"float32": None, **_WRAPPED}.items():
            dtype = torch.float32 if options is None else torch.q52
            p = [torch.randn(elements // 4).to(dtype).requires_grad_() for _ in range(4)]
            for t in p:
                t.grad = (torch.randn(t.shape) / 100).to(dtype)
            inner = torch.optim.Adam(p)
            variables[name] = {
                "optimizer": inner
                if options is None
                else torch_dtypes.optim.LowPrecision(inner, **options)
            }
        return variables

    work = f"LowPrecision(Adam) step, {elements:,} parameters"
    rows = [
        Row(work, name, "float32", limit)
        for name, limit in zip(_WRAPPED, (2, None, None), strict=True)
    ]
    return Group(
        dict.fromkeys(("float32", *_WRAPPED), "optimizer.step()"),
        spaces,
        rows,
        rounds=20 if elements < 1e7 else 5,
        quick_rounds=3,
    )

"""QPyTorch's optimizer wrapper, which takes any functions of a tensor, as WAGE needs them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.optim import Optimizer

from .number import expect

__all__ = ["OptimLP"]

_ACCUMULATORS = "accumulators"  # in the state_dict


class OptimLP(Optimizer):
    """An optimizer that rounds gradients before a step of ``optim``, and weights and states after
    it. ``torch_dtypes.optim.LowPrecision`` does the same by names of formats.

    A step multiplies each gradient by ``grad_scaling`` and passes it to ``grad_quant``. Then
    ``optim`` updates the accumulators, or the weights if ``acc_quant`` is None. Accumulators pass
    ``acc_quant``, the weights become ``weight_quant`` of these, and states ``momentum_quant`` of
    themselves. Each function takes a tensor and returns one; None rounds nothing.

    Unlike QPyTorch's, it takes every optimizer, calls the closure, and saves and loads the states
    and accumulators.

    Raises:
        AssertionError: ``optim`` is no optimizer, or ``grad_scaling`` is not above 0.
    """

    def __init__(
        self,
        optim: Optimizer,
        weight_quant: Callable | None = None,
        grad_scaling: float = 1.0,
        grad_quant: Callable | None = None,
        momentum_quant: Callable | None = None,
        acc_quant: Callable | None = None,
    ) -> None:
        expect(isinstance(optim, Optimizer), f"a torch optimizer, but got {type(optim).__name__}")
        expect(grad_scaling > 0, f"grad_scaling above 0, but got {grad_scaling!r}")
        super().__init__(optim.param_groups, optim.defaults)
        self.optim = optim
        self.grad_scaling = grad_scaling
        self.weight_quant, self.grad_quant = weight_quant, grad_quant
        self.momentum_quant, self.acc_quant = momentum_quant, acc_quant
        self.weight_acc: dict[torch.Tensor, torch.Tensor] = {}
        self._share()
        self._make_accumulators()

    def _share(self) -> None:
        """Let this optimizer's groups and states be those of ``optim``."""
        self.param_groups, self.state = self.optim.param_groups, self.optim.state

    def _parameters(self) -> list[torch.Tensor]:
        return [p for group in self.param_groups for p in group["params"]]

    def _make_accumulators(self) -> None:
        if self.acc_quant is not None:
            for p in self._parameters():
                if p not in self.weight_acc:
                    self.weight_acc[p] = p.detach().clone()

    def step(self, closure: Callable | None = None):
        """Run one step. A closure runs once, before all else, and its loss is returned."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        with torch.no_grad():
            self._step()
        return loss

    def _step(self) -> None:
        parameters = self._parameters()
        with_gradient = [p for p in parameters if p.grad is not None]
        if self.grad_quant is not None:
            for p in with_gradient:
                p.grad.data = self.grad_quant(p.grad.data * self.grad_scaling)
        if self.acc_quant is not None:
            self._make_accumulators()  # of groups that were added
            for p in parameters:
                p.data = self.weight_acc[p]
        self.optim.step()
        if self.acc_quant is not None:
            for p in parameters:
                p.data = self.weight_acc[p] = self.acc_quant(p.data).data
        if self.weight_quant is not None:
            for p in parameters:
                p.data = self.weight_quant(p.data).data
        if self.momentum_quant is not None:
            for p in with_gradient:
                for name, value in self.state[p].items():
                    if _is_momentum(p, name, value):
                        self.state[p][name] = self.momentum_quant(value)

    def state_dict(self) -> dict:
        """Return ``optim``'s state_dict, with the accumulators by their parameters' indices."""
        kept = [self.weight_acc.get(p) for p in self._parameters()]
        return self.optim.state_dict() | {_ACCUMULATORS: kept}

    def load_state_dict(self, state_dict: dict) -> None:
        self.optim.load_state_dict({k: v for k, v in state_dict.items() if k != _ACCUMULATORS})
        self._share()
        kept = state_dict.get(_ACCUMULATORS) or []
        for p, value in zip(self._parameters(), kept, strict=bool(kept)):
            if value is not None:
                self.weight_acc[p] = value.to(p.device, copy=True)

    def __repr__(self) -> str:
        return f"LP Optimizer: {self.optim!r}"


def _is_momentum(p: torch.Tensor, name: str, value: object) -> bool:
    """Whether a state is a number per weight, and not a count of steps."""
    return (
        isinstance(value, torch.Tensor)
        and value.is_floating_point()
        and value.shape == p.shape
        and name != "step"
    )

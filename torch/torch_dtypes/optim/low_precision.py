"""LowPrecision: an optimizer's step computed in float32 between weights, gradients and states that
are kept in number formats.

Sources: Micikevicius et al., "Mixed precision training", ICLR 2018, for masters and loss scaling;
Gupta et al., "Deep learning with limited numerical precision", ICML 2015, for stochastic updates;
Zhang et al., "QPyTorch" (2019), for which numbers of a step have formats.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import torch
from torch.optim import Optimizer

from .. import _C
from ..formats.arguments import mode_name, shorten
from ..formats.code_types import compute_type
from ..policies.rounding import rounding_block
from . import checks
from .closures import step_with
from .curvature import link
from .loss_scale import DynamicScale, Scale
from .states import Fit, is_divisor
from .storage import Storage, of_dtype, overflow_limit

__all__ = ["LowPrecision"]

_KEY = "low_precision"  # in the state_dict
# Of a whole tensor, which optimizers keep as tensors too.
_COUNTS = ("step", "mu_product", "eta", "mu", "H_diag", "ro", "al", "t")


class LowPrecision(Optimizer):
    """An optimizer whose weights, gradients and states are kept in number formats, and whose step
    computes in float32::

        model.to(torch.q52)
        # Masters in float32.
        optimizer = torch_dtypes.optim.LowPrecision(torch.optim.Adam(model.parameters()))
        # Stochastic updates.
        inner = torch.optim.SGD(model.parameters(), 0.1)
        optimizer = torch_dtypes.optim.LowPrecision(inner, master=None)
        # QPyTorch's recipe.
        inner = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        optimizer = torch_dtypes.optim.LowPrecision(
            inner, weight="q52", grad="q52", state="e6m9", master="e6m9", grad_scale=1024)

    A step takes each parameter's gradient g, master w and states s, all decoded exactly, and
    computes (w, s) = update(w, round_grad(g) / grad_scale, s) as ``optimizer`` does on float32
    tensors (float64 ones where a parameter, master or state has values that are not in float32).
    Then w and s are rounded to their formats and kept, and the parameter becomes round_weight(w).
    So nothing inside the update is rounded; an optimizer without this wrapper, over parameters of a
    dtype of ours, rounds after every operator. A parameter without a gradient stays.

    ``param_groups``, ``state`` and ``defaults`` are those of ``optimizer``, which may go on being
    used for them: learning-rate schedulers take either. ``optimizer`` is not to be stepped by
    itself.

    Args:
        optimizer: any dense optimizer of torch or like them; ``foreach`` and ``fused`` ways
            included. One whose step calls a closure many times (LBFGS) finds the weights that it is
            at, rounded, in the model at each call; it takes no dynamic scale.
        weight: the format of the parameters' values: whatever ``torch_dtypes.target`` takes, as a
            dtype (of this package or a stock one), a name (``"e5m2"``, also with a mode,
            ``"q52_stochastic"``), blocks or integers (which are scaled by the tensor's largest
            magnitude). ``None``: what the parameters' own dtype holds, which a format beside
            parameters of ours must be. float32 parameters hold any format's values.
        grad: the format in which gradients come to the step, still scaled. ``None``: the
            parameters' dtype, in which autograd made them.
        state: the format of the optimizer's states (momentum, second moments; not its counts of
            steps); or a dictionary of formats by the states' names, ``{"exp_avg": "q52"}``, the
            others staying float32. In a dtype the tensors kept have that dtype. A state that steps
            divide by, or by its root, is never rounded to 0: a value above 0 becomes at least the
            smallest number at its place.
        master: the format of the weights that the update adds to: ``torch.float32``, another dtype,
            name or format (an accumulator, as ``"e6m9"``). Parameters are roundings of their
            masters from the beginning: where a format lacks their values, they change at once.
            ``None``: there are none, the parameters themselves are updated and rounded.
        rounding: the mode in which the values that go on from step to step are rounded: states,
            masters in a format and, without masters, weights. Stochastic rounding keeps updates
            below half a unit in the last place from being lost, on average. ``None``: each format's
            own mode. Gradients, and weights that are only copies of masters, always have their
            formats' own.
        grad_scale: a constant loss scale (a number above 0), ``"dynamic"`` or a
            :class:`DynamicScale`. Then ``scale(loss).backward()`` is how gradients are made, and
            the step divides by the factor after ``grad`` has rounded and before anything else.
            ``None``: no scaling.

    Overflow, with a dynamic scale: a step is left out if any gradient, as autograd made it or as
    ``grad`` rounded it, is infinite or NaN (NaR too), or reaches the largest number of a format
    that saturates instead: a posit, fixed point, or a float with ``overflow="saturate"``; so does
    the factor in the loss's dtype. A format that wraps leaves no trace of overflow and is refused.
    With a constant scale or none, steps are never left out. Of parameters in shards (``DTensor``,
    ``fully_shard``) all ranks leave a step out where one's part overflowed. A dynamic factor drives
    gradients to the end of the range: right for floats, while posits are finest around 1 and do
    better with a constant one.

    Random words of stochastic rounding come from torch's generator of the parameter's device, as
    everywhere in this package: in the order of the parameters, of each first the states by their
    order, then the master, then the weight; before them the gradients, of all parameters. A run
    resumes bit for bit by ``state_dict()`` of the model and of this (masters, states, loss scale)
    and ``torch.get_rng_state()`` (on a GPU ``torch.cuda.get_rng_state()``).

    Weights that were changed by hand (loading a checkpoint, clipping) are seen at the next step,
    and elements that are no rounding of their masters become masters. What autograd's version
    counter does not see (writes to ``p.data``) is not.

    Raises:
        TypeError: no optimizer, one that needs sparse gradients, or something that is no format.
        ValueError: an unknown format or mode, a weight format that the parameters' dtype is not,
            masters of float32 for parameters that are computed in float64, a factor that float32
            lacks, or its reciprocal, parameters that are not real floating-point tensors, a dynamic
            scale around an optimizer that calls closures, rounded states of
            ``RMSprop(centered=True)``.

    Example::

        >>> model = nn.Linear(2, 1).to(torch.q52)
        >>> optimizer = torch_dtypes.optim.LowPrecision(torch.optim.SGD(model.parameters(), 0.1))
        >>> model(torch.ones(1, 2, dtype=torch.q52)).sum().backward()
        >>> optimizer.step()
        >>> model.weight.dtype
        torch.q52
    """

    def __init__(
        self,
        optimizer: Optimizer,
        weight: object = None,
        grad: object = None,
        state: object = None,
        master: object = torch.float32,
        rounding: str | int | None = "stochastic",
        grad_scale: float | str | DynamicScale | None = None,
    ) -> None:
        if isinstance(optimizer, LowPrecision):
            raise TypeError("expected an optimizer that is not wrapped yet, but got a LowPrecision")
        checks.refuse_optimizer(optimizer)
        self.optimizer = optimizer
        self._weight = Storage("weight", weight)
        self._grad = Storage("grad", grad)
        self._state = Storage("state", None if isinstance(state, dict) else state)
        self._state_by_name = (
            {key: Storage(f"state[{key!r}]", value) for key, value in state.items()}
            if isinstance(state, dict)
            else {}
        )
        self._master = None if master is None else Storage("master", master)
        self._mode = None if rounding is None else mode_name(rounding)
        self._scale = Scale(grad_scale)
        self._calls_closure = checks.calls_closure(optimizer)
        checks.refuse_dynamic(self._scale, optimizer)
        self._masters: dict[torch.Tensor, torch.Tensor] = {}
        # Of the parameters, when this last wrote them.
        self._versions: dict[torch.Tensor, tuple] = {}
        self._applied: float | None = None  # the factor, since a loss was scaled by it
        self._factor_saturated = False
        self._begin()
        with torch.no_grad():
            checks.refuse_rounded_variance(self.param_groups, self._state_by_name, self._state)
            for p in self._parameters():
                checks.refuse_parameter(p, self._weight, self._grad, self._master, self._scale)
            for p in self._parameters():
                self._adopt(p)

    # What every Optimizer has. Its own __init__ would make groups and states; these are the inner
    # optimizer's.

    def _begin(self) -> None:
        # Hooks, and the profiler's name of step.
        super().__setstate__({"defaults": self.optimizer.defaults})
        self._knows_states = not self._state.is_given  # whether there are any that state= rounds
        self._fit = Fit()

    @property
    def param_groups(self):
        """The inner optimizer's: parameters with their learning rates and other options."""
        return self.optimizer.param_groups

    @property
    def state(self):
        """The inner optimizer's states by parameter, as they are kept between steps, in their
        formats."""
        return self.optimizer.state

    def __getstate__(self):
        names = (
            "optimizer",
            "_calls_closure",
            "_weight",
            "_grad",
            "_state",
            "_state_by_name",
            "_master",
            "_mode",
            "_scale",
            "_masters",
        )
        return {name: self.__dict__[name] for name in names}

    def __setstate__(self, state):
        self.__dict__.update(state)
        self._applied, self._factor_saturated = None, False
        self._begin()
        self._versions = {p: checks.version(p) for p in self._parameters()}

    def __repr__(self):
        formats = {
            "weight": self._weight,
            "grad": self._grad,
            "state": self._state_by_name or self._state,
            "master": self._master,
        }
        scale = f", grad_scale={self._scale.factor:g}" if self._scale.is_on else ""
        return (
            f"LowPrecision({self.optimizer!r}, "
            f"{', '.join(f'{k}={v!r}' for k, v in formats.items())}, "
            f"rounding={self._mode!r}{scale})"
        )

    def _parameters(self):
        return [p for group in self.param_groups for p in group["params"]]

    def add_param_group(self, param_group):
        """Adds a group to the inner optimizer, and rounds its parameters to the format of
        weights."""
        known = set(self._parameters())
        self.optimizer.add_param_group(param_group)
        new = [p for p in self.param_groups[-1]["params"] if p not in known]
        try:
            checks.refuse_rounded_variance(self.param_groups, self._state_by_name, self._state)
            for p in new:
                checks.refuse_parameter(p, self._weight, self._grad, self._master, self._scale)
        except ValueError:
            del self.param_groups[-1]
            raise
        with torch.no_grad():
            for p in new:
                self._adopt(p)

    # Loss scaling

    @property
    def loss_scale(self) -> float:
        """The factor by which ``scale`` multiplies now; 1 without loss scaling."""
        return self._scale.factor

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        """The loss times the factor as the loss's dtype has it, in float32, whose ``backward()``
        makes the gradients for ``step()``. Clip such gradients by a bound times ``loss_scale``. A
        constant factor that is 0, infinite or NaN in the loss's dtype is a ValueError."""
        if not isinstance(loss, torch.Tensor) or not loss.is_floating_point():
            raise TypeError(
                f"expected the loss as a tensor of real numbers, but got {shorten(loss)}"
            )
        if not self._scale.is_on:
            return loss
        # The factor is the first gradient, in the loss's dtype: what it becomes there is what the
        # step divides by.
        with rounding_block("nearest_even"):
            factor = (
                torch.tensor(self._scale.factor, dtype=torch.float32, device="cpu")
                .to(loss.dtype)
                .item()
            )
        # Every gradient would be that. (A dynamic factor that is infinite leaves the step out, and
        # is a smaller one then.)
        if factor == 0 or not (self._scale.rule or math.isfinite(factor)):
            raise ValueError(
                "expected a grad_scale that the loss's dtype holds, but got "
                f"{self._scale.factor:g} beside a loss of {loss.dtype}, which makes {factor:g} of "
                "it; compute the loss in float32, of model(x).float(), or use another factor"
            )
        if self._applied not in (None, factor):
            raise RuntimeError(
                f"expected losses of dtypes in which the factor of {self._scale.factor:g} is one "
                f"number, but got {loss.dtype} beside another"
            )
        self._applied = factor
        self._factor_saturated |= factor >= (overflow_limit(_C.format_of(loss.dtype)) or math.inf)
        return loss * torch.tensor(factor, dtype=torch.float32, device="cpu")

    # The step

    def step(self, closure: Callable[[], float] | None = None):
        """One step of the optimizer.

        Args:
            closure: makes the gradients anew and returns the loss; it is called once, before
                everything else, or by an optimizer that needs one, which calls it as often as it
                likes. With ``grad_scale`` it calls ``scale(loss).backward()`` and returns ``loss``.

        Returns:
            What the closure returned, or ``None``.

        Raises:
            RuntimeError: ``grad_scale`` was given and no loss was scaled since the last step; or a
                gradient is sparse.
        """
        loss = None
        if self._calls_closure:
            checks.refuse_closure(closure, type(self.optimizer).__name__)
            return step_with(self, closure)
        if closure is not None:
            checks.refuse_closure(closure)
            with torch.enable_grad():
                loss = closure()
        inverse = self._take_factor()
        with torch.no_grad():
            self._step(inverse)
        return loss

    def _take_factor(self) -> float:
        """By what gradients are multiplied: the reciprocal of the factor by which the loss was."""
        checks.refuse_unscaled(self._scale, self._applied)
        inverse, self._applied = 1 / (self._applied or 1), None
        return inverse

    def _step(self, inverse: float) -> None:
        factor_saturated, self._factor_saturated = self._factor_saturated, False
        params = [p for p in self._parameters() if p.grad is not None]
        if any(p.grad.layout is not torch.strided for p in params):
            raise RuntimeError(
                "expected dense gradients, but got a sparse one; use Embedding(sparse=False)"
            )
        gradients = [self._gradient(p) for p in params]
        if self._scale.rule:
            overflowed = (
                checks.has_overflow(params, gradients, self._grad.overflow_limit())
                or factor_saturated
            )
            overflowed = checks.on_any_rank(overflowed, self._parameters())
            self._scale.update(overflowed)
            if overflowed:
                return
        if inverse != 1:
            gradients = [g * inverse for g in gradients]
        working = {p: self._prepare_tensor(p, g) for p, g in zip(params, gradients, strict=True)}
        link(working, inverse)
        self._run(working)
        if self._state_by_name and working:
            checks.refuse_state_names(self._state_by_name, [self.state.get(p) for p in working])
        if working and not self._knows_states:
            self._look_for_states(working)
        with self._fit.step():
            for p, w in working.items():
                self._keep(p, w)

    def _gradient(self, p):
        """The gradient in the dtype of the step, rounded to the format of gradients, still
        scaled."""
        g = p.grad.to(self._computes_in(p))
        return self._grad.values(g)

    def _computes_in(self, p) -> torch.dtype:
        state = [s.dtype for s in (self._state, *self._state_by_name.values())]
        return compute_type(
            p.dtype, self._weight.dtype, self._master and self._master.dtype, *state
        )

    def _prepare_tensor(self, p, gradient):
        """The tensor that the inner optimizer updates, with its gradient."""
        self._adopt(p)
        dtype = self._computes_in(p)
        kept = self._masters.get(p, p).detach()
        # Of what is kept as it is, the memory itself; never the parameter's, whose gradient stays
        # its own.
        w = kept.to(dtype)
        w.requires_grad_()
        w.grad = gradient
        return w

    def _run(self, working, *closure):
        """The inner optimizer's step, over other tensors than it was made for."""
        inner, groups = self.optimizer, [group["params"] for group in self.param_groups]
        self._exchange_states(working, self._states_for)
        for group, params in zip(inner.param_groups, groups, strict=True):
            group["params"] = [working.get(p, p) for p in params]
        try:
            return inner.step(*closure)
        finally:
            for group, params in zip(inner.param_groups, groups, strict=True):
                group["params"] = params
            self._exchange_states({w: p for p, w in working.items()})

    def _exchange_states(self, tensors, change=lambda tensor, states: states) -> None:
        """Puts the states of the keys of ``tensors`` under its values."""
        states = self.optimizer.state
        for key in list(states):
            of_key = states.pop(key)  # every one, so that their order stays
            new = tensors.get(key, key) if isinstance(key, torch.Tensor) else key
            states[new] = of_key if new is key else change(new, of_key)

    def _rounds_state(self, p, name, value) -> Storage | None:
        """Where a state is kept, ``None`` for what is none: counts, numbers, lists."""
        if not isinstance(value, torch.Tensor) or not value.is_floating_point() or name == "step":
            return None
        if value.dim() == 0 and (p.dim() != 0 or name in _COUNTS):
            return None
        return self._state_by_name.get(name, self._state)

    def _states_for(self, w, states):
        """The states of a parameter as the inner optimizer computes with them."""
        if not isinstance(states, dict):
            return states
        return {
            name: self._of_state(w, name, value, lambda _, t: t.to(w.dtype))
            for name, value in states.items()
        }

    def _of_state(self, p, name, value, function):
        """The state, with ``function(storage, tensor)`` of what is kept in a format: the tensor, or
        those in a list."""
        if isinstance(value, list):
            return [self._of_state(p, name, v, function) for v in value]
        storage = self._rounds_state(p, name, value)
        return value if storage is None else function(storage, value)

    def _look_for_states(self, params) -> None:
        """After the first step: a warning where ``state=`` is of nothing."""
        self._knows_states, found = True, []
        for p in params:
            for name, value in self.state[p].items() if isinstance(self.state.get(p), dict) else ():
                self._of_state(p, name, value, lambda _, t: found.append(t))
        if not found:
            checks.warn_of_no_state(self._state, type(self.optimizer).__name__)

    def _keep(self, p, w) -> None:
        """Rounds what a step computed, and keeps it."""
        w.grad = None
        w = w.detach()
        states = self.state.get(p)
        for name, value in states.items() if isinstance(states, dict) else ():
            states[name] = self._of_state(p, name, value, functools.partial(self._keep_state, name))
        storage, mode = self._weights_of(p), self._mode
        if p in self._masters:
            self._masters[p] = self._master.keep(w, mode)
            w, mode = self._masters[p].to(w.dtype), None
        if not (storage.is_exact and w.data_ptr() == p.data_ptr()):
            p.copy_(storage.keep(w, mode))
        self._versions[p] = checks.version(p)

    def _keep_state(self, name, storage, values):
        """Rounds a state; one that a step divides by is never rounded to 0."""
        kept = (
            storage.keep_positive(values, self._mode)
            if is_divisor(name, values)
            else storage.keep(values, self._mode)
        )
        self._fit.look(name, storage, values, kept)
        return kept

    # Masters

    def _weights_of(self, p) -> Storage:
        return self._weight if self._weight.is_given else of_dtype(p.dtype)

    def _adopt(self, p) -> None:
        """Makes the master of a parameter that has none yet, and sees to it that it is still this
        parameter's."""
        if self._versions.get(p) == checks.version(p):
            return
        storage, dtype = self._weights_of(p), self._computes_in(p)
        if p in self._masters:
            now, w = p.detach().to(dtype), self._masters[p].to(dtype)
            # Of stochastic modes either.
            roundings = [storage.values(w, mode) for mode in ("down", "up")]
            is_same = sum((now == r) | (now.isnan() & r.isnan()) for r in roundings) > 0
            if not is_same.all():
                self._masters[p] = self._master.keep(torch.where(is_same, w, now), "nearest_even")
        else:
            w = p.detach().to(dtype)
            if self._master is not None and not (
                storage.is_exact and self._master.is_exact and p.dtype is dtype
            ):
                self._masters[p] = self._master.keep(w.clone(), "nearest_even")
                w = self._masters[p].to(dtype)
            # Else nothing is to be rounded, nor are random words to be drawn, after resuming for
            # one.
            if not storage.holds(w):
                p.copy_(storage.keep(w, None))
        self._versions[p] = checks.version(p)

    # Saving and resuming

    def state_dict(self):
        """The inner optimizer's ``state_dict()`` and, as ``"low_precision"``, the masters by their
        parameters' numbers and the loss scale."""
        masters = {
            i: self._masters[p] for i, p in enumerate(self._parameters()) if p in self._masters
        }
        return {
            **super().state_dict(),
            _KEY: {"masters": masters, "scale": self._scale.state_dict()},
        }

    def load_state_dict(self, state_dict) -> None:
        """Takes over what ``state_dict()`` of an optimizer with the same formats gave, rounding
        nothing anew.

        Raises:
            ValueError: it is another optimizer's, or its masters are of other parameters or dtypes.
        """
        if not isinstance(state_dict, dict):
            raise TypeError(
                f"expected a state_dict of LowPrecision, a dict, but got {state_dict!r}"
            )
        if _KEY not in state_dict:
            raise ValueError(
                "expected a state_dict of LowPrecision, but got one with "
                f"{', '.join(map(repr, state_dict)) or 'nothing'}; "
                "load that of a plain optimizer before it is wrapped"
            )
        params, own = self._parameters(), state_dict[_KEY]
        masters = own["masters"]
        checks.refuse_masters(
            masters, {i: self._masters[p] for i, p in enumerate(params) if p in self._masters}
        )
        inner = self.optimizer
        # What stock code casts states to: the dtype of these.
        stand_ins = {p: torch.empty(0, dtype=self._computes_in(p), device=p.device) for p in params}
        groups = [group["params"] for group in inner.param_groups]
        for group, before in zip(inner.param_groups, groups, strict=True):
            group["params"] = [stand_ins[p] for p in before]
        try:
            inner.load_state_dict({key: value for key, value in state_dict.items() if key != _KEY})
        finally:
            for group, before in zip(inner.param_groups, groups, strict=True):
                group["params"] = before
        self._exchange_states({s: p for p, s in stand_ins.items()})
        for i, p in enumerate(params):
            states = self.state.get(p)
            for name, value in states.items() if isinstance(states, dict) else ():
                states[name] = self._of_state(p, name, value, lambda storage, t: storage.store(t))
            if p in self._masters:
                self._masters[p] = masters[i].to(p.device, copy=True)
        self._scale.load_state_dict(own["scale"])
        self._versions.clear()  # whichever of model and optimizer is loaded first

"""LowPrecision: an optimizer that computes its step in float32, and keeps weights, gradients and
states in number formats.

Sources: Micikevicius et al., "Mixed precision training", ICLR 2018 (masters, loss scaling). Gupta
et al., "Deep learning with limited numerical precision", ICML 2015 (stochastic updates). Zhang et
al., "QPyTorch" (2019): the numbers of a step that have formats.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import torch
from torch.optim import Optimizer

from .. import _C
from ..formats.arguments import mode_name, outline
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
# Numbers per parameter that optimizers keep as tensors, and that are never rounded.
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

    A step takes each parameter's gradient g, master w and states s, all decoded exactly. It
    computes (w, s) = update(w, round_grad(g) / grad_scale, s) as ``optimizer`` does on float32
    tensors, or on float64 ones if float32 lacks values of a parameter, master or state. Then w and
    s are rounded to their formats and kept, and the parameter becomes round_weight(w).

    So nothing inside the update is rounded. Without this wrapper, an optimizer over parameters of a
    format dtype rounds after every operator. A parameter without a gradient does not change.

    ``param_groups``, ``state`` and ``defaults`` are those of ``optimizer``, and learning-rate
    schedulers take either. Do not call ``optimizer.step()`` itself.

    Args:
        optimizer: any dense optimizer of torch, or one like them, also ``foreach`` and ``fused``.
            If its step calls a closure several times (LBFGS), the model holds its current weights,
            rounded, at each call. Such an optimizer takes no dynamic scale.
        weight: the format of the parameters' values: anything that ``torch_dtypes.target`` takes.
            This is a dtype (of this package or a stock one), a name (``"e5m2"``, also with a mode,
            ``"q52_stochastic"``), blocks, or integers, which are scaled by the tensor's largest
            magnitude. ``None``: the parameters' dtype. Parameters of a format dtype only take
            their own format; float32 parameters hold any format's values.
        grad: the format to which the step rounds the gradients, still scaled. ``None``: the
            parameters' dtype, in which autograd computed them.
        state: the format of the optimizer's states (momentum, second moments; not its counts of
            steps). Or a dictionary of formats by the states' names, ``{"exp_avg": "q52"}``; the
            others stay float32. With a dtype, the stored tensors have that dtype. A state that
            steps divide by, or by its root, is never rounded to 0: a value above 0 becomes at
            least the smallest number at its place.
        master: the format of the weights to which updates are added: ``torch.float32``, another
            dtype, name or format (an accumulator, as ``"e6m9"``). Parameters are roundings of
            their masters from the beginning, so they change at once if the format lacks their
            values. ``None``: no masters; the parameters themselves are updated and rounded.
        rounding: the mode that rounds the values kept from step to step: states, masters in a
            format and, without masters, weights. Stochastic rounding keeps, on average, updates
            below half a unit in the last place. ``None``: each format's own mode. Gradients, and
            weights with masters, always use their formats' own mode.
        grad_scale: a constant loss scale (a number above 0), ``"dynamic"`` or a
            :class:`DynamicScale`. Gradients then have to come from ``scale(loss).backward()``.
            The step divides them by the factor right after it has rounded them to ``grad``.
            ``None``: no scaling.

    Overflow, with a dynamic scale: a step is skipped if a gradient, before or after rounding to
    ``grad``, is infinite or NaN (NaR too). It is also skipped if a gradient, or the factor in the
    loss's dtype, reaches the largest number of a format that saturates. These are posits, fixed
    point, and floats with ``overflow="saturate"``. A format that wraps leaves no trace of overflow,
    and is refused. With a constant scale or none, steps are never skipped. With parameters in
    shards (``DTensor``, ``fully_shard``), all ranks skip a step if one's part overflows. A dynamic
    factor drives gradients to the end of the range. That suits floats; posits are finest around 1
    and do better with a constant factor.

    Random words of stochastic rounding come from torch's generator of the parameter's device. The
    gradients of all parameters draw first. Then each parameter in turn draws for its states in
    their order, its master and its weight. To resume a run bit for bit, save ``state_dict()`` of
    the model and of this optimizer, and ``torch.get_rng_state()`` (on a GPU
    ``torch.cuda.get_rng_state()``).

    The next step notices weights that were changed by hand (by loading a checkpoint, by clipping).
    Elements that are no rounding of their masters then become masters. Writes that autograd's
    version counter does not see (to ``p.data``) go unnoticed.

    Raises:
        TypeError: no optimizer, one that needs sparse gradients, or a value that is no format.
        ValueError: an unknown format or mode; another weight format than the parameters' format
            dtype; parameters that are not real floating-point tensors; float32 masters of
            parameters that are computed in float64; a factor that float32 lacks, or whose
            reciprocal it lacks; a dynamic scale for an optimizer that calls closures; rounded
            states of ``RMSprop(centered=True)``.

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
            raise TypeError("expected an optimizer without a wrapper, but got a LowPrecision")
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
        # Versions of the parameters when this optimizer last wrote them.
        self._versions: dict[torch.Tensor, tuple] = {}
        self._applied: float | None = None  # the factor by which a loss was scaled, until a step
        self._factor_saturated = False
        self._begin()
        with torch.no_grad():
            checks.refuse_rounded_variance(self.param_groups, self._state_by_name, self._state)
            for p in self._parameters():
                checks.refuse_parameter(p, self._weight, self._grad, self._master, self._scale)
            for p in self._parameters():
                self._adopt(p)

    # The interface of Optimizer. Its __init__ would create groups and states, but those of the
    # inner optimizer serve.

    def _begin(self) -> None:
        # Sets up hooks, and the profiler's name of step.
        super().__setstate__({"defaults": self.optimizer.defaults})
        self._knows_states = not self._state.is_given  # False until states for state= are searched
        self._fit = Fit()

    @property
    def param_groups(self):
        """The inner optimizer's groups: parameters, learning rates and other options."""
        return self.optimizer.param_groups

    @property
    def state(self):
        """The inner optimizer's states by parameter, in their formats, as stored between steps."""
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
        """Add a group to the inner optimizer, and round its parameters to the format of weights."""
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
        """Multiply the loss by the factor. Its ``backward()`` then makes gradients for ``step()``.

        The factor is first rounded to the loss's dtype. To clip such gradients, multiply the bound
        by ``loss_scale``.

        Raises:
            ValueError: a constant factor is 0, infinite or NaN in the loss's dtype.
        """
        if not isinstance(loss, torch.Tensor) or not loss.is_floating_point():
            raise TypeError(
                f"expected the loss as a tensor of real numbers, but got {outline(loss)}"
            )
        if not self._scale.is_on:
            return loss
        # Backward begins with the factor in the loss's dtype, so the step has to divide by the
        # factor as this dtype rounds it.
        with rounding_block("nearest_even"):
            factor = (
                torch.tensor(self._scale.factor, dtype=torch.float32, device="cpu")
                .to(loss.dtype)
                .item()
            )
        # Every gradient would be 0, infinite or NaN. (An infinite dynamic factor skips the step and
        # becomes smaller.)
        if factor == 0 or not (self._scale.rule or math.isfinite(factor)):
            raise ValueError(
                "expected a grad_scale that the loss's dtype holds, but got "
                f"{self._scale.factor:g}, which is {factor:g} in {loss.dtype}; compute the loss in "
                "float32, from model(x).float(), or use another factor"
            )
        if self._applied not in (None, factor):
            raise RuntimeError(
                f"expected losses of one dtype between steps, but got {loss.dtype}, which rounds "
                f"the factor of {self._scale.factor:g} differently; convert the losses to float32"
            )
        self._applied = factor
        self._factor_saturated |= factor >= (overflow_limit(_C.format_of(loss.dtype)) or math.inf)
        return loss * torch.tensor(factor, dtype=torch.float32, device="cpu")

    # The step

    def step(self, closure: Callable[[], float] | None = None):
        """Run one step of the optimizer.

        Args:
            closure: computes the gradients and returns the loss. It is called once, before
                everything else, or several times if the optimizer needs one (LBFGS). With
                ``grad_scale`` it must call ``scale(loss).backward()`` and return ``loss``.

        Returns:
            The result of the closure, or ``None``.

        Raises:
            RuntimeError: with ``grad_scale``, no loss was scaled since the last step; or a gradient
                is sparse.
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
        """Return the reciprocal of the factor that scaled the loss, and forget the factor."""
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
        """Round a gradient, still scaled, to the format of gradients, in the dtype of the step."""
        g = p.grad.to(self._computes_in(p))
        return self._grad.values(g)

    def _computes_in(self, p) -> torch.dtype:
        state = [s.dtype for s in (self._state, *self._state_by_name.values())]
        return compute_type(
            p.dtype, self._weight.dtype, self._master and self._master.dtype, *state
        )

    def _prepare_tensor(self, p, gradient):
        """Return the tensor that the inner optimizer updates, with its gradient."""
        self._adopt(p)
        dtype = self._computes_in(p)
        kept = self._masters.get(p, p).detach()
        # Without a conversion, w shares the stored memory. Still it is another tensor than the
        # parameter, so that the parameter keeps its own gradient.
        w = kept.to(dtype)
        w.requires_grad_()
        w.grad = gradient
        return w

    def _run(self, working, *closure):
        """Run the inner optimizer's step on the working tensors instead of the parameters."""
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
        """Move the states of each key of ``tensors`` to its value."""
        states = self.optimizer.state
        for key in list(states):
            of_key = states.pop(key)  # all are moved, so that their order stays
            new = tensors.get(key, key) if isinstance(key, torch.Tensor) else key
            states[new] = of_key if new is key else change(new, of_key)

    def _rounds_state(self, p, name, value) -> Storage | None:
        """Return a state's storage, ``None`` for counts, numbers and lists."""
        if not isinstance(value, torch.Tensor) or not value.is_floating_point() or name == "step":
            return None
        if value.dim() == 0 and (p.dim() != 0 or name in _COUNTS):
            return None
        return self._state_by_name.get(name, self._state)

    def _states_for(self, w, states):
        """Decode the states of a parameter for the inner optimizer's computation."""
        if not isinstance(states, dict):
            return states
        return {
            name: self._of_state(w, name, value, lambda _, t: t.to(w.dtype))
            for name, value in states.items()
        }

    def _of_state(self, p, name, value, function):
        """Apply ``function(storage, tensor)`` to a state, or to each one of a list; counts and
        numbers stay."""
        if isinstance(value, list):
            return [self._of_state(p, name, v, function) for v in value]
        storage = self._rounds_state(p, name, value)
        return value if storage is None else function(storage, value)

    def _look_for_states(self, params) -> None:
        """Warn after the first step if the optimizer has no states for ``state=``."""
        self._knows_states, tensors = True, []
        for p in params:
            for name, value in self.state[p].items() if isinstance(self.state.get(p), dict) else ():
                self._of_state(p, name, value, lambda _, t: tensors.append(t))
        if not tensors:
            checks.warn_of_no_state(self._state, type(self.optimizer).__name__)

    def _keep(self, p, w) -> None:
        """Round and store the states, the master and the weight that a step computed."""
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
        """Round a state. One that a step divides by is never rounded to 0."""
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
        """Create a parameter's master, or update it where the parameter was changed by hand."""
        if self._versions.get(p) == checks.version(p):
            return
        storage, dtype = self._weights_of(p), self._computes_in(p)
        if p in self._masters:
            now, w = p.detach().to(dtype), self._masters[p].to(dtype)
            # Stochastic modes give one of these two as well.
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
            # Rounding exact values would still draw random words, for example after resuming.
            if not storage.holds(w):
                p.copy_(storage.keep(w, None))
        self._versions[p] = checks.version(p)

    # Saving and resuming

    def state_dict(self):
        """Return the inner optimizer's ``state_dict()``, with the loss scale and the masters, by
        their parameters' indices, as ``"low_precision"``."""
        masters = {
            i: self._masters[p] for i, p in enumerate(self._parameters()) if p in self._masters
        }
        return {
            **super().state_dict(),
            _KEY: {"masters": masters, "scale": self._scale.state_dict()},
        }

    def load_state_dict(self, state_dict) -> None:
        """Load the ``state_dict()`` of an optimizer with the same formats, without rounding again.

        Raises:
            ValueError: the state dict has no masters, or masters of other parameters or dtypes.
        """
        if not isinstance(state_dict, dict):
            raise TypeError(
                f"expected a state_dict of LowPrecision as a dict, but got {state_dict!r}"
            )
        if _KEY not in state_dict:
            raise ValueError(
                "expected a state_dict of LowPrecision, but got one with "
                f"{', '.join(map(repr, state_dict)) or 'nothing'}; "
                "load that of a plain optimizer before you wrap it"
            )
        params, own = self._parameters(), state_dict[_KEY]
        masters = own["masters"]
        checks.refuse_masters(
            masters, {i: self._masters[p] for i, p in enumerate(params) if p in self._masters}
        )
        inner = self.optimizer
        # PyTorch casts loaded states to the dtype of the groups' parameters.
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
        self._versions.clear()  # so that the order of loading model and optimizer does not matter

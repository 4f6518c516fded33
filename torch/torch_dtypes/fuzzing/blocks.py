"""fuzzy(model): a block of code whose float32 arithmetic is rounded in a given mode.

A TorchDispatchMode runs below autograd. It sees the operators of stock derivatives, losses and
optimizers as it sees those of layers. It runs each operator by its plan (plans.py) on the values of
the same tensors: all parameters, buffers and results stay float32.
"""

from __future__ import annotations

import bisect
import contextlib
import threading
import warnings
from collections import Counter
from collections.abc import Iterable

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from .. import _C
from ..formats.arguments import boolean, mode_name
from ..policies.accumulation import Accumulation, accumulation_block
from ..policies.rounding import own_modes
from .arguments import check_level, check_model, check_seed, find_module_names, has_float64
from .arithmetic import Arithmetic, instruction_block
from .instructions import find_instructions
from .plans import (
    FLOAT32,
    Way,
    each_tensor,
    find_plan,
    holds_float32,
    leaves,
    map_nested,
    only_in_float32,
    promotes_to_float64,
)

__all__ = ["Fuzzy", "fuzzy"]


_UNSCALE = torch.ops.aten._amp_foreach_non_finite_check_and_unscale_.default
# Texts of the errors that stock float32-only kernels raise for float64.
_NO_KERNEL = ("not implemented for", "unsupported data type")


class _Mode(TorchDispatchMode):
    def __init__(self, block: Fuzzy) -> None:
        super().__init__()
        self.block = block

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Say no: Dynamo never compiles these frames (host/hooks/graphs.py), and the default would
        import it."""
        return False

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        return self.block._run(op, args, kwargs or {})


class _Where:
    """Tracks whether a chosen module runs now, or ran the operator that is being differentiated.

    Autograd numbers the nodes of a thread in the order of recording. The numbers at which modules
    begin and end tell which module a node belongs to.
    """

    def __init__(self, model: nn.Module, chosen: set[str], nested: bool) -> None:
        self.model, self.chosen, self.nested = model, chosen, nested
        self.stack: list[bool] = []
        self.places: list[int] = []  # sequence numbers at which the state changes
        self.states: list[bool] = []  # whether nodes from there on are of a chosen module
        self.hooks: list = []
        self.thread = threading.get_ident()

    def watch(self) -> None:
        for name, module in self.model.named_modules(remove_duplicate=False):
            here = name in self.chosen
            self.hooks.append(
                module.register_forward_pre_hook(lambda *_, here=here: self._enter(here))
            )
            self.hooks.append(
                module.register_forward_hook(lambda *_: self._exit(), always_call=True)
            )

    def unwatch(self) -> None:
        for hook in self.hooks:
            hook.remove()
        self.hooks.clear()
        self.stack.clear()

    def _enter(self, here: bool) -> None:
        if threading.get_ident() == self.thread:
            self.stack.append(here or (self.nested and self._inside()))
            self._note()

    def _exit(self) -> None:
        if threading.get_ident() == self.thread and self.stack:
            self.stack.pop()
            self._note()

    def _inside(self) -> bool:
        return bool(self.stack) and self.stack[-1]

    def _note(self) -> None:
        state, number = self._inside(), torch.autograd._get_sequence_nr()
        if self.places and self.places[-1] == number:
            self.states[-1] = state
        elif not self.states or self.states[-1] != state:
            self.places.append(number)
            self.states.append(state)

    def chosen_now(self) -> bool:
        node = torch._C._current_autograd_node()
        # In forward, or in backward where activations are recomputed.
        if node is None or self.stack:
            return self._inside()
        at = bisect.bisect_right(self.places, node._sequence_nr()) - 1
        # The last change is the end of a module.
        return at >= 0 and at < len(self.states) - 1 and self.states[at]


class Fuzzy(contextlib.ContextDecorator):
    """A block with ``fuzzy`` arithmetic. It can be entered again after each exit.

    Attributes:
        operations: counts of the operators that the last block rounded, by name.
        unseen: counts of the operators with float32 results that it left alone, by name: operators
            of other libraries, on sparse tensors, or without a float64 kernel.
    """

    def __init__(self, model, mode, format, modules, nested, level, fused, accumulate, seed):
        self.mode = mode_name(mode)
        self.level, self.fused = check_level(level, fused, accumulate)
        policy = None if accumulate is None else accumulation_block(accumulate)
        if level == "instruction":
            policy = instruction_block(fused)
        self.arithmetic = Arithmetic(format, self.mode, policy)
        self.accumulate, self.seed = accumulate, check_seed(seed)
        self._steps = policy is not None  # sums follow a policy
        self.operations: Counter[str] = Counter()
        self.unseen: Counter[str] = Counter()
        if model is not None:
            check_model(model)
        self._model = model
        self._chosen = None if modules is None else find_module_names(model, modules)
        self._nested = boolean("nested", nested)
        self._where: _Where | None = None
        self._stack: contextlib.ExitStack | None = None
        self._warned: set[str] = set()

    def __enter__(self) -> Fuzzy:
        if self._stack is not None:
            raise RuntimeError(
                "expected a block of fuzzy arithmetic that is not entered yet, but got one that "
                "is: make another by fuzzy(...)"
            )
        with contextlib.ExitStack() as stack:
            source = torch.Generator().manual_seed(
                torch.randint(2**62, ()).item() if self.seed is None else self.seed
            )
            before = _C.set_word_source(source)
            stack.callback(_C.set_word_source, before)
            _disable_fused_kernels(stack, self._model if self._chosen is not None else None)
            if self._chosen is not None:
                self._where = _Where(self._model, self._chosen, self._nested)
                self._where.watch()
                stack.callback(self._where.unwatch)
            self.operations, self.unseen = Counter(), Counter()
            stack.enter_context(_Mode(self))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exception) -> None:
        stack, self._stack = self._stack, None
        stack.__exit__(*exception)
        self._where = None

    def _run(self, op, args, kwargs):
        plan = find_plan(op)
        if (plan is not None and plan.way is Way.LEFT) or (
            self._where is not None and not self._where.chosen_now()
        ):
            return op(*args, **kwargs)
        tensors = [*each_tensor(args), *each_tensor(kwargs.values())]
        if leaves(plan, args, kwargs, tensors) or any(t.is_meta for t in tensors):
            return op(*args, **kwargs)
        if not any(map(holds_float32, tensors)):
            return self._run_other_dtypes(op, plan, args, kwargs, tensors)
        if promotes_to_float64(tensors) or (
            plan is not None and kwargs.get("dtype") not in (None, *FLOAT32)
        ):
            return op(*args, **kwargs)
        if plan is None or only_in_float32(op, tensors):
            return self._run_unseen(op, args, kwargs)
        return self._perturb(op, plan, args, kwargs, tensors)

    def _run_other_dtypes(self, op, plan, args, kwargs, tensors):
        """Run an operator without float32 operands. Some make float32 results: of integers by the
        default dtype, of others by ``dtype=``."""
        results = op(*args, **kwargs)
        float32_results = [t for t in each_tensor((results,)) if holds_float32(t)]
        is_requested = kwargs.get("dtype") in FLOAT32
        if (
            not tensors
            or not float32_results
            or (
                not is_requested
                and any(
                    (t.is_floating_point() or t.is_complex()) and not t.is_quantized
                    for t in tensors
                )
            )
        ):
            # A narrow result may come with float32 statistics; they are part of its arithmetic.
            return results
        if plan is None or only_in_float32(op, [*tensors, *float32_results]):
            self._note_unseen(op)
            return results
        if plan.way is Way.PRODUCTS and self._steps:  # their steps begin with float32 numbers
            args = map_nested(
                args, lambda a: a.to(torch.float32) if isinstance(a, torch.Tensor) else a
            )
            tensors = [*each_tensor(args)]
        return self._perturb(op, plan, args, kwargs, tensors)

    def _perturb(self, op, plan, args, kwargs, tensors):
        elsewhere = next((t.device for t in tensors if not has_float64(t.device)), None)
        if elsewhere is not None:
            raise NotImplementedError(
                f"fuzzy: expected a tensor on a device with float64, but {op} got one on "
                f"{elsewhere}. Move it with .cpu(), or work on it outside of the block"
            )
        if op is _UNSCALE:
            return self._run_unscale(*args)
        with own_modes() if _C.rounding_override() is not None else contextlib.nullcontext():
            return self._compute(op, plan, args, kwargs, tensors)

    def _compute(self, op, plan, args, kwargs, tensors):
        instructions = find_instructions(op) if self.level == "instruction" else None
        if instructions is not None and not any(t.is_complex() for t in tensors):
            with _Mode(self):  # which is off here; the sequence's operators come back to it
                return instructions(*args, **kwargs)
        self.operations[op._opname] += 1
        real = not any(type(a) is complex for a in (*args, *kwargs.values()))
        alone = real and all(t.dtype is torch.float32 for t in tensors)
        if real and plan.way is Way.NATIVE and self.arithmetic.native and not alone:
            args, kwargs = self.arithmetic.narrow_operands(args, kwargs)
            alone = all(t.dtype is torch.float32 for t in each_tensor((args, *kwargs.values())))
        steps = plan.way is Way.PRODUCTS and self._steps
        if alone and (steps or (plan.way is Way.NATIVE and self.arithmetic.native)):
            return self.arithmetic.compute_in_format(op, plan, args, kwargs, steps)
        try:
            return self.arithmetic.compute_in_float64(op, plan, args, kwargs)
        except (NotImplementedError, RuntimeError) as error:
            if "stock operators" in str(error):  # the CPU's kernels can do it
                raise
            # Under autocast a kernel may take narrow inputs with float32 alone.
            narrow = any(t.dtype in (torch.float16, torch.bfloat16) for t in tensors)
            if (
                not isinstance(error, NotImplementedError)
                and not narrow
                and not any(text in str(error) for text in _NO_KERNEL)
            ):
                raise
            self.operations[op._opname] -= 1
            return self._run_unseen(op, args, kwargs)

    def _run_unscale(self, gradients, found_inf, inverse_scale):
        """Run GradScaler's operator, which has no float64 form: its search for infinities, then
        products."""
        _UNSCALE([g.clone() for g in gradients], found_inf, inverse_scale)
        for g in gradients:
            self._run(torch.ops.aten.mul_.Tensor, (g, inverse_scale), {})

    def _run_unseen(self, op, args, kwargs):
        self._note_unseen(op)
        return op(*args, **kwargs)

    def _note_unseen(self, op) -> None:
        name = op._schema.name
        self.unseen[name] += 1
        if name not in self._warned:
            self._warned.add(name)
            why = (
                "it is not a PyTorch operator, has no float64 kernel, or its operands are not dense"
            )
            warnings.warn(f"fuzzy: {name} runs in stock float32 arithmetic: {why}", stacklevel=5)

    def __repr__(self) -> str:
        where = "" if self._chosen is None else f", modules={sorted(self._chosen)}"
        return (
            f"fuzzy(mode={self.mode!r}, format={_C.name_of(self.arithmetic.exact)!r}, "
            f"level={self.level!r}, fused={self.fused}, "
            f"accumulate={None if self.accumulate is None else str(self.accumulate)!r}, "
            f"seed={self.seed}{where})"
        )


def _disable_fused_kernels(stack: contextlib.ExitStack, model: nn.Module | None) -> None:
    """Turn off kernels that do the work of many operators at once and that PyTorch can replace by
    those operators."""
    stack.callback(torch.backends.cuda.enable_flash_sdp, torch.backends.cuda.flash_sdp_enabled())
    # The flag holds for the CPU's kernel too; torch.nn.attention.sdpa_kernel is slow to import.
    torch.backends.cuda.enable_flash_sdp(False)
    stack.callback(
        torch.backends.cuda.enable_mem_efficient_sdp,
        torch.backends.cuda.mem_efficient_sdp_enabled(),
    )
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    stack.callback(torch.backends.cuda.enable_cudnn_sdp, torch.backends.cuda.cudnn_sdp_enabled())
    torch.backends.cuda.enable_cudnn_sdp(False)
    stack.callback(
        torch.backends.mha.set_fastpath_enabled, torch.backends.mha.get_fastpath_enabled()
    )
    # The fast path runs a whole nn.TransformerEncoderLayer as one operator.
    torch.backends.mha.set_fastpath_enabled(False)
    if model is None or any(isinstance(m, nn.LSTM) for m in model.modules()):
        before = torch.backends.mkldnn.enabled  # its LSTM has no float64 form either
        # Mkldnn.flags() would also set its TF32, with a warning.
        torch._C._set_mkldnn_enabled(False)
        stack.callback(torch._C._set_mkldnn_enabled, before)
    if model is None or any(isinstance(m, nn.RNNBase) for m in model.modules()):
        stack.callback(torch._C._set_cudnn_enabled, torch.backends.cudnn.enabled)
        torch._C._set_cudnn_enabled(False)  # its recurrent layers are one operator each


def fuzzy(
    model: nn.Module | None = None,
    mode: str | int = "stochastic",
    *,
    format: torch.dtype | str = "e8m23",
    modules: Iterable[str | nn.Module] | None = None,
    nested: bool = True,
    level: str = "operator",
    fused: bool = True,
    accumulate: str | Accumulation | None = None,
    seed: int | None = None,
) -> Fuzzy:
    """Run float32 code in a block that rounds each operation's result in another mode::

        with torch_dtypes.fuzzy(model, "stochastic", seed=1):
            y = model(x)                       # float32; another y for each seed
            criterion(y, t).backward()
            optimizer.step()

    Repeated runs show how many digits of a result rounding decides (``significant_digits``). The
    block works below autograd: forward, in backward and in optimizers. Each PyTorch operator that
    computes on float32 tensors gives its exact result (``+ - * / sqrt``, fused multiply-add) or
    float64's, rounded to float32 by ``mode``. In ``"stochastic"`` a result goes up or down with
    probabilities that keep the mean, and exact results stay. In ``"up_down"`` it rounds to nearest
    and then moves by one number, up or down. A Python number has its float32 value, as in stock
    arithmetic. An integer tensor has its own value (``torch.arange(3) / 3`` is float32 arithmetic,
    too). NaN stays NaN, overflow is infinite. Blocks of ``rounding`` change only results in number
    formats, so ``mode`` holds within and around them. Tensors stay float32, the same objects. The
    block leaves alone arithmetic in other dtypes, operators that move, select, compare or draw
    values, and those that make tensors of numbers (``linspace``, ``arange``, ``full``, windows).

    Args:
        model: a float32 module on a device that has float64 (all but MPS); None for code without a
            module.
        mode: one of ``ROUNDING_MODES``, ``"stochastic_a4"`` (with 4 random bits), or Pychop's
            number. Modes without random bits work too, such as ``"toward_zero"``.
        format: the dtype, or its name, to which results are rounded; float32 must have all its
            values. Operands that the format lacks (parameters) round to nearest where they are
            used.
        modules: names (``named_modules()``) or modules of ``model`` whose operators are rounded,
            forward and backward; the others run in stock arithmetic. None: all operators of the
            block on this thread, losses and optimizers included.
        nested: whether a named module includes the modules within it.
        level: ``"operator"`` rounds each operator's result once. ``"instruction"`` rounds each
            multiply-add of matrix products, convolutions, attention and sums, in index order.
            Normalisation, softmax, losses, norms and variances then run as sequences of elementwise
            operators and sums.
        fused: at the level ``"instruction"``, whether a product and its sum are rounded once,
            together, as compilers emit them; otherwise each is rounded.
        accumulate: at the level ``"operator"``, the policy (``torch_dtypes.accumulate``) that adds
            up matrix products, convolutions and sums. None: float64's sum, which is rounded once.
        seed: the seed of the rounding's random bits, 0 to 2^63 - 1; each entry of the block starts
            from it. None: drawn from torch's generator at entry. Nothing else draws from that
            generator, so dropout and the order of data are the same as without the block.

    Returns:
        A :class:`Fuzzy`, to enter as a block or to decorate a function with.

    Not seen: NumPy, TorchScript's fused code, compiled code (call the model itself), CUDA graphs'
    runs, data loaders' processes. ``Fuzzy.unseen`` counts operators that run in stock float32.
    These are operators of other libraries, on sparse, nested, quantized and oneDNN tensors, or
    without a float64 kernel, such as normalisation with autocast's narrow inputs. Attention runs by
    its mathematical definition, an LSTM by its steps. On a GPU a cell of an LSTM or GRU is one
    operator and rounds once, where the CPU rounds each step. In a block whose model has recurrent
    layers (or without a model) cuDNN is off, for convolutions too.

    Raises:
        TypeError: not a module, or parameters that are not float32.
        ValueError: an unknown mode, format, level, policy, module or seed, another device;
            ``accumulate`` at the level ``"instruction"``, ``fused=False`` at the other.
        NotImplementedError: in the block, arithmetic on tensors of a device without float64.

    Sources: Parker, "Monte Carlo arithmetic" (1997); Févotte and Lathuilière, "Verrou" (2016);
    Gonzalez-Pepe, Akhaddar, Glatard, Chatelain, "Fuzzy PyTorch" (arXiv 2605.25991), for up-down
    rounding.

    Example::

        >>> x = torch.full((1000,), 0.1)
        >>> with torch_dtypes.fuzzy(seed=1):
        ...     y = x * x
        >>> len(y.unique()), abs(y.double().mean().item() / 0.1**2 - 1) < 1e-7
        (2, True)
    """
    return Fuzzy(model, mode, format, modules, nested, level, fused, accumulate, seed)

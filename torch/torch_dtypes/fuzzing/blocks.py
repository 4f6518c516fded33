"""fuzzy(model): a block of code whose floating-point arithmetic is rounded in a given mode.

A TorchDispatchMode runs below autograd. It sees the operators of stock derivatives, losses and
optimizers as it sees those of layers. It runs each operator by its plan (plans.py) on the values of
the same tensors: all parameters, buffers and results keep their dtypes.
"""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections import Counter
from collections.abc import Iterable

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from .. import _C
from ..formats.arguments import boolean, mode_and_bits, mode_name
from ..formats.naming import DRAWING_MODES
from ..policies.accumulation import Accumulation, accumulation_block
from ..policies.rounding import own_modes, rounding_block
from .arguments import check_level, check_model, check_seed, find_module_names, has_float64
from .arithmetic import NARROW, instruction_block
from .fused_kernels import disable_fused_kernels
from .instructions import find_instructions
from .plans import (
    Way,
    each_tensor,
    find_dtypes,
    find_plan,
    has_no_float64_form,
    leaves,
    map_nested,
)
from .precisions import Precisions, find_dtype, is_known
from .where import Where

__all__ = ["Fuzzy", "fuzzy"]


_UNSCALE = torch.ops.aten._amp_foreach_non_finite_check_and_unscale_.default
# Reasons why an operator runs in stock arithmetic.
_NO_FORM = "it is not a PyTorch operator, has no float64 kernel, or its operands are not dense"
_SOLVES = "the errors of a float64 factorisation or solution are not known"
_FIXED = "the errors of stock float64 kernels are not known, and the mode draws nothing"
_NUMPY = "fuzzy rounds PyTorch's operators alone"
# Operators whose float64 results are exact, or whole numbers.
_EXACT = {"fmod", "floor_divide", "ldexp"}
_TO_NUMPY = {torch.Tensor.numpy, torch.Tensor.__array__}
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


class _SeesNumPy(TorchFunctionMode):
    """Counts the tensors that leave for NumPy."""

    def __init__(self, block: Fuzzy) -> None:
        super().__init__()
        self.block = block

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function in _TO_NUMPY and self.block.precisions.takes(args[0].dtype):
            self.block._note_unseen("numpy", args[0].dtype, _NUMPY)
        return function(*args, **(kwargs or {}))


class Fuzzy(contextlib.ContextDecorator):
    """A block with ``fuzzy`` arithmetic. It can be entered again after each exit.

    Attributes:
        operations: counts of the operators that the last block rounded, by name.
        unseen: counts of the operators that it left in stock arithmetic, by name: of other
            libraries, on sparse tensors, without a float64 kernel, LAPACK's in float64. "numpy"
            counts the tensors that left for NumPy.
    """

    def __init__(self, model, mode, format, modules, nested, level, fused, accumulate, seed):
        self.mode = mode_name(mode)
        self.level, self.fused = check_level(level, fused, accumulate)
        policy = None if accumulate is None else accumulation_block(accumulate)
        if level == "instruction":
            policy = instruction_block(fused)
        self.precisions = Precisions(format, self.mode, policy)
        self._draws = mode_and_bits(self.mode)[0].name in DRAWING_MODES
        self._in_formats, self._sums = rounding_block(self.mode), policy or contextlib.nullcontext()
        self.accumulate, self.seed = accumulate, check_seed(seed)
        self._steps = policy is not None  # sums follow a policy
        self.operations: Counter[str] = Counter()
        self.unseen: Counter[str] = Counter()
        if model is not None:
            check_model(model, format is None)
        self._model = model
        self._chosen = None if modules is None else find_module_names(model, modules)
        self._nested = boolean("nested", nested)
        self._where: Where | None = None
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
            disable_fused_kernels(stack, self._model if self._chosen is not None else None)
            if self._chosen is not None:
                self._where = Where(self._model, self._chosen, self._nested)
                self._where.watch()
                stack.callback(self._where.unwatch)
            self.operations, self.unseen = Counter(), Counter()
            stack.enter_context(_SeesNumPy(self))
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
        if not tensors or leaves(plan, args, kwargs, tensors) or any(t.is_meta for t in tensors):
            return op(*args, **kwargs)
        if any(map(_C.is_format_tensor, tensors)):
            return self._run_in_formats(op, args, kwargs)
        dtype = find_dtype(plan, args, kwargs, tensors)
        if dtype is None:
            return self._run_on_integers(op, plan, args, kwargs, tensors)
        if not self.precisions.takes(dtype):
            return op(*args, **kwargs)
        if plan is None or has_no_float64_form(op, tensors):
            return self._run_unseen(op, args, kwargs, dtype)
        return self._perturb(op, plan, args, kwargs, tensors, dtype)

    def _run_in_formats(self, op, args, kwargs):
        """Run an operator on format tensors, whose kernels round by the block's mode."""
        if not self.precisions.are_own:
            return op(*args, **kwargs)
        self.operations[op._opname] += 1
        with self._in_formats, self._sums:
            return op(*args, **kwargs)

    def _run_on_integers(self, op, plan, args, kwargs, tensors):
        """Run an operator without a floating-point operand. Some make results of the default
        dtype."""
        results = op(*args, **kwargs)
        made = [t for t in each_tensor((results,)) if self.precisions.takes(t.dtype)]
        if not made:
            return results
        narrow = any(t.dtype.itemsize == 1 and t.dtype.is_floating_point for t in tensors)
        if plan is None or narrow or has_no_float64_form(op, [*tensors, *made]):
            self._note_unseen(op._schema.name, made[0].dtype)
            return results
        return self._perturb(op, plan, args, kwargs, tensors, made[0].dtype)

    def _perturb(self, op, plan, args, kwargs, tensors, dtype):
        elsewhere = next((t.device for t in tensors if not has_float64(t.device)), None)
        if elsewhere is not None:
            raise NotImplementedError(
                f"fuzzy: expected a tensor on a device with float64, but {op} got one on "
                f"{elsewhere}. Move it with .cpu(), or work on it outside of the block"
            )
        if op is _UNSCALE:
            return self._run_unscale(*args)
        with own_modes() if _C.rounding_override() is not None else contextlib.nullcontext():
            return self._compute(op, plan, args, kwargs, tensors, dtype)

    def _compute(self, op, plan, args, kwargs, tensors, dtype):
        instructions = None
        if self.level == "instruction" and not any(t.is_complex() for t in tensors):
            instructions = find_instructions(op)
        arithmetic, round_to = self.precisions.find(dtype), self.precisions.round_to
        if instructions is not None:
            run = functools.partial(self._run_instructions, instructions)
            if not any(t.dtype in NARROW for t in tensors):
                return run(args, kwargs)
            self.operations[op._opname] += 1
            dtypes = find_dtypes(op, args, kwargs)
            return arithmetic.compute_in_steps(plan, args, kwargs, run, round_to, dtypes)
        numbers = (*args, *kwargs.values())
        real = not dtype.is_complex and not any(type(a) is complex for a in numbers)
        steps = plan.way is Way.PRODUCTS and self._steps
        alone = real and all(t.dtype is dtype for t in tensors)
        if real and not alone:
            if steps and (kwargs.get("dtype") or not any(is_known(t.dtype) for t in tensors)):
                # The steps begin with numbers of the dtype.
                args = map_nested(args, lambda a: a.to(dtype) if torch.is_tensor(a) else a)
                alone = True
            elif plan.way is Way.NATIVE and arithmetic.native:
                args, kwargs = arithmetic.narrow_operands(args, kwargs)
                alone = all(t.dtype is dtype for t in each_tensor((args, *kwargs.values())))
        self.operations[op._opname] += 1
        if alone and steps and dtype is torch.float64 and self.level == "instruction":
            raise NotImplementedError(
                "fuzzy: expected float32, float16 or bfloat16 tensors for level='instruction', "
                f"but {op} got float64; use level='operator'"
            )
        if alone and steps and dtype in NARROW:
            of_float32 = self.precisions.find(torch.float32)
            run = functools.partial(of_float32.compute_in_format, op, plan, steps=True)
            return arithmetic.compute_in_steps(plan, args, kwargs, run, round_to)
        if alone and (steps or (plan.way is Way.NATIVE and arithmetic.native)):
            return arithmetic.compute_in_format(op, plan, args, kwargs, steps=steps)
        try:
            return self._compute_in_float64(op, plan, args, kwargs, tensors, arithmetic)
        except (NotImplementedError, RuntimeError) as error:
            if "stock operators" in str(error):  # the CPU's kernels can do it
                raise
            # Under autocast a kernel may take narrow inputs with float32 alone.
            narrow = any(t.dtype in NARROW for t in tensors)
            if (
                not isinstance(error, NotImplementedError)
                and not narrow
                and not any(text in str(error) for text in _NO_KERNEL)
            ):
                raise
            self.operations[op._opname] -= 1
            return self._run_unseen(op, args, kwargs, dtype)

    def _run_instructions(self, instructions, args, kwargs):
        with _Mode(self):  # which is off here; the sequence's operators come back to it
            return instructions(*args, **kwargs)

    def _run_unscale(self, gradients, found_inf, inverse_scale):
        """Run GradScaler's operator, which has no float64 form: its search for infinities, then
        products."""
        _UNSCALE([g.clone() for g in gradients], found_inf, inverse_scale)
        for g in gradients:
            self._run(torch.ops.aten.mul_.Tensor, (g, inverse_scale), {})

    def _compute_in_float64(self, op, plan, args, kwargs, tensors, arithmetic):
        if arithmetic.stock is torch.float64:
            if kwargs.get("rounding_mode") or op._opname.rstrip("_") in _EXACT:
                return op(*args, **kwargs)
            if plan.solves:
                return self._run_unseen(op, args, kwargs, torch.float64, _SOLVES)
            if not self._draws:
                if self.mode != "nearest_even":
                    return self._run_unseen(op, args, kwargs, torch.float64, _FIXED)
                return op(*args, **kwargs)
        dtypes = {t.dtype for t in tensors if is_known(t.dtype)}
        # Normalisation gives statistics of another dtype, for some operands and devices.
        mixed = (
            not plan.pointwise
            and not all(plan.results)
            and (len(dtypes) > 1 or (len(plan.results) > 1 and dtypes <= NARROW))
        )
        if mixed and not self.precisions.are_own:
            return self._run_unseen(op, args, kwargs, torch.float32)
        return arithmetic.compute_in_float64(
            op, plan, args, kwargs, self.precisions.round_to, mixed
        )

    def _run_unseen(self, op, args, kwargs, dtype, why=_NO_FORM):
        self._note_unseen(op._schema.name, dtype, why)
        return op(*args, **kwargs)

    def _note_unseen(self, name, dtype, why=_NO_FORM) -> None:
        self.unseen[name] += 1
        if name not in self._warned:
            self._warned.add(name)
            of = str(dtype).removeprefix("torch.")
            warnings.warn(f"fuzzy: {name} runs in stock {of} arithmetic: {why}", stacklevel=5)

    def __repr__(self) -> str:
        where = "" if self._chosen is None else f", modules={sorted(self._chosen)}"
        return (
            f"fuzzy(mode={self.mode!r}, format={self.precisions.format_name!r}, "
            f"level={self.level!r}, fused={self.fused}, "
            f"accumulate={None if self.accumulate is None else str(self.accumulate)!r}, "
            f"seed={self.seed}{where})"
        )


def fuzzy(
    model: nn.Module | None = None,
    mode: str | int = "stochastic",
    *,
    format: torch.dtype | str | None = None,
    modules: Iterable[str | nn.Module] | None = None,
    nested: bool = True,
    level: str = "operator",
    fused: bool = True,
    accumulate: str | Accumulation | None = None,
    seed: int | None = None,
) -> Fuzzy:
    """Run code in a block that rounds each operation's result in another mode::

        with torch_dtypes.fuzzy(model, "stochastic", seed=1):
            y = model(x)                       # float32; another y for each seed
            criterion(y, t).backward()
            optimizer.step()

    Repeated runs show how many digits of a result rounding decides (``significant_digits``). The
    block works below autograd: forward, in backward and in optimizers. Each PyTorch operator that
    computes on float32, float16 or bfloat16 tensors gives its exact result (``+ - * / sqrt``, fused
    multiply-add) or float64's, rounded once to the tensors' dtype by ``mode``. In float64 ``+ - * /
    sqrt`` have their exact results, too. The errors of other float64 kernels are not known. They
    are taken to be uniform within half a unit in the last place, and the result moves with them: it
    stays in 3 of 4 cases. Format tensors round in their own format by ``mode``; casts to a format
    keep its own mode. In ``"stochastic"`` a result goes up or down with probabilities that keep the
    mean, and exact results stay. In ``"up_down"`` it rounds to nearest and then moves by one
    number, up or down. A Python number has its float32 value beside float32 and narrower tensors,
    as in stock arithmetic. An integer tensor has its own value (``torch.arange(3) / 3`` is float32
    arithmetic, too). NaN stays NaN, overflow is infinite. Blocks of ``rounding`` change only
    results in number formats, so ``mode`` holds within and around them. Tensors keep their dtypes,
    the same objects. The block leaves alone operators that move, select, compare or draw values,
    conversions, and those that make tensors of numbers (``linspace``, ``arange``, ``full``,
    windows).

    Args:
        model: a module on a device that has float64 (all but MPS); None for code without a module.
        mode: one of ``ROUNDING_MODES``, ``"stochastic_a4"`` (with 4 random bits), or Pychop's
            number. Modes without random bits work too, such as ``"toward_zero"``.
        format: None: each tensor's own numbers. A dtype, or its name: a format in float32's place,
            whose values float32 must all have. Operands that the format lacks (parameters) round to
            nearest where they are used. Arithmetic in other dtypes is left alone then.
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
    runs, data loaders' processes. ``Fuzzy.unseen`` counts operators that run in stock arithmetic,
    and a warning names each once. These are operators of other libraries, on sparse, nested,
    quantized and oneDNN tensors, or without a float64 kernel. In float64 they are factorisations
    and solutions (LAPACK), and functions in modes that draw nothing. ``"numpy"`` counts the tensors
    that leave for NumPy. Attention runs by its mathematical definition, an LSTM by its steps. On a
    GPU a cell of an LSTM or GRU is one operator and rounds once, where the CPU rounds each step. In
    a block whose model has recurrent layers (or without a model) cuDNN is off, for convolutions
    too.

    Raises:
        TypeError: not a module, or parameters that are not float32 with ``format``.
        ValueError: an unknown mode, format, level, policy, module or seed, another device;
            ``accumulate`` at the level ``"instruction"``, ``fused=False`` at the other.
        NotImplementedError: in the block, arithmetic on tensors of a device without float64; sums
            and products in float64 at the level ``"instruction"``.

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

"""What varies among the sizes of an exported program's arguments, and examples of other sizes.

Stock's exporter says which sizes may vary (``dynamic_shapes``). What a model's own code asks of them is found by a run on ``Codes``, which have
symbolic sizes and no values: it leaves guards. Examples are the user's own, cut short or repeated.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from itertools import count, islice
from typing import Any

import sympy
import torch
from torch._dispatch.python import enable_python_dispatcher
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._sympy.printers import PythonPrinter

from .. import _C
from .._codes import bits_dtype
from . import codes, operators

_SOUGHT = 40  # sizes that are tried for each that is wanted
_WANTED = 4  # of each size that varies


class _Shapes(torch.nn.Module):
    """Has a model's arguments, and asks nothing of them."""

    def __init__(self, signature: inspect.Signature) -> None:
        super().__init__()

        def forward(*args, **kwargs):
            return [v.clone() for v in pytree.tree_leaves((args, kwargs)) if isinstance(v, torch.Tensor)]

        forward.__signature__ = signature
        self.forward = forward


class _AsInGraphs(TorchFunctionMode):
    """Functions of torch's on ``Codes`` whose stock formula has no place for our dtypes, and those that are given one, as Dynamo knows them."""

    def __enter__(self):
        _C.set_witness(_named)
        return super().__enter__()

    def __exit__(self, *args) -> None:
        _C.set_witness(None)
        super().__exit__(*args)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        try:
            return func(*args, **kwargs)
        except NotImplementedError:
            if (made := codes.without_values(func, args, kwargs)) is None:
                raise
            return made


def _named(name: str, self: object, args: tuple, kwargs: dict) -> object:
    """The fake result of a function that is given a dtype of ours."""
    if name == "to":
        return codes.cast(self, args, kwargs)
    named = [v for v in (*args, *kwargs.values()) if isinstance(v, torch.dtype) and _C.format_of(v) is not None]
    if not named:  # a default dtype
        return NotImplemented
    args, kwargs = pytree.tree_map_only(torch.dtype, lambda d: torch.float64, (args, kwargs))
    result = getattr(torch if self is None else self, name)(*args, **kwargs)
    return pytree.tree_map_only(torch.Tensor, lambda t: codes.Codes(torch.empty_like(t, dtype=bits_dtype(named[0])), named[0]), result)


class Varying:
    """The sizes that may vary: ``symbols``, and by ``at`` their values for arguments at hand.

    ``checks``: what must hold of them. ``examples()``: leaves of the arguments in other sizes.
    """

    def __init__(self, model: torch.nn.Module, leaves: list, given: tuple[tuple, dict], dynamic_shapes: Any) -> None:
        program = torch.export.export(_Shapes(inspect.signature(model.forward)), *given, dynamic_shapes=dynamic_shapes)
        self._leaves = leaves
        self._fakes = [node.meta["val"] for node in program.graph.nodes if node.op == "placeholder"]
        if any(isinstance(v, torch.SymInt) for v in self._fakes):
            raise NotImplementedError(
                "expected dynamic_shapes of tensors alone, but got one of a number, which a program in number formats has as a constant"
            )
        self._lower = {str(k): int(v.lower) for k, v in program.range_constraints.items()}
        symbolic = [n for v in self._fakes if isinstance(v, torch.Tensor) for n in (*v.shape, *v.stride()) if isinstance(n, torch.SymInt)]
        self._env = symbolic[0].node.shape_env if symbolic else None
        self._mode = next((v.fake_mode for v in self._fakes if isinstance(v, torch.Tensor)), None)

    def __bool__(self) -> bool:
        return self._env is not None

    def ask(self, function: Callable, state: list[torch.Tensor]) -> None:
        """Runs a function of the arguments and the state on fakes; what it asks of sizes is known then."""

        def as_codes(tensor: torch.Tensor, fake: torch.Tensor) -> torch.Tensor:
            return codes.Codes(fake, tensor.dtype) if _C.is_format_tensor(tensor) else fake

        def fake(tensor: torch.Tensor) -> torch.Tensor:
            own = _C.is_format_tensor(tensor)
            return self._mode.from_tensor(_C.alias_codes(tensor.detach()) if own else tensor.detach(), static_shapes=True)

        given = [as_codes(v, f) if isinstance(v, torch.Tensor) else v for v, f in zip(self._leaves, self._fakes, strict=True)]
        given += [as_codes(v, fake(v)) for v in state]
        with self._mode, torch.no_grad(), torch.random.fork_rng(devices=[]), enable_python_dispatcher(), _AsInGraphs():
            function(*given)
        self._settle()

    def _settle(self) -> None:
        env = self._env
        self._shapes = [[self._expression(n) for n in v.shape] if isinstance(v, torch.Tensor) else [] for v in self._fakes]
        self.symbols = sorted({s for shape in self._shapes for n in shape for s in n.free_symbols}, key=str)
        self._settled = {s: n for s in self.symbols if (n := env.simplify(s)) != s}  # by a guard: another one's size, or a constant
        self._free = [s for s in self.symbols if s not in self._settled]
        conditions = [sympy.Eq(s, n) for s, n in self._settled.items()] + [env.simplify(guard.expr) for guard in env.guards]
        self._conditions = [c for c in conditions if c is not sympy.true and c.free_symbols <= set(self.symbols)]
        at_hand = operators.sizes_at_hand(env)
        self._hints = {s: int(at_hand[s]) for s in self._free}
        self.sources = [self._source(s) for s in self.symbols]
        names = ", ".join(map(str, self.symbols))
        printer = PythonPrinter()
        self.checks = [eval(f"lambda {names}: {printer.doprint(c)}", {"math": math, "torch": torch}) for c in self._conditions]

    def _expression(self, number: Any) -> sympy.Expr:
        return number.node._expr if isinstance(number, torch.SymInt) else sympy.Integer(number)

    def _source(self, symbol: sympy.Symbol) -> tuple[int, int, int, int]:
        """Where a symbol is to be had: leaf, dimension, and the factor and the summand that the size there has beside it."""
        found = []
        for i, shape in enumerate(self._shapes):
            for d, n in enumerate(shape):
                if n.free_symbols == {symbol} and sympy.degree(n, symbol) == 1 and n.is_polynomial(symbol):
                    factor, summand = sympy.Poly(n, symbol).all_coeffs()
                    found.append((abs(int(factor)), i, d, int(factor), int(summand)))
        if not found:
            raise NotImplementedError(f"expected each size that varies to be a dimension's, or times a number, but got {symbol} among others alone")
        return min(found)[1:]

    def at(self, leaves: list) -> list:
        return [(leaves[i].shape[d] - summand) // factor for i, d, factor, summand in self.sources]

    # ---- examples ----

    def examples(self) -> Iterator[tuple[dict[str, int], list]]:
        """Other values of the symbols, and leaves that have them."""
        for values in self._samples():
            yield {str(s): n for s, n in values.items()}, self._sized(values)

    def _holds(self, values: dict) -> bool:
        """Whether sizes are within their ranges, of which PyTorch's own begin at 2, and as the model wants them."""
        for s in self._free:
            lower = 1 if values[s] == 1 and self._lower.get(str(s), 2) < 2 else max(int(self._env.var_to_range[s].lower), 2)
            if not lower <= values[s] <= self._env.var_to_range[s].upper:
                return False
        every = self._every(values)
        return all(c.subs(every) == True for c in self._conditions)  # noqa: E712, of sympy

    @property
    def is_settled(self) -> bool:
        """Whether the model has made a constant of each size, which stock's exporter then says."""
        return not self._free

    def _every(self, values: dict) -> dict:
        return {**values, **{s: n.subs(values) for s, n in self._settled.items()}}

    def _others(self, symbol: sympy.Symbol) -> Iterator[int]:
        """Sizes near the example's, then further from it."""
        hint = self._hints[symbol]
        near = (n for step in count(1) for n in (hint + step, hint - step) if n > 1)
        yield from (*islice(near, 2), hint * 2 + 1, *islice(near, _SOUGHT), hint * 2, hint * 3)

    def _samples(self) -> list[dict]:
        """Values of all symbols at which the conditions hold: one of them varies, then all do."""
        found = []
        for s in self._free:
            fitting = ({**self._hints, s: n} for n in self._others(s))
            found += islice((v for v in fitting if self._holds(v)), _WANTED)
        if len(self._free) > 1:
            for k in range(_WANTED):
                together = {s: next(islice(self._others(s), (k + 1) * (i + 1) - 1, None)) for i, s in enumerate(self._free)}
                found += [together] if self._holds(together) else []
        alone = [{**self._hints, s: 1} for s in self._free]
        return found + [v for v in alone if self._holds(v)]

    def _sized(self, values: dict) -> list:
        leaves = []
        every = self._every(values)
        for leaf, shape in zip(self._leaves, self._shapes, strict=True):
            sizes = [int(n.subs(every)) for n in shape]
            leaves.append(_resized(leaf, sizes) if isinstance(leaf, torch.Tensor) else leaf)
        return leaves


def _resized(tensor: torch.Tensor, sizes: list[int]) -> torch.Tensor:
    """The elements of a tensor, fewer of them or again from the first on, laid out as they were."""
    if list(tensor.shape) == sizes:
        return tensor
    own = _C.is_format_tensor(tensor)
    made = _C.alias_codes(tensor.detach()) if own else tensor.detach()
    for d, size in enumerate(sizes):
        made = made.index_select(d, torch.arange(size, device=made.device) % made.shape[d])
    order = sorted(range(len(sizes)), key=lambda d: -tensor.stride(d))
    made = made.permute(order).contiguous().permute([order.index(d) for d in range(len(sizes))])
    return _C.alias_format(made, tensor.dtype) if own else made

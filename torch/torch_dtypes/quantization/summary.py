"""What became what: a table of a model's layers after ``quantize_``."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ..policies.accumulation import Accumulation
from .calibrate import evaluating, run_batch
from .layers import detached, is_quantized, state_of
from .parameters import has_weights, masters_of, parameter_names
from .places import PLACES
from .products import base_class

__all__ = ["Row", "Summary", "summary"]

_COLUMNS = ("layer", "type", *PLACES, "sums", "runs", "rule")


@dataclass(frozen=True)
class Row:
    """One layer: what each of its places is rounded to ("" where nothing is), how products add up,
    how it runs, and the key of its rule."""

    layer: str
    type: str
    weight: str = ""
    bias: str = ""
    activation: str = ""
    output: str = ""
    error: str = ""
    grad: str = ""
    sums: str = ""
    runs: str = ""
    rule: str = ""


class Summary:
    """The rows of a model, one for each layer that has parameters or a rule; ``str`` is the table.

    ``reached`` of ``parameters`` numbers in the model's parameters are rounded by a rule.
    ``reached_multiply_adds`` of ``multiply_adds`` in the forward pass of a batch have an operand
    that a rule rounds (None without a batch).
    """

    def __init__(
        self, rows: list[Row], parameters: tuple[int, int], multiply_adds: tuple[int, int] | None
    ) -> None:
        self.rows = rows
        self.reached, self.parameters = parameters
        self.reached_multiply_adds, self.multiply_adds = multiply_adds or (None, None)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __getitem__(self, layer: str) -> Row:
        """The row of a layer, by its name."""
        for row in self.rows:
            if row.layer == layer:
                return row
        raise KeyError(
            f"expected the name of a layer, one of {', '.join(repr(r.layer) for r in self.rows)}, "
            f"but got {layer!r}"
        )

    def __repr__(self) -> str:
        return (
            f"<Summary: {sum(bool(row.runs) for row in self.rows)} of {len(self.rows)} layers "
            "quantised>"
        )

    def __str__(self) -> str:
        from rich.console import Console

        out = io.StringIO()
        Console(file=out, width=200, color_system=None).print(self.table())
        return "\n".join(line.rstrip() for line in out.getvalue().rstrip().splitlines())

    def table(self):
        """The table as a ``rich.table.Table``, without the columns in which nothing is."""
        from rich.table import Table

        kept = [
            c
            for c in _COLUMNS
            if c in ("layer", "type") or any(getattr(row, c) for row in self.rows)
        ]
        share = (
            f"rules reach {self.reached / max(self.parameters, 1):.1%} of {self.parameters:,} "
            "parameters"
        )
        if self.multiply_adds is not None:
            share += (
                f" and {self.reached_multiply_adds / max(self.multiply_adds, 1):.1%} of "
                f"{self.multiply_adds:,} multiply-adds"
            )
        table = Table(
            title="What is rounded to what",
            caption=share,
            box=None,
            header_style="bold",
            pad_edge=False,
        )
        for name in kept:
            table.add_column(name, overflow="fold")  # a format's name that is cut is another's
        for row in self.rows:
            table.add_row(*(getattr(row, c) for c in kept))
        return table


def _masters(module: nn.Module, names: Iterable[str]) -> dict[int, int]:
    """How many numbers the parameters behind such names hold, by the parameters' identities."""
    return {id(p): p.numel() for name in names for p in masters_of(module, name)}


def _reached(model: nn.Module) -> dict[int, int]:
    found: dict[int, int] = {}
    for module in model.modules():
        if is_quantized(module):
            state = state_of(module)
            found |= _masters(
                module, state.parameters if state.rule.native is None else state.names
            )
    return found


def reached_parameters(model: nn.Module) -> tuple[int, int]:
    """How many numbers in a model's parameters its rules round, and how many there are."""
    own, reached = {id(p): p.numel() for p in model.parameters()}, _reached(model)
    return sum(count for key, count in own.items() if key in reached), sum(own.values())


def unreached_modules(model: nn.Module) -> Iterator[tuple[str, nn.Module, int]]:
    """The modules that compute with parameters which no rule rounds: names, and how many numbers
    these hold."""
    reached = _reached(model)
    for name, module in model.named_modules():
        if has_weights(module):
            yield (
                name,
                module,
                sum(
                    count
                    for key, count in _masters(module, parameter_names(module)).items()
                    if key not in reached
                ),
            )


def _count_grouped(a, b, *_, **__) -> int:
    """Floating-point operations of products of groups, of the shapes of all groups' operands."""
    return 2 * a[-2] * a[-1] * b[-1] * (a[0] if len(a) == len(b) == 3 else 1)


def _reached_multiply_adds(
    model: nn.Module, inputs: object, forward: Callable[[nn.Module, Any], Any] | None
) -> tuple[int, int]:
    """How many multiply-adds of a forward pass are in modules whose rule rounds an operand, and how
    many there are.

    The model runs as it was before ``quantize_``. A product belongs to the innermost module that
    runs.
    """
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.modules import module as hooks
    from torch.utils.flop_counter import FlopCounterMode

    counter = FlopCounterMode(
        display=False, custom_mapping={torch.ops.aten._grouped_mm: _count_grouped}
    )
    running: list[nn.Module] = []
    before = reached = 0

    def settle() -> None:
        nonlocal before, reached
        now = counter.get_total_flops()
        reached += now - before if running and running[-1] in rounded else 0
        before = now

    def enter(module, args) -> None:
        settle()
        running.append(module)

    def leave(module, args, output) -> None:
        settle()
        running.pop()

    with contextlib.ExitStack() as stack:
        states = stack.enter_context(detached(model))
        rules = {module: state.rule for module, state in states.items()}
        rounded = {
            m
            for m, rule in rules.items()
            if rule.native is not None or {"weight", "activation"} & rule.places().keys()
        }
        stack.enter_context(evaluating(model))
        # The counter knows no kernel of attention and of recurrent layers on the CPU, nor cuDNN's:
        # their parts run instead.
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        # As flags() has it, which sets more than `enabled`.
        stack.enter_context(torch.backends.__allow_nonbracketed_mutation())
        for backend in (torch.backends.mkldnn, torch.backends.cudnn):
            stack.callback(setattr, backend, "enabled", backend.enabled)
            backend.enabled = False
        stack.callback(
            torch.backends.mha.set_fastpath_enabled, torch.backends.mha.get_fastpath_enabled()
        )
        torch.backends.mha.set_fastpath_enabled(False)
        stack.enter_context(hooks.register_module_forward_pre_hook(enter))
        stack.enter_context(hooks.register_module_forward_hook(leave, always_call=True))
        stack.enter_context(counter)
        run_batch(model, inputs, forward, 0, "inputs=")
    return reached // 2, counter.get_total_flops() // 2


def _sums(policy: Accumulation) -> str:
    if policy.policy == "block":
        return str(policy)
    said = {
        name: getattr(policy, name)
        for name in ("product", "accumulator", "rounding", "order", "outer")
    }
    options = [
        f"{name}={value}".replace("torch.", "") for name, value in said.items() if value is not None
    ]
    options += [name for name in ("fused", "kahan") if getattr(policy, name)]
    kind = f"chunked({policy.chunk})" if policy.policy == "chunked" else policy.policy
    return f"{kind} ({', '.join(options)})" if options else kind


def _rows(model: nn.Module) -> Iterator[Row]:
    parts: dict[str, nn.Module] = {}
    for name, module in model.named_modules():
        if name in parts:
            yield _part(module, name, parts[name])
        elif is_quantized(module) or has_weights(module):
            yield _row(module, name)
        if isinstance(module, nn.MultiheadAttention) and is_quantized(module):
            parts[f"{name}.out_proj" if name else "out_proj"] = module


def _part(module: nn.Module, name: str, owner: nn.Module) -> Row:
    """An attention's output projection, whose weight the attention multiplies by."""
    state = state_of(owner)
    own = {place: state.parameters.get(f"out_proj.{place}") for place in ("weight", "bias")}
    shown = {place: "" if r is None else str(r.place) for place, r in own.items()}
    if state.rule.native is not None:
        shown = dict.fromkeys(shown, str(state.rule.weight))
    return Row(
        name, base_class(module).__name__, **shown, runs="within its attention", rule=state.key
    )


def _row(module: nn.Module, name: str) -> Row:
    kind = base_class(module).__name__
    if not is_quantized(module):
        return Row(name, kind)
    state = state_of(module)
    rule = state.rule
    shown = {place: str(getattr(rule, place)) for place in rule.places()}
    for place in ("weight", "bias"):
        own = {
            str(r.place)
            for parameter, r in state.parameters.items()
            if r.role == place and not parameter.startswith("out_proj.")
        }
        shown[place] = " and ".join(sorted(own)) if rule.native is None else shown.get(place, "")
    if rule.native is not None:
        shown = dict.fromkeys(PLACES, str(rule.weight))
        runs = "natively"
    else:
        runs = "integers" if rule.arithmetic == "integer" else "casts"
    if rule.arithmetic == "integer":
        sums = rule.accumulator or ""
    else:
        sums = "" if rule.accumulate is None else _sums(rule.accumulate)
    return Row(name, kind, **shown, sums=sums, runs=runs, rule=state.key)


def summary(
    model: nn.Module,
    inputs: object = None,
    *,
    forward: Callable[[nn.Module, Any], Any] | None = None,
    show: bool = True,
) -> Summary:
    """What ``quantize_`` made of a model: prints a table of its layers (those with parameters and
    those with a rule), and gives its rows.

    Args:
        model: a module, quantised or not.
        inputs: a batch, as ``quantize_`` takes several: a tensor, a tuple whose first element is
            the input, or a dict of keyword arguments. The model runs on it once, as it was before
            ``quantize_``, in evaluation mode and without gradients. The table then ends with the
            share of the multiply-adds too: those of layers whose rule rounds ``weight`` or
            ``activation``, as ``torch.utils.flop_counter`` counts products.
        forward: what runs the batch, ``forward(model, inputs)``, where it is something else.
        show: whether to print the table (by rich: ``pip install 'torch-dtypes[train]'``).

    Returns:
        A ``Summary``: ``reached`` of ``parameters`` numbers that rules round,
        ``reached_multiply_adds`` of ``multiply_adds`` (None without ``inputs``), ``rows``,
        ``summary["layer"]``, ``str`` for the table as text. A row has the texts ``layer``,
        ``type``, ``weight``, ``bias``, ``activation``, ``output``, ``error``, ``grad``, ``sums``,
        ``runs`` (``"natively"``, ``"casts"``, ``"integers"``, or ``""`` where the layer is as it
        was) and ``rule``.

    Raises:
        TypeError: not a module, or no batch.
        ValueError: a batch that the model does not take, or ``forward`` without one.

    Example::

        >>> model = torch_dtypes.quantize_(nn.Sequential(nn.Linear(2, 1)), {"0": torch.posit16es2})
        >>> torch_dtypes.summary(model, show=False)["0"].runs
        'natively'
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"expected a torch.nn.Module, but got {type(model).__name__}")
    if forward is not None and inputs is None:
        raise ValueError(
            "expected inputs=, the batch that forward= runs, but got None beside "
            f"forward={forward!r}"
        )
    counted = None if inputs is None else _reached_multiply_adds(model, inputs, forward)
    found = Summary(list(_rows(model)), reached_parameters(model), counted)
    if show:
        from rich import print as show_table

        show_table(found.table())
    return found

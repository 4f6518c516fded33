"""A table of a model's layers after ``quantize_``."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ..policies.accumulation import Accumulation
from .calibrate import evaluation_mode, run_batch
from .layers import is_quantized, state_of, suspend_rules
from .parameters import has_weights, masters_of, parameter_names
from .places import ALL_PLACES, PLACES, PRODUCTS, LayerRule
from .products import base_class

__all__ = ["Row", "Summary", "summary"]

_COLUMNS = ("layer", "type", *ALL_PLACES, *PRODUCTS, "sums", "runs", "rule")


@dataclass(frozen=True)
class Row:
    """One layer: the format of each place ("" if it is not rounded), the operands of each product
    that rounds its own, how products add up, how the layer runs, and the key of its rule."""

    layer: str
    type: str
    weight: str = ""
    bias: str = ""
    activation: str = ""
    output: str = ""
    error: str = ""
    grad: str = ""
    forward: str = ""
    input_grad: str = ""
    weight_grad: str = ""
    query: str = ""
    key: str = ""
    value: str = ""
    scores: str = ""
    probabilities: str = ""
    context: str = ""
    key_cache: str = ""
    value_cache: str = ""
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
        """Return a layer's row by its name."""
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
        """Return the table as a ``rich.table.Table``, without empty columns."""
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
            table.add_column(name, overflow="fold")  # a format's name cut short may name another
        for row in self.rows:
            table.add_row(*(getattr(row, c) for c in kept))
        return table


def _masters(module: nn.Module, names: Iterable[str]) -> dict[int, int]:
    """Map the ids of the parameters behind these names to their numbers of elements."""
    return {id(p): p.numel() for name in names for p in masters_of(module, name)}


def _find_reached(model: nn.Module) -> dict[int, int]:
    reached: dict[int, int] = {}
    for module in model.modules():
        if is_quantized(module):
            state = state_of(module)
            names = state.parameters if state.rule.native is None else state.names
            own = {name for name, o in state.inner.items() if o and o.has("weight")}
            names = own.union(names)
            reached |= _masters(module, names)
    return reached


def reached_parameters(model: nn.Module) -> tuple[int, int]:
    """Count the elements of a model's parameters that its rules round, and all elements."""
    own, reached = {id(p): p.numel() for p in model.parameters()}, _find_reached(model)
    return sum(count for key, count in own.items() if key in reached), sum(own.values())


def unreached_modules(model: nn.Module) -> Iterator[tuple[str, nn.Module, int]]:
    """Yield each module that computes with parameters, its name, and its number of elements that no
    rule rounds."""
    reached = _find_reached(model)
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
    """Count the floating-point operations of a grouped product from its operands' shapes."""
    return 2 * a[-2] * a[-1] * b[-1] * (a[0] if len(a) == len(b) == 3 else 1)


def _count_multiply_adds(
    model: nn.Module, inputs: object, forward: Callable[[nn.Module, Any], Any] | None
) -> tuple[int, int]:
    """Count the multiply-adds of a forward pass in modules whose rule rounds an operand, and all.

    The model runs without its rules. A product belongs to the innermost module that runs.
    """
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.modules import module as hooks
    from torch.utils.flop_counter import FlopCounterMode

    grouped = getattr(torch.ops.aten, "_grouped_mm", None)  # PyTorch 2.6 has none
    counter = FlopCounterMode(
        display=False, custom_mapping={} if grouped is None else {grouped: _count_grouped}
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
        states = stack.enter_context(suspend_rules(model))
        rules = {module: state.rule for module, state in states.items()}
        rounded = {m for m, rule in rules.items() if rule.native is not None or rule.rounds_forward}
        stack.enter_context(evaluation_mode(model))
        # The counter does not know the fused kernels of attention and recurrent layers, so these
        # are off, and their parts run instead.
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        # Allows to set `enabled` alone; the backends' flags() would set more.
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
    values = {
        name: getattr(policy, name)
        for name in ("product", "accumulator", "rounding", "order", "outer")
    }
    options = [
        f"{name}={value}".replace("torch.", "")
        for name, value in values.items()
        if value is not None
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
    """Build the row of an attention's output projection, by whose weight the attention itself
    multiplies."""
    state = state_of(owner)
    own = {place: state.parameters.get(f"out_proj.{place}") for place in ("weight", "bias")}
    shown = {place: "" if r is None else str(r.place) for place, r in own.items()}
    if (operands := state.inner.get("out_proj.weight")) is not None:
        rounder = operands.pairs["forward"][1].rounder
        shown["weight"] = "" if rounder is None else str(rounder.place)
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
        if state.operands is None or place == "bias":
            shown[place] = (
                " and ".join(sorted(own)) if rule.native is None else shown.get(place, "")
            )
    if state.operands is not None:
        shown |= _describe_products(rule)
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


def _describe_products(rule: LayerRule) -> dict[str, str]:
    """Return the operands of each product, "float32" for one that is not rounded."""
    return {
        product: " x ".join(str(getattr(own, name) or "float32") for name in PRODUCTS[product])
        + (f", {own.transform.name}" if own.transform else "")
        for product, own in rule.products().items()
    }


def summary(
    model: nn.Module,
    inputs: object = None,
    *,
    forward: Callable[[nn.Module, Any], Any] | None = None,
    show: bool = True,
) -> Summary:
    """Print a table of a model's layers that have parameters or a rule, and return its rows.

    Args:
        model: a module, quantised or not.
        inputs: a batch as for ``quantize_``: a tensor, a tuple whose first element is the input, or
            a dict of keyword arguments. The model runs on it once, without its rules, in
            evaluation mode and without gradients. The table then also shows the share of
            multiply-adds in layers whose rule rounds ``weight`` or ``activation``, as
            ``torch.utils.flop_counter`` counts products.
        forward: a function that runs a batch of another kind: ``forward(model, inputs)``.
        show: whether to print the table (by rich: ``pip install 'torch-dtypes[train]'``).

    Returns:
        A ``Summary``. ``rows`` are the rows, ``summary["layer"]`` is one, and ``str`` gives the
        table as text. Rules round ``reached`` of ``parameters`` numbers, and an operand of
        ``reached_multiply_adds`` of ``multiply_adds`` (None without ``inputs``). A row has the
        texts ``layer``, ``type``, ``weight``, ``bias``, ``activation``, ``output``, ``error``,
        ``grad``, ``forward``, ``input_grad``, ``weight_grad``, ``query``, ``key``, ``value``,
        ``scores``, ``probabilities``, ``context``, ``key_cache``, ``value_cache``, ``sums``,
        ``runs`` and ``rule``. A product whose operands are rounded for it alone has their names,
        ``"mxfp4 x mxfp4"``. ``runs`` is ``"natively"``, ``"casts"``, ``"integers"``, or ``""``
        without a rule.

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
            "expected inputs= with the batch that forward= runs, but got None with "
            f"forward={forward!r}; give a batch, or leave forward out"
        )
    multiply_adds = None if inputs is None else _count_multiply_adds(model, inputs, forward)
    result = Summary(list(_rows(model)), reached_parameters(model), multiply_adds)
    if show:
        from rich import print as show_table

        show_table(result.table())
    return result

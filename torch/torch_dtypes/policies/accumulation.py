"""Accumulation policies: how dot products add up, in a block of code or for a dtype."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TypedDict, Unpack

import torch

from .. import _C
from ..formats.arguments import boolean, rounding_mode
from ..formats.dtypes import dtype as dtype_of_name
from . import accumulation_options
from .accumulation_options import format_dtype
from .overrides import Override

__all__ = ["Accumulation", "accumulate", "accumulation_of", "set_accumulation"]

_IDLE = (
    "expected a sum of a number format in the block of accumulate({0!s}), but got none on its "
    "thread, since policies do not affect stock tensors; use a format dtype, as in "
    "model.to(torch_dtypes.dtype('e8m23')), which has float32's values, "
    "torch_dtypes.quantize_(model, ...), or "
    "torch_dtypes.fuzzy(model, ..., level='instruction') around float32 code"
)


class AccumulationOptions(TypedDict, total=False):
    """Options of ``accumulate`` for type checkers: the fields of ``Accumulation`` but the
    policy."""

    chunk: int | None
    product: torch.dtype | str | None
    accumulator: torch.dtype | str | None
    fused: bool
    kahan: bool
    rounding: str | int | None
    order: str | None
    outer: torch.dtype | str | None
    terms: int | None
    extra_bits: int | None
    register: torch.dtype | str | None
    align: str | int | None
    interleave: int | None
    late: int | None
    min_exponent: int | None
    product_limit: bool


@dataclass(frozen=True)
class Accumulation:
    """An accumulation policy for ``accumulate``, with the same arguments. ``accumulation_of``
    returns one.

    Example::

        >>> torch_dtypes.Accumulation("chunked(32)", accumulator="e5m7").chunk
        32
    """

    policy: str
    chunk: int | None = None
    product: torch.dtype | str | None = None
    accumulator: torch.dtype | str | None = None
    fused: bool = False
    kahan: bool = False
    rounding: str | int | None = None
    order: str | None = None
    outer: torch.dtype | str | None = None
    terms: int | None = None
    extra_bits: int | None = None
    register: torch.dtype | str | None = None
    align: str | int | None = None
    interleave: int | None = None
    late: int | None = None
    min_exponent: int | None = None
    product_limit: bool = False

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in accumulation_options.FLAGS:
                boolean(field.name, value)
            elif value is False:  # it equals 0, so the checks below would accept it
                raise TypeError(f"expected a value for {field.name}, or None, but got {value}")
        if isinstance(self.policy, str) and (
            parsed := accumulation_options.parse_policy(self.policy)
        ):
            if twice := [name for name in parsed[1] if name in self._given()]:
                raise ValueError(
                    f"expected {', '.join(twice)} once, but got it in {self.policy!r} and as an "
                    "argument"
                )
            self._set(policy=parsed[0], **parsed[1])
        accumulation_options.check_policy(self.policy)
        given = self._given()
        accumulation_options.check_options(self.policy, given)
        if self.policy == "block":
            self._set(**accumulation_options.block_options(given))
            return
        if self.policy == "chunked" and self.chip is not None:
            accumulation_options.check_chunks_of_chip(given)
            return
        order, lanes = accumulation_options.check_order(
            "sequential" if self.order is None else self.order, given
        )
        mode = (
            None
            if self.rounding is None
            else accumulation_options.mode_of_steps("rounding", self.rounding)
        )
        product = (
            self.product
            if isinstance(self.product, str) and self.product == "exact"
            else _dtype_of_option("product", self.product)
        )
        formats = {
            name: _dtype_of_option(name, getattr(self, name)) for name in ("accumulator", "outer")
        }
        self._set(product=product, rounding=mode, **formats)
        self._set(product_limit=False)
        named = f"lanes({lanes})" if order == "lanes" else order
        self._set(order=None if order == "sequential" else named)

    @property
    def chip(self) -> str | None:
        """The chip that adds up the products, or those of a chunk; None for other policies."""
        name = self.accumulator if self.policy == "chunked" else self.policy
        return name if name in accumulation_options.PRESETS else None

    def __str__(self) -> str:
        """Return the policy as a text that ``accumulate`` and the command line take, as
        ``"chunked(32, accumulator=e5m7)"``."""
        defaults = accumulation_options.BLOCK_DEFAULTS if self.policy == "block" else {}
        options = [
            f"{name}={value}".replace("torch.", "")
            for name, value in self._given().items()
            if defaults.get(name) != value
        ]
        return f"{self.policy}({', '.join(options)})" if options else self.policy

    def _given(self) -> dict:
        """Return the options that are set: neither None nor False. (0 counts as set.)"""
        values = {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if field.name != "policy"
        }
        return {
            name: value
            for name, value in values.items()
            if value is not None and value is not False
        }

    def _set(self, **values) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def _native(self) -> _C.Accumulation:
        if self.chip is not None:
            kind = "block" if self.chunk is None else "chunked"
            native = _C.Accumulation(getattr(_C.Accumulate, kind))
            native.chunk = self.chunk or 0
            native.preset = accumulation_options.PRESETS.index(self.chip)
            return native
        native = _C.Accumulation(getattr(_C.Accumulate, self.policy))
        native.rounding = None if self.rounding is None else rounding_mode(self.rounding)
        if self.policy == "block":
            block = _C.BlockSum()
            for name in (
                "terms",
                "extra_bits",
                "interleave",
                "late",
                "min_exponent",
                "product_limit",
            ):
                setattr(block, name, getattr(self, name))
            block.align = rounding_mode(self.align)
            native.block, native.accumulator = (
                block,
                None if self.register == "float32" else self.register,
            )
            return native
        order, native.lanes = accumulation_options.check_order(self.order or "sequential", {})
        native.order = getattr(_C.AccumulationOrder, order)
        native.chunk, native.fused, native.kahan, native.exact_product = (
            self.chunk or 0,
            self.fused,
            self.kahan,
            self.product == "exact",
        )
        native.product = None if native.exact_product else self.product
        native.accumulator, native.outer = self.accumulator, self.outer
        return native


def _dtype_of_option(name: str, value: object) -> torch.dtype | None:
    try:
        return format_dtype(value)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name}: {error}") from error


def policy_of_native(native: _C.Accumulation) -> Accumulation:
    if native.preset >= 0:
        chip = accumulation_options.PRESETS[native.preset]
        if native.kind == _C.Accumulate.chunked:
            return Accumulation("chunked", native.chunk, accumulator=chip)
        return Accumulation(chip)
    mode = None if native.rounding is None else native.rounding.name
    block = native.block
    if native.kind == _C.Accumulate.block:
        return Accumulation(
            "block",
            rounding=mode,
            terms=block.terms,
            extra_bits=block.extra_bits,
            register=native.accumulator,
            align=block.align.name,
            interleave=block.interleave,
            late=block.late,
            min_exponent=block.min_exponent,
            product_limit=block.product_limit,
        )
    order = (
        f"lanes({native.lanes})"
        if native.order == _C.AccumulationOrder.lanes
        else native.order.name
    )
    return Accumulation(
        native.kind.name,
        native.chunk or None,
        "exact" if native.exact_product else native.product,
        native.accumulator,
        native.fused,
        native.kahan,
        mode,
        order if native.kind == _C.Accumulate.format else None,
        native.outer,
    )


def _policy_of(policy: str | Accumulation, options: dict) -> Accumulation:
    known = AccumulationOptions.__annotations__
    for name in options:
        if name not in known:
            raise TypeError(f"expected an option among {', '.join(known)}, but got {name}=")
    if not isinstance(policy, Accumulation):
        return Accumulation(policy, **options)
    given = [name for name, value in options.items() if value is not None and value is not False]
    if given:
        raise ValueError(
            f"expected an Accumulation without options, but got {', '.join(given)} too; give them "
            "to Accumulation"
        )
    return policy


def accumulate(policy: str | Accumulation, **options: Unpack[AccumulationOptions]) -> Override:
    """Add up dot products of number formats by ``policy`` in a block::

        with torch_dtypes.accumulate("format", accumulator=torch.e5m7, rounding="toward_zero"):
            loss = criterion(model(x), y)
            loss.backward()

    The policy applies to mm, bmm, addmm, baddbmm, addbmm, mv, addmv, dot, linear, einsum, matmul,
    scaled_dot_product_attention, sum, mean and cumsum. It also applies to convolutions of any
    dimension, transposed ones too, and to the gradients of all these. It holds on the calling
    thread, and for backward passes that start in the block. Without a block, a dtype's own policy
    (``set_accumulation``) applies.

    Args:
        policy: one of the following.
            ``"machine"``, the default: float32 if it holds every value of the format, else float64.
            The order is that of PyTorch's kernel, and the result is rounded once.
            ``"float32"``, ``"float64"``: the same in that type.
            ``"exact"``: only the result is rounded, as with a quire or Kulisch accumulator. It is
            the correctly rounded dot product.
            ``"format"``: every product and every sum is rounded, in the order of the sum's index.
            For convolutions this order is channel, then kernel position. For gradients of inputs
            and transposed convolutions it is channel, then ascending position of the other operand;
            for gradients of weights batch, then position.
            ``"chunked(k)"``: as ``"format"`` for ``k`` terms; these sums are added in the type of
            ``"machine"``.
            ``"block"``: as tensor cores add. ``terms`` exact products are cut at one place and
            rounded into a register together (``docs/accumulators.md``).
            ``"nvidia-v100"``, ``"nvidia-a100"``, ``"nvidia-h100"``, ``"nvidia-b200"``,
            ``"nvidia-rtx-blackwell"``, ``"amd-mi300x"``: ``"block"`` with that chip's numbers for
            the operands' format. This is one of float16, bfloat16, TF32 and float8 (and of 6 and 4
            bits on Blackwell), by exponent and fraction widths. Blackwell multiplies two block
            tensors too (``quantize``).
            The text may include options: ``"format(accumulator=e5m7, fused=True)"``,
            ``"chunked(32, rounding=toward_zero)"``, ``"block(terms=16, extra_bits=2)"``.
        chunk: ``k`` of ``"chunked"``.
        product, accumulator: dtypes of this package (or names) to which products and sums are
            rounded, instead of the operands' own. With ``product="exact"``, products are not
            rounded before they are added. With ``"chunked"``, the accumulator may be a chip, which
            adds up each chunk from 0. The chunks' sums are added in float32.
        fused: one rounding for each multiply-add.
        kahan: sums with Kahan's compensation; each of its operations is rounded to the
            accumulator's format.
        rounding: the mode of every step; by default each format's own. The result is rounded by its
            dtype's mode. With ``"block"``: the mode that rounds a block's sum into the register, by
            default ``"toward_zero"``.
        order: with ``"format"``, ``"sequential"`` (the default) or one of these. ``"pairwise"``:
            the sum of the first half, which may have one term fewer, and of the second, each
            computed likewise. ``"tree"``: neighbours, then neighbouring sums; a last one without a
            neighbour passes unchanged. ``"lanes(k)"``: term i goes into running sum i modulo k, and
            a tree adds the ``k`` sums. If the order is not sequential, a bias is added last.
        outer: with ``"chunked"``: a dtype of this package to which each sum of chunks is rounded,
            instead of the type of ``"machine"``.
        terms: with ``"block"``, as all that follow: the number of products added at once, from 1. A
            missing term (a hole of a strided transposed convolution) counts as 0.
        extra_bits: bits kept below the register's last place, for the largest exponent among the
            products and the register (default 0).
        register: a float dtype of this package, or ``"float32"`` (the default). It starts at 0 or
            the bias.
        align: the mode that cuts a product (default ``"toward_zero"``); it must not draw random
            words.
        interleave: products at every ``interleave``-th place are aligned among themselves, and the
            groups' sums are cut downwards (default 1).
        late: the register is not aligned with the products. It is added to their finished sum, of
            which ``late`` extra bits are kept, both cut downwards (default: it is aligned).
        min_exponent: the smallest exponent for alignment (default: none).
        product_limit: a product beyond the register's range is infinite (default: only a register
            can be).

    The accumulator starts with a bias that an operator adds (addmm, convolution). Like
    ``rounding(...)``, the result can decorate a function and be used many times.

    Raises:
        ValueError: not a policy, or options that contradict each other.
        TypeError: a stock dtype.
        RuntimeError: raised by an operator. A chip's policy with operands that the chip does not
            multiply. ``"float32"`` with a format whose values (or products, of posits) float32 does
            not hold, or needs bits that ``torch.set_float32_matmul_precision`` allows to drop
            (``"machine"`` then takes float64, and warns once). Steps in a format of more than 51
            significant bits, or with exponents beyond some 510.

    Warns:
        UserWarning: the policy added up nothing on this thread, as around a float32 model.

    Sources: Kulisch, "Computer arithmetic and validity" (2013), chapter 8. Posit Standard (2022),
    section 3.4. Kahan, CACM 8 (1965). Chunked sums: Blanchard, Higham, Mary, "A class of fast and
    accurate summation algorithms", SISC 42 (2020). Blocks and chips: Khattak and Mikaitis,
    "Accurate models of NVIDIA tensor cores", ACM TACO (2026); Xie et al., "MMA-Sim", arXiv
    2511.10909.

    Example::

        >>> ones = torch.ones(4096).to(torch.e5m7)
        >>> with torch_dtypes.accumulate("format"):
        ...     print(ones.sum().item())  # from 256 on, adding 1 rounds back
        256.0
        >>> with torch_dtypes.accumulate("exact"):
        ...     print(ones.sum().item())
        4096.0
        >>> half = torch_dtypes.dtype("fp16")
        >>> x = torch.tensor([[128, 2**-6, -128]]).to(half)
        >>> y = torch.tensor([[128], [2**-6], [128]]).to(half)
        >>> with torch_dtypes.accumulate("exact"):
        ...     print((x @ y).item() == 2**-12)
        True
        >>> # All below 2**-9 is cut off when 2**14 is added.
        >>> with torch_dtypes.accumulate("nvidia-v100"):
        ...     print((x @ y).item())
        0.0
    """
    value = _policy_of(policy, options)
    return Override(_C.set_accumulation_override, value._native(), "accumulation", _IDLE, value)


def accumulation_block(policy: str | Accumulation, **options) -> Override:
    """Return ``accumulate`` for this package's own code, without the warning of idle blocks."""
    return Override(_C.set_accumulation_override, _policy_of(policy, options)._native())


def policy_of_block() -> str | None:
    """Return the policy of the current block of ``accumulate`` as a text; None outside of one."""
    native = _C.accumulation_override()
    return None if native is None else str(policy_of_native(native))


def in_policy(text: str | None) -> Override:
    """Return a block with the policy that ``policy_of_block`` returned, or with none if that was
    None."""
    return (
        Override(_C.set_accumulation_override, None) if text is None else accumulation_block(text)
    )


def set_accumulation(
    dtype: torch.dtype | str, policy: str | Accumulation, **options: Unpack[AccumulationOptions]
) -> None:
    """Set the accumulation policy of a dtype for all threads, until it is set again. Arguments are
    those of ``accumulate``.

    ``set_accumulation(D, "machine")`` restores the default. Dtypes that differ only in their
    rounding mode each have their own policy.

    Args:
        dtype: a dtype of this package or a name.
        policy: as in ``accumulate``.
        chunk, product, accumulator, fused, kahan, rounding, order, outer: as in ``accumulate``.
        terms, extra_bits, register, align, interleave, late, min_exponent, product_limit: as in
            ``accumulate``.

    Raises:
        ValueError: an unknown name, policy or option.
        TypeError: a stock dtype.

    Example::

        >>> torch_dtypes.set_accumulation(torch.e5m5, "chunked(32)", accumulator="e5m7")
        >>> torch_dtypes.accumulation_of(torch.e5m5).accumulator
        torch.e5m7
        >>> torch_dtypes.set_accumulation(torch.e5m5, "machine")
    """
    _C.set_accumulation_default(dtype_of_name(dtype), _policy_of(policy, options)._native())


def accumulation_of(dtype: torch.dtype | str) -> Accumulation:
    """Return the accumulation policy of a dtype on this thread now: that of the active block, or
    else the dtype's own.

    Args:
        dtype: a dtype of this package or a name.

    Raises:
        ValueError: an unknown name.
        TypeError: a stock dtype.

    Example::

        >>> torch_dtypes.accumulation_of(torch.posit16es2).policy
        'machine'
    """
    return policy_of_native(_C.accumulation_of(dtype_of_name(dtype)))


def modes_of(dtype: torch.dtype | str) -> set[str]:
    """Return the rounding modes of the steps and results of a dtype's sums on this thread now."""
    policy = accumulation_of(dtype)
    formats = [
        _C.format_of(d)
        for d in (policy.product, policy.accumulator, policy.outer, policy.register)
        if isinstance(d, torch.dtype)
    ]
    own = _C.rounding_override() or _C.format_of(dtype_of_name(dtype)).rounding
    modes = {own.name, *(f.rounding.name for f in formats if f is not None)}
    return modes if policy.rounding is None else modes | {rounding_mode(policy.rounding).name}

"""How dot products add up: the accumulation policy of a block of code, and of a dtype."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TypedDict, Unpack

import torch

from .. import _C
from ..formats.arguments import boolean, rounding_mode
from ..formats.dtypes import dtype as dtype_of_name
from . import accumulation_options
from .accumulation_options import our_dtype
from .overrides import Override

__all__ = ["Accumulation", "accumulate", "accumulation_of", "set_accumulation"]

_IDLE = (
    "expected a sum of a number format in the block of accumulate({0!s}), but got none on its "
    "thread: stock tensors obey no policy. Use model.to(torch_dtypes.dtype('e8m23')), which has "
    "float32's numbers, or another format dtype; torch_dtypes.quantize_(model, ...); or "
    "torch_dtypes.fuzzy(model, ..., dot_products=True) around float32 code"
)


class AccumulationOptions(TypedDict, total=False):
    """What ``accumulate`` takes beside a policy: the fields of ``Accumulation``, for type
    checkers."""

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
    """An accumulation policy: what ``accumulate`` takes, and ``accumulation_of`` gives. Its
    arguments are those of ``accumulate``.

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
            elif value is False:  # which is not None, and equals 0
                raise TypeError(f"expected a value for {field.name}, or None, but got {value}")
        if isinstance(self.policy, str) and (
            parsed := accumulation_options.parse_policy(self.policy)
        ):
            if twice := [name for name in parsed[1] if name in self._given()]:
                raise ValueError(
                    f"expected {', '.join(twice)} once, but got it in {self.policy!r} and beside it"
                )
            self._set(policy=parsed[0], **parsed[1])
        accumulation_options.check_policy(self.policy)
        given = self._given()
        accumulation_options.check_options(self.policy, given)
        if self.policy == "block":
            self._set(**accumulation_options.block_options(given))
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

    def __str__(self) -> str:
        """The policy as one text, which ``accumulate`` and the command line take:
        ``"chunked(32, accumulator=e5m7)"``."""
        defaults = accumulation_options.BLOCK_DEFAULTS if self.policy == "block" else {}
        options = [
            f"{name}={value}".replace("torch.", "")
            for name, value in self._given().items()
            if defaults.get(name) != value
        ]
        return f"{self.policy}({', '.join(options)})" if options else self.policy

    def _given(self) -> dict:
        """The options that were said: not None, and not False. (0 may be one.)"""
        said = {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if field.name != "policy"
        }
        return {
            name: value for name, value in said.items() if value is not None and value is not False
        }

    def _set(self, **values) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def _native(self) -> _C.Accumulation:
        if self.policy in accumulation_options.PRESETS:
            native = _C.Accumulation(_C.Accumulate.block)
            native.preset = accumulation_options.PRESETS.index(self.policy)
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
        return our_dtype(value)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name}: {error}") from error


def policy_of_native(native: _C.Accumulation) -> Accumulation:
    if native.preset >= 0:
        return Accumulation(accumulation_options.PRESETS[native.preset])
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
        raise ValueError(f"expected an Accumulation alone, but got {', '.join(given)} beside it")
    return policy


def accumulate(policy: str | Accumulation, **options: Unpack[AccumulationOptions]) -> Override:
    """Adds up dot products of number formats by ``policy`` in the block::

        with torch_dtypes.accumulate("format", accumulator=torch.e5m7, rounding="toward_zero"):
            loss = criterion(model(x), y)
            loss.backward()

    It holds for mm, bmm, addmm, baddbmm, addbmm, mv, addmv, dot, linear, einsum, matmul,
    convolutions of any dimension (transposed ones too) and their gradients,
    scaled_dot_product_attention, sum, mean and cumsum, on the calling thread, and for the backward
    pass when ``backward()`` is called in the block. A dtype's own policy (``set_accumulation``)
    holds where no block says otherwise.

    Args:
        policy: ``"machine"``: the default, float32 where every value of the format is one, else
            float64; the order is the stock kernel's, and the result is rounded once. ``"float32"``,
            ``"float64"``: the same in that type. ``"exact"``: no rounding before the last, as with
            a quire or Kulisch accumulator: the correctly rounded dot product. ``"format"``: every
            product and every sum is rounded, in the order of the sum's index (convolutions:
            channel, then kernel position; gradients of inputs and transposed convolutions: channel,
            then ascending position of the other operand; gradients of weights: batch, then
            position). ``"chunked(k)"``: as ``"format"`` for ``k`` terms, and those sums are added
            in the type of ``"machine"``. ``"block"``: as tensor cores do it: ``terms`` exact
            products at once, cut at one place and rounded into a register together
            (``docs/accumulators.md``). ``"nvidia-v100"``, ``"nvidia-a100"``, ``"nvidia-h100"``,
            ``"nvidia-b200"``, ``"amd-mi300x"``: ``"block"`` with the numbers of that chip for the
            operands' format, one of float16, bfloat16, TF32 and float8 (by exponent and fraction
            widths). Any of them may name its options in the same text:
            ``"format(accumulator=e5m7, fused=True)"``, ``"chunked(32, rounding=toward_zero)"``,
            ``"block(terms=16, extra_bits=2)"``.
        chunk: ``k``, where ``policy`` is ``"chunked"``.
        product, accumulator: dtypes of this package (or names) that products and sums are rounded
            to, instead of the operands' own. ``product="exact"``: products are not rounded before
            they are added.
        fused: one rounding for each multiply-add.
        kahan: sums with Kahan's compensation, each of its operations rounded to the accumulator's
            format.
        rounding: the mode of every step; else each format's own. The result is rounded by its own
            dtype's mode. Of ``"block"``: the mode in which a block's sum goes into the register,
            ``"toward_zero"`` if none is given.
        order: of ``"format"``: ``"sequential"`` (the default), ``"pairwise"`` (the sum of the first
            half, which has the fewer terms, and of the second, each made in the same way),
            ``"tree"`` (neighbours, then neighbouring sums; a last one without a neighbour goes up
            as it is) or ``"lanes(k)"`` (term i into running sum i modulo k, and those ``k`` sums as
            a tree). What an operator begins with, a bias, is added last where the order is not
            sequential.
        outer: of ``"chunked"``: a dtype of this package that each sum of chunks is rounded to,
            instead of the type of ``"machine"``.
        terms: of ``"block"``, like all that follow: products that are added at once, from 1 on. A
            term that is not there (a hole of a strided transposed convolution) is a 0 in its place.
        extra_bits: bits that are kept below the register's last place, for the largest exponent
            among the products and the register (default 0).
        register: a float dtype of this package, or ``"float32"`` (the default). It starts at 0 or
            the bias.
        align: the mode in which a product is cut (default ``"toward_zero"``), without random words.
        interleave: the products at every ``interleave``-th place are aligned among themselves, and
            the groups' sums cut downwards (default 1).
        late: the register does not take part in the alignment of products but meets their finished
            sum, of which ``late`` extra bits are kept, both cut downwards (default: it takes part).
        min_exponent: the smallest exponent that is aligned to (default: none).
        product_limit: a product beyond the register's range is infinite (default: only a register
            can be).

    A bias that an operator adds (addmm, convolution) is what the accumulator starts with. Like
    ``rounding(...)``, the result can decorate a function and be used many times.

    Raises:
        ValueError: not a policy, or options that contradict each other.
        TypeError: a stock dtype. RuntimeError, from an operator: a chip's policy with operands that
        it does not multiply; ``"float32"`` with a format whose values (or
            products, of posits) float32 does not have, or that needs bits which
            ``torch.set_float32_matmul_precision`` and its like let float32 products drop
            (``"machine"`` takes float64 then, and warns once); steps in a format of more than 51
            significant bits or with exponents beyond some 510.

    Warns:
        UserWarning: nothing on this thread was added up by the policy, as around a model of
            float32.

    Sources: Kulisch, "Computer arithmetic and validity" (2013), chapter 8; Posit Standard (2022),
    section 3.4; Kahan, CACM 8 (1965); Blanchard, Higham, Mary, "A class of fast and accurate
    summation algorithms", SISC 42 (2020), for chunked sums; Khattak and Mikaitis, "Accurate models
    of NVIDIA tensor cores", ACM TACO (2026), and Xie et al., "MMA-Sim", arXiv 2511.10909, for
    blocks and chips.

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
        >>> # Beside 2**14, what lies below 2**-9 is cut off.
        >>> with torch_dtypes.accumulate("nvidia-v100"):
        ...     print((x @ y).item())
        0.0
    """
    chosen = _policy_of(policy, options)
    return Override(_C.set_accumulation_override, chosen._native(), "accumulation", _IDLE, chosen)


def accumulation_block(policy: str | Accumulation, **options) -> Override:
    """Is ``accumulate`` for this package's own code, some of which adds up nothing: no warning."""
    return Override(_C.set_accumulation_override, _policy_of(policy, options)._native())


def policy_of_block() -> str | None:
    """The policy of the block of ``accumulate`` that the calling code runs in, as text; None: there
    is none."""
    native = _C.accumulation_override()
    return None if native is None else str(policy_of_native(native))


def in_policy(text: str | None) -> Override:
    """A block with the policy that ``policy_of_block`` gave, or with none, whatever block is around
    it."""
    return (
        Override(_C.set_accumulation_override, None) if text is None else accumulation_block(text)
    )


def set_accumulation(
    dtype: torch.dtype | str, policy: str | Accumulation, **options: Unpack[AccumulationOptions]
) -> None:
    """Makes ``policy`` the accumulation policy of a dtype, for all threads, until it is set anew.
    Arguments are those of ``accumulate``.

    ``set_accumulation(D, "machine")`` brings the default back. Dtypes that differ in rounding mode
    have policies of their own.

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
    """The accumulation policy that holds for a dtype on this thread now: a block's, where one is
    active, or else the dtype's own.

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
    """The rounding modes of the steps and results of a dtype's sums on this thread now."""
    policy = accumulation_of(dtype)
    formats = [
        _C.format_of(d)
        for d in (policy.product, policy.accumulator, policy.outer, policy.register)
        if isinstance(d, torch.dtype)
    ]
    own = _C.rounding_override() or _C.format_of(dtype_of_name(dtype)).rounding
    modes = {own.name, *(f.rounding.name for f in formats if f is not None)}
    return modes if policy.rounding is None else modes | {rounding_mode(policy.rounding).name}

"""How dot products add up: the accumulation policy of a block of code, and of a dtype."""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch

from . import _C
from ._overrides import Override
from .formats import dtype as dtype_of_name
from .formats import format_of, rounding_mode

__all__ = ["Accumulation", "accumulate", "accumulation_of", "set_accumulation"]

_POLICIES = ("machine", "float32", "float64", "exact", "format", "chunked")
# A policy with its options as one text: format(accumulator=e5m7, fused=True), chunked(32, rounding=down).
_WRITTEN = re.compile(r"(format|chunked)\((?:(\d+)(?=[,)]))?,?\s*((?:\w+\s*=[^,=()]*(?:,\s*(?=\w))?)*)\)")
_OPTIONS = ("chunk", "product", "accumulator", "fused", "kahan", "rounding")


@dataclass(frozen=True)
class Accumulation:
    """An accumulation policy: what ``accumulate`` takes, and ``accumulation_of`` gives. Its arguments are those of ``accumulate``.

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

    def __post_init__(self) -> None:
        if isinstance(self.policy, str) and (match := _WRITTEN.fullmatch(self.policy)) and (match[2] or match[3]):
            self._set_written(match)
        policy, chunk = self.policy, self.chunk
        if not isinstance(policy, str) or policy not in _POLICIES:
            names = ", ".join(map(repr, _POLICIES[:-1]))
            raise ValueError(f"expected an accumulation policy, one of {names} or 'chunked(<terms>)', but got {policy!r}")
        if (policy == "chunked") != (chunk is not None):
            raise ValueError(f"expected chunk=, the number of terms added in the format, with 'chunked' only, but got {policy!r}, chunk={chunk}")
        if chunk is not None and (isinstance(chunk, bool) or not isinstance(chunk, int) or not 1 <= chunk < 2**63):
            raise ValueError(f"expected chunk from 1 to 2^63 - 1, but got {chunk!r}")
        given = [name for name in ("product", "accumulator", "fused", "kahan", "rounding") if getattr(self, name) not in (None, False)]
        if given and policy not in ("format", "chunked"):
            raise ValueError(f"expected {', '.join(given)} with the policies 'format' and 'chunked' only, but got {policy!r}")
        if self.fused and (self.kahan or self.product is not None):
            raise ValueError("expected fused=True without kahan= and product=: a fused multiply-add has no product of its own to round or compensate")
        mode = None if self.rounding is None else rounding_mode(self.rounding).name
        self._set(product=_our_dtype(self.product), accumulator=_our_dtype(self.accumulator), rounding=mode, fused=bool(self.fused))
        self._set(kahan=bool(self.kahan))

    def _set_written(self, match: re.Match) -> None:
        """What a text like ``"chunked(32, accumulator=e5m7)"`` says."""
        written = {} if match[2] is None else {"chunk": int(match[2])}
        for item in filter(None, map(str.strip, match[3].split(","))):
            name, value = map(str.strip, item.split("="))
            if name not in _OPTIONS or name in written:
                raise ValueError(f"expected options of {self.policy!r} once each, out of {', '.join(_OPTIONS)}, but got {item!r}")
            if name in ("fused", "kahan") and value not in ("True", "False"):
                raise ValueError(f"expected {name}=True or {name}=False in {self.policy!r}, but got {item!r}")
            if name == "chunk" and not value.isdecimal():
                raise ValueError(f"expected chunk as an integer in {self.policy!r}, but got {item!r}")
            number = name in ("chunk", "rounding") and value.isdecimal()
            written[name] = value == "True" if name in ("fused", "kahan") else int(value) if number else value
        if twice := [name for name in written if getattr(self, name) not in (None, False)]:
            raise ValueError(f"expected {', '.join(twice)} once, but got it in {self.policy!r} and beside it")
        self._set(policy=match[1], **written)

    def _set(self, **values) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def _native(self) -> _C.Accumulation:
        mode = None if self.rounding is None else rounding_mode(self.rounding)
        kind = getattr(_C.Accumulate, self.policy)
        return _C.Accumulation(kind, self.chunk or 0, self.product, self.accumulator, mode, self.fused, self.kahan)


def _our_dtype(value: torch.dtype | str | None) -> torch.dtype | None:
    return None if value is None else _expected_dtype(value)


def _expected_dtype(value: torch.dtype | str) -> torch.dtype:
    if isinstance(value, str):
        return dtype_of_name(value)
    format_of(value)  # its error says what was expected
    return value


def _policy_of(policy: str | Accumulation, options: dict) -> Accumulation:
    if not isinstance(policy, Accumulation):
        return Accumulation(policy, **options)
    given = [name for name, value in options.items() if value not in (None, False)]
    if given:
        raise ValueError(f"expected an Accumulation alone, but got {', '.join(given)} beside it")
    return policy


def accumulate(
    policy: str | Accumulation,
    *,
    chunk: int | None = None,
    product: torch.dtype | str | None = None,
    accumulator: torch.dtype | str | None = None,
    fused: bool = False,
    kahan: bool = False,
    rounding: str | int | None = None,
) -> Override:
    """Adds up dot products of number formats by ``policy`` in the block::

        with torch_dtypes.accumulate("format", accumulator=torch.e5m7, rounding="toward_zero"):
            loss = criterion(model(x), y)
            loss.backward()

    It holds for mm, bmm, addmm, baddbmm, addbmm, mv, addmv, dot, linear, einsum, matmul, convolutions of any dimension (transposed ones
    too) and their gradients, scaled_dot_product_attention, sum, mean and cumsum, on the calling thread, and for the backward pass when
    ``backward()`` is called in the block. A dtype's own policy (``set_accumulation``) holds where no block says otherwise.

    Args:
        policy: ``"machine"``: the default, float32 where every value of the format is one, else float64; the order is the stock
            kernel's, and the result is rounded once. ``"float32"``, ``"float64"``: the same in that type. ``"exact"``: no rounding before
            the last, as with a quire or Kulisch accumulator: the correctly rounded dot product. ``"format"``: every product and every
            sum is rounded, in the order of the sum's index (convolutions: channel, then kernel position; gradients of inputs and
            transposed convolutions: channel, then ascending position of the other operand; gradients of weights: batch, then position).
            ``"chunked(k)"``: as ``"format"`` for ``k`` terms, and those sums are added in the type of ``"machine"``. The last two may name
            their options: ``"format(accumulator=e5m7, fused=True)"``, ``"chunked(32, rounding=toward_zero)"``.
        chunk: ``k``, where ``policy`` is ``"chunked"``.
        product, accumulator: dtypes of this package (or names) that products and sums are rounded to, instead of the operands' own.
        fused: one rounding for each multiply-add.
        kahan: sums with Kahan's compensation, each of its operations rounded to the accumulator's format.
        rounding: the mode of every step; else each format's own. The result is rounded by its own dtype's mode.

    A bias that an operator adds (addmm, convolution) is what the accumulator starts with. Like ``rounding(...)``, the result can decorate
    a function and be used many times.

    Raises:
        ValueError: not a policy, or options that contradict each other.
        TypeError: a stock dtype.
        RuntimeError, from an operator: ``"float32"`` with a format whose values (or products, of posits) float32 does not have, or steps in a
            format of more than 51 significant bits or with exponents beyond some 510.

    Sources: Kulisch, "Computer arithmetic and validity" (2013), chapter 8; Posit Standard (2022), section 3.4; Kahan, CACM 8 (1965);
    Blanchard, Higham, Mary, "A class of fast and accurate summation algorithms", SISC 42 (2020), for chunked sums.

    Example::

        >>> ones = torch.ones(4096).to(torch.e5m7)
        >>> with torch_dtypes.accumulate("format"):
        ...     print(ones.sum().item())  # from 256 on, adding 1 rounds back
        256.0
        >>> with torch_dtypes.accumulate("exact"):
        ...     print(ones.sum().item())
        4096.0
    """
    options = {"chunk": chunk, "product": product, "accumulator": accumulator, "fused": fused, "kahan": kahan, "rounding": rounding}
    chosen = _policy_of(policy, options)
    return Override(_C.set_accumulation_override, chosen._native())


def set_accumulation(
    dtype: torch.dtype | str,
    policy: str | Accumulation,
    *,
    chunk: int | None = None,
    product: torch.dtype | str | None = None,
    accumulator: torch.dtype | str | None = None,
    fused: bool = False,
    kahan: bool = False,
    rounding: str | int | None = None,
) -> None:
    """Makes ``policy`` the accumulation policy of a dtype, for all threads, until it is set anew. Arguments are those of ``accumulate``.

    ``set_accumulation(D, "machine")`` brings the default back. Dtypes that differ in rounding mode have policies of their own.

    Args:
        dtype: a dtype of this package or a name.
        policy: as in ``accumulate``.
        chunk, product, accumulator, fused, kahan, rounding: as in ``accumulate``.

    Raises:
        ValueError: an unknown name, policy or option.
        TypeError: a stock dtype.

    Example::

        >>> torch_dtypes.set_accumulation(torch.e5m5, "chunked(32)", accumulator="e5m7")
        >>> torch_dtypes.accumulation_of(torch.e5m5).accumulator
        torch.e5m7
        >>> torch_dtypes.set_accumulation(torch.e5m5, "machine")
    """
    options = {"chunk": chunk, "product": product, "accumulator": accumulator, "fused": fused, "kahan": kahan, "rounding": rounding}
    chosen = _policy_of(policy, options)
    _C.set_accumulation_default(_expected_dtype(dtype), chosen._native())


def accumulation_of(dtype: torch.dtype | str) -> Accumulation:
    """The accumulation policy that holds for a dtype on this thread now: a block's, where one is active, or else the dtype's own.

    Args:
        dtype: a dtype of this package or a name.

    Raises:
        ValueError: an unknown name.
        TypeError: a stock dtype.

    Example::

        >>> torch_dtypes.accumulation_of(torch.posit16es2).policy
        'machine'
    """
    found = _C.accumulation_of(_expected_dtype(dtype))
    rounding = None if found.rounding is None else found.rounding.name
    return Accumulation(found.kind.name, found.chunk or None, found.product, found.accumulator, found.fused, found.kahan, rounding)

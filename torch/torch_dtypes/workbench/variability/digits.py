"""Significant digits of repeated results."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ...formats.arguments import integer, outline

__all__ = ["Digits", "significant_digits"]

FLOAT32_BITS = 24
_MOST_DIGITS = 64
_METHODS = ("nonparametric", "classic")


def _numbers(samples: object) -> torch.Tensor:
    """Results as one float64 tensor; a sequence may be of tensors, as a loop gives them."""
    made = samples
    if (
        isinstance(samples, (list, tuple))
        and samples
        and all(isinstance(s, torch.Tensor) for s in samples)
    ):
        if len({s.shape for s in samples if not s.is_nested}) == 1 and not any(
            s.is_nested for s in samples
        ):
            made = torch.stack([s.detach() for s in samples])
    try:
        if not isinstance(made, torch.Tensor):
            made = torch.as_tensor(made, dtype=torch.float64)
        if (
            made.is_complex()
            or made.layout is not torch.strided
            or made.is_nested
            or made.is_quantized
        ):
            raise TypeError
        return made.detach().to(torch.float64)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(
            "expected samples as a tensor, an array or a sequence of real results of one shape, "
            f"but got {outline(samples)}"
        ) from None


def _reference(given: object, x: torch.Tensor) -> torch.Tensor:
    try:
        at = (
            given
            if isinstance(given, torch.Tensor)
            else torch.as_tensor(given, dtype=torch.float64)
        )
        if at.is_complex():
            raise TypeError
        at = at.detach().to(torch.float64)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"expected a reference of real numbers, but got {outline(given)}") from None
    try:
        fits = torch.broadcast_shapes(at.shape, x.shape[1:]) == x.shape[1:]
    except RuntimeError:
        fits = False
    if not fits:
        raise ValueError(
            f"expected a reference that broadcasts over results of shape {tuple(x.shape[1:])}, "
            f"but got {tuple(at.shape)}"
        )
    return at


@dataclass(frozen=True)
class Digits:
    """What ``significant_digits`` gives, each a float64 tensor of the samples' shape without their
    dimension.

    Attributes:
        decimal, bits: the significant digits in base 10 and in base 2.
        mean, deviation: of the samples; the deviation is the sample's own (divided by n - 1).
        probability: that a further result agrees with the reference to so many digits, at least,
            with ``confidence``; None for the classic estimator.
        samples: how many there were.
    """

    decimal: torch.Tensor
    bits: torch.Tensor
    mean: torch.Tensor
    deviation: torch.Tensor
    probability: float | None
    confidence: float | None
    samples: int


def check_shares(probability: float, confidence: float) -> None:
    """Both are numbers between 0 and 1."""
    for name, value in (("probability", probability), ("confidence", confidence)):
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            raise TypeError(
                f"expected a number between 0 and 1 for {name}, but got {outline(value)}"
            )
        if not 0 < value < 1:
            raise ValueError(f"expected {name} between 0 and 1, but got {value!r}")


def significant_digits(
    samples: torch.Tensor | Sequence,
    *,
    reference: torch.Tensor | float | None = None,
    method: str = "nonparametric",
    probability: float = 0.95,
    confidence: float = 0.95,
    digits: int = FLOAT32_BITS,
) -> Digits:
    """How many digits of a result do not depend on rounding, from ``n`` runs of it under random
    rounding (``fuzzy``).

    With Z = X / reference - 1 of a result X: ``"nonparametric"``: -log2 |Z|, of the largest |Z| but
    for as many as the confidence allows, so that a further result agrees to so many bits with
    ``probability``, at ``confidence``. All n samples must agree for a probability of
    ``(1 - confidence)^(1/n)``: 59 samples for 0.95 at 0.95. With fewer, that smaller probability is
    meant, and given back. ``"classic"``: -log2 |deviation / mean|, Parker's estimate, which assumes
    a normal distribution.

    Results lie between 0 and ``digits`` bits: all samples equal have all of them, also at 0; a
    reference of 0 with samples that differ has none. A sample or reference that is not finite makes
    the result NaN.

    Args:
        samples: n at least 2 results along the first dimension.
        reference: what they are compared with, broadcast over them; the samples' mean where None.
        method: ``"nonparametric"`` or ``"classic"`` (which has no reference).
        probability, confidence: between 0 and 1, exclusive.
        digits: of the format, in bits: float32's 24.

    Raises:
        ValueError: fewer than two samples, an unknown method, a number out of its range, a
            reference of another shape.
        TypeError: samples or a reference that are no real numbers.

    Sources: Sohier, de Oliveira Castro, Févotte, Lathuilière, Petit, Jamond, "Confidence intervals
    for stochastic arithmetic", ACM TOMS 47 (2021), section 5; Parker, "Monte Carlo arithmetic"
    (1997).

    Example::

        >>> found = torch_dtypes.significant_digits([1.0001, 0.9999, 1.0])
        >>> round(found.decimal.item(), 2), round(found.probability, 2)
        (4.0, 0.37)
    """
    x = _numbers(samples)
    if x.dim() == 0 or len(x) < 2:
        raise ValueError(
            f"expected at least two samples along the first dimension, but got {tuple(x.shape)}: "
            "run the computation again"
        )
    if method not in _METHODS:
        raise ValueError(f"expected a method out of {', '.join(_METHODS)}, but got {method!r}")
    check_shares(probability, confidence)
    if method == "classic" and reference is not None:
        raise ValueError(
            "expected no reference with method='classic', which goes by the samples' own mean"
        )
    digits = integer("digits", digits, 1, _MOST_DIGITS)
    if reference is not None:
        reference = _reference(reference, x)
    n = len(x)
    same = (x == x[0]).all(0)
    mean = torch.where(same, x[0], x.mean(0))  # a sum rounds
    deviation = torch.where(same, 0.0, x.std(0))
    if method == "classic":
        error, reached = torch.where(same, 0.0, deviation / mean.abs()), None
    else:
        at = mean if reference is None else reference
        distance = torch.where(x == at, 0.0, (x - at).abs() / at.abs())
        kept, reached = _kept(n, probability, confidence)
        error = distance.sort(0).values[kept - 1]
    bits = torch.where(error == 0, float(digits), -torch.log2(error)).clamp(0, digits)
    finite = x.isfinite().all(0) & mean.isfinite()
    if reference is not None:
        finite = finite & reference.isfinite()
    bits = torch.where(finite, bits.nan_to_num(0.0), math.nan)
    return Digits(
        bits * math.log10(2),
        bits,
        mean,
        deviation,
        reached,
        None if method == "classic" else confidence,
        n,
    )


def _kept(n: int, probability: float, confidence: float) -> tuple[int, float]:
    """Of n distances in rising order, the number of the one that bounds a share ``probability`` of
    all, at the confidence; and that probability.

    The number of samples beyond a quantile of probability p is binomial: the smallest number k with
    P(Binomial(n, p) < k) >= confidence serves. Where even all n do not, the largest p for which
    they do is (1 - confidence)^(1/n).
    """

    def exactly(k: int) -> float:  # by logarithms: powers of many samples underflow
        ways = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
        return math.exp(ways + k * math.log(probability) + (n - k) * math.log1p(-probability))

    kept, at_least = n + 1, 0.0
    while kept > 1 and at_least + exactly(kept - 1) <= 1 - confidence:
        kept -= 1
        at_least += exactly(kept)
    return (kept, probability) if kept <= n else (n, (1 - confidence) ** (1 / n))

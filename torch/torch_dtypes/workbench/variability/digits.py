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
    """Convert results to one float64 tensor. A sequence of tensors, as from a loop, is stacked."""
    result = samples
    if (
        isinstance(samples, (list, tuple))
        and samples
        and all(isinstance(s, torch.Tensor) for s in samples)
    ):
        if len({s.shape for s in samples if not s.is_nested}) == 1 and not any(
            s.is_nested for s in samples
        ):
            result = torch.stack([s.detach() for s in samples])
    try:
        if not isinstance(result, torch.Tensor):
            result = torch.as_tensor(result, dtype=torch.float64)
        if (
            result.is_complex()
            or result.layout is not torch.strided
            or result.is_nested
            or result.is_quantized
        ):
            raise TypeError
        return result.detach().to(torch.float64)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(
            "expected samples as a tensor, an array or a sequence of real results of one shape, "
            f"but got {outline(samples)}"
        ) from None


def _reference(reference: object, x: torch.Tensor) -> torch.Tensor:
    try:
        at = (
            reference
            if isinstance(reference, torch.Tensor)
            else torch.as_tensor(reference, dtype=torch.float64)
        )
        if at.is_complex():
            raise TypeError
        at = at.detach().to(torch.float64)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(
            f"expected a reference of real numbers, but got {outline(reference)}"
        ) from None
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
    """The result of ``significant_digits``: float64 tensors of the samples' shape without the first
    dimension.

    Attributes:
        decimal, bits: the significant digits in base 10 and in base 2.
        mean, deviation: the samples' mean and standard deviation (divided by n - 1).
        probability: the probability, at ``confidence``, that a further result agrees with the
            reference to at least that many digits; None for the classic estimator.
        samples: the number of samples.
    """

    decimal: torch.Tensor
    bits: torch.Tensor
    mean: torch.Tensor
    deviation: torch.Tensor
    probability: float | None
    confidence: float | None
    samples: int


def check_shares(probability: float, confidence: float) -> None:
    """Check that both are numbers between 0 and 1."""
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
    """Estimate how many digits of a result do not depend on rounding, from ``n`` runs under random
    rounding (``fuzzy``).

    For a result X, let Z = X / reference - 1. ``"nonparametric"`` gives -log2 |Z| of the largest
    |Z|, after it drops as many of the largest as the confidence allows. A further result then
    agrees to that many bits with ``probability``, at ``confidence``. If all n samples must agree,
    the probability is ``(1 - confidence)^(1/n)``: 0.95 at 0.95 takes 59 samples. With fewer
    samples, that smaller probability is used, and returned. ``"classic"`` is -log2 |deviation /
    mean|, Parker's estimate, which assumes a normal distribution.

    Results are between 0 and ``digits`` bits. Equal samples have all digits, also at 0; different
    samples with a reference of 0 have none. A sample or reference that is not finite makes the
    result NaN.

    Args:
        samples: n results, at least 2, along the first dimension.
        reference: the value to compare with, broadcast over the results; None: the samples' mean.
        method: ``"nonparametric"`` or ``"classic"`` (which has no reference).
        probability, confidence: between 0 and 1, exclusive.
        digits: the bits of the format's significand; 24 for float32.

    Raises:
        ValueError: fewer than two samples, an unknown method, a number out of its range, a
            reference of another shape.
        TypeError: samples or a reference that are not real numbers.

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
            "expected no reference with method='classic', which uses the samples' own mean"
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
        kept, reached = _find_bound(n, probability, confidence)
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


def _find_bound(n: int, probability: float, confidence: float) -> tuple[int, float]:
    """Return k and a probability: at the confidence, the k-th smallest of n distances bounds that
    share of all.

    The number of samples below a quantile of probability p is binomial, so k is the smallest number
    with P(Binomial(n, p) < k) >= confidence. If even k = n does not suffice, the largest p for
    which it does is (1 - confidence)^(1/n).
    """

    def exactly(k: int) -> float:  # in logarithms, because powers of many samples underflow
        ways = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
        return math.exp(ways + k * math.log(probability) + (n - k) * math.log1p(-probability))

    kept, at_least = n + 1, 0.0
    while kept > 1 and at_least + exactly(kept - 1) <= 1 - confidence:
        kept -= 1
        at_least += exactly(kept)
    return (kept, probability) if kept <= n else (n, (1 - confidence) ** (1 / n))

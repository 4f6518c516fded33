"""Assign formats to layers: the least sum of rises within a budget of bits, or the fewest bits
within a rise.

Each row takes one of several columns. That is a multiple-choice knapsack, solved exactly as an
integer linear programme (HiGHS, by ``scipy.optimize.milp``), as in HAWQ-V3 (Yao et al., arXiv
2011.10680).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

SLACK = 1e-9  # relative slack of a limit, so that sums in another order are within it too
_UNITS = 1e6  # the largest coefficient over the smallest; the solver's tolerance is 1e-6
_OBJECTIVE = 1e4  # the largest value after scaling; the solver is accurate to 1e-6


@dataclass(frozen=True)
class Mixture:
    """A format for each layer.

    Attributes:
        formats: the formats' names, as given, by the layers' names. Layers that share a weight have
            one, under the first name.
        rules: the same for ``quantize_``: a rule for each layer, tied ones too.
        bits, stored: bits of a weight, on average: by the formats' own figures (a block's scale
            included), and as ``torch_dtypes.quantize`` packs them.
        predicted: the metric if rises added up. measured: the metric of the network in this
            mixture; infinite if it is not finite.
        scales: a state dict with scales alone, which ``quantize_`` takes as ``calibrate=`` for
            these rules instead of batches.
        budget: the requested budget, ``("bits", 6.0)`` or ``("metric", 0.1)``; None for uniform
            formats.
    """

    formats: dict[str, str]
    rules: dict[str, dict]
    bits: float
    stored: float
    predicted: float
    measured: float
    scales: object = field(repr=False, compare=False, default=None)
    budget: tuple[str, float] | None = None

    @property
    def label(self) -> str:
        """Budget in words, or the one format."""
        if self.budget is None:
            return next(iter(self.formats.values()))
        kind, limit = self.budget
        return f"at most {limit:g} bits" if kind == "bits" else f"rise of at most {limit:g}"


def solver():
    """Import ``scipy.optimize``.

    Raises:
        ModuleNotFoundError: scipy is not installed.
    """
    try:
        import scipy.optimize
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "choosing a mixture needs scipy, which is not installed: pip install "
            "'torch-dtypes[train]'"
        ) from error
    return scipy.optimize


def assign(
    values: Sequence[Sequence[float]], costs: Sequence[Sequence[float]], limit: float
) -> list[int] | None:
    """Choose a column for each row with the least sum of values whose costs add up to at most
    ``limit``; None if that is impossible.

    The sum is the least within 1e-9 of its distance from the sum of the rows' least values. Columns
    with an infinite value or cost are never chosen. Of two equal columns it takes the first.

    Args:
        values, costs: numbers of the same shape, without NaN.

    Raises:
        ModuleNotFoundError: without scipy.
    """
    optimize = solver()
    rows = [_drop_dominated(v, c) for v, c in zip(values, costs, strict=True)]
    if (
        not all(rows)
        or math.fsum(min(c[j] for j in row) for row, c in zip(rows, costs, strict=True)) > limit
    ):
        return None
    least = [min(v[j] for j in row) for row, v in zip(rows, values, strict=True)]
    excess = [{j: v[j] - low for j in row} for row, v, low in zip(rows, values, least, strict=True)]
    top = max(max(row.values()) for row in excess)
    while True:
        chosen = _solve(optimize, excess, costs, limit)
        reached = math.fsum(row[j] for row, j in zip(excess, chosen, strict=True))
        # No better choice has a column that alone exceeds this sum. Without such columns, the rest
        # has a finer scale.
        excess = [{j: x for j, x in row.items() if x <= reached} for row in excess]
        before, top = top, max(max(row.values()) for row in excess)
        if reached == 0 or top > before / 2:
            return chosen


def _drop_dominated(values: Sequence[float], costs: Sequence[float]) -> list[int]:
    """Return the columns of a row that no other one matches in both value and cost; of equal ones
    the first."""
    kept = []
    for j in sorted(
        (j for j in range(len(values)) if math.isfinite(values[j]) and math.isfinite(costs[j])),
        key=lambda j: (costs[j], values[j], j),
    ):
        if not kept or values[j] < values[kept[-1]]:
            kept.append(j)
    return kept


def _solve(
    optimize, excess: list[dict[int, float]], costs: Sequence[Sequence[float]], limit: float
) -> list[int]:
    """Return the best choice of these columns, which must exist."""
    import numpy as np

    places = [(i, j) for i, row in enumerate(excess) for j in row]
    number = {place: n for n, place in enumerate(places)}
    top = max(max(row.values()) for row in excess) or 1.0
    objective = np.array([excess[i][j] / top * _OBJECTIVE for i, j in places])
    cheapest = [min(costs[i][j] for j in row) for i, row in enumerate(excess)]
    above = [costs[i][j] - cheapest[i] for i, j in places]
    steps = [x for x in above if x > 0]
    unit = max(min(steps), max(steps) / _UNITS) if steps else 1.0
    room = max(0.0, limit - math.fsum(cheapest)) / unit
    one = np.zeros((len(excess), len(places)))
    for n, (i, _) in enumerate(places):
        one[i, n] = 1
    rows, uppers = [np.array(above) / unit], [room]
    while True:
        limits = optimize.LinearConstraint(np.array(rows), -np.inf, uppers)
        solution = optimize.milp(
            objective,
            integrality=np.ones(len(places)),
            bounds=optimize.Bounds(0, 1),
            constraints=[optimize.LinearConstraint(one, 1, 1), limits],
            options={"mip_rel_gap": 0.0},
        )
        if solution.x is None:
            raise RuntimeError(
                "expected scipy.optimize.milp to solve the assignment of formats, but it says: "
                f"{solution.message}"
            )
        chosen = [
            max(row, key=lambda j, i=i: solution.x[number[i, j]]) for i, row in enumerate(excess)
        ]
        if math.fsum(costs[i][j] for i, j in enumerate(chosen)) <= limit:
            return chosen
        # It exceeds the limit by less than the solver's tolerance: exclude this choice, and those
        # that cost as much in every row.
        rows.append(np.array([float(costs[i][j] >= costs[i][chosen[i]]) for i, j in places]))
        uppers.append(len(excess) - 1)

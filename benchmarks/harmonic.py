"""Draws the harmonic series in float32, rounded in several ways.

Usage: ``python benchmarks/harmonic.py docs/images/harmonic.png``. Once 1/i is below half a unit in
the last place of the sum, rounding to nearest drops every term, and the sum stops growing.
Stochastic rounding keeps the mean of every addition, so its sums follow float64's. Up-down rounding
is float32's with a step up or down after every operation, which has mean 0. So its sums stay near
float32's, further apart from each other. The experiment is from Gonzalez-Pepe, Akhaddar, Glatard,
Chatelain, "Fuzzy PyTorch" (arXiv 2605.25991). ``--published harmonic-numerics.csv`` adds points of
other methods: the file of that name in experiments/harmonic of the paper's repository,
https://github.com/yohanchatelain/fuzzy-pytorch (e9e1e42).
"""

from __future__ import annotations

import argparse
import csv
from dataclasses import dataclass

import torch

from torch_dtypes import fuzzy
from torch_dtypes.workbench.report.colours import GREY, PALETTE
from torch_dtypes.workbench.report.drawing import new_figure

MODES = ("nearest_even", "stochastic", "up_down")
_CHUNK = 1 << 16


@dataclass(frozen=True)
class Harmonic:
    """Sums of the first ``terms`` (int64) terms.

    ``exact`` is in float64. ``sums`` has a float64 tensor for each mode, with a row for each run.
    """

    terms: torch.Tensor
    exact: torch.Tensor
    sums: dict[str, torch.Tensor]


def harmonic(
    terms: int, *, runs: int = 20, points: int = 80, seed: int = 0, first: int = 1
) -> Harmonic:
    """Sum 1/first + 1/(first + 1) + ... in float32, after the exact sum of all earlier terms.

    Quotients and sums are rounded one after the other.

    Args:
        terms: number of terms, at least 1. runs: runs of each random mode. points: number of kept
            partial sums, evenly spaced in the logarithm.
        seed: seed of the random bits. first: the first denominator.
    """
    stop = first + terms - 1
    ends = torch.linspace(float(first), float(stop), 2, dtype=torch.float64).log10()
    kept = (
        torch.logspace(*ends.tolist(), points, dtype=torch.float64)
        .round()
        .long()
        .clamp(first, stop)
        .unique()
    )
    before = (1 / torch.arange(1, first, dtype=torch.float64)).sum().item()
    sums = {
        mode: _partial_sums(
            mode, 1 if mode == "nearest_even" else runs, first, stop, kept, before, seed
        )
        for mode in MODES
    }
    exact = (1 / torch.arange(first, stop + 1, dtype=torch.float64)).cumsum(0)[
        kept - first
    ] + before
    return Harmonic(kept, exact, sums)


def _partial_sums(
    mode: str, runs: int, first: int, stop: int, kept: torch.Tensor, before: float, seed: int
) -> torch.Tensor:
    parts, total = [], torch.full((runs, 1), before)
    with fuzzy(mode=mode, accumulate="format", seed=seed):
        for start in range(first, stop + 1, _CHUNK):
            i = torch.arange(start, min(start + _CHUNK, stop + 1))
            quotients = torch.ones(runs, 1) / i.to(torch.float32)
            # Step by step, as a loop adds.
            partial = torch.cat([total, quotients], 1).cumsum(1)[:, 1:]
            parts.append(partial[:, kept[(kept >= start) & (kept < start + len(i))] - start])
            total = partial[:, -1:].clone()
    return torch.cat(parts, 1).double()


# Names in the paper's file, and in its figures; MCA is Monte Carlo arithmetic, random rounding.
METHODS = {
    "prism_sr": "PRISM, stochastic",
    "prism_ud": "PRISM, up-down",
    "verrou_sr": "Verrou, stochastic",
    "verrou_cestac": "Verrou, CESTAC",
    "verificarlo": "Verificarlo, MCA",
}
_MARKERS = dict(zip(METHODS, "^vsDo", strict=True))

Published = dict[str, list[tuple[int, float, float]]]


def read_published(path: str) -> Published:
    """Read the paper's points: for each method, the terms, the mean of three runs and their
    standard deviation, in the order of terms."""
    points: Published = {name: [] for name in METHODS}
    with open(path, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["tool"] in points and row["mode"] == "perf":
                numbers = int(row["iterations"]), float(row["mean"]), float(row["std"])
                points[row["tool"]].append(numbers)
    return {name: sorted(rows) for name, rows in points.items()}


def _draw_published(published: Published, first: float, last: float, sums, variances) -> None:
    for name, points in published.items():
        inside = [(n / 1e6, mean) for n, mean, _ in points if first <= n <= last]
        look = {"color": "black", "marker": _MARKERS[name], "markersize": 4, "fillstyle": "none"}
        sums.plot(*zip(*inside, strict=True), linestyle="", label=METHODS[name], zorder=4, **look)
        spread = [(n, max(std**2, 1e-18)) for n, _, std in points if n <= last]
        variances.plot(*zip(*spread[::6], strict=True), linestyle="", zorder=1, alpha=0.6, **look)


def harmonic_figure(series: Harmonic, width: str = "page", published: Published | None = None):
    """Draw the end of the sums, and the variance of runs, against the number of terms; with
    ``published``, points of other methods, too."""
    words = {"nearest_even": "float32", "stochastic": "stochastic", "up_down": "up-down"}
    colour = {"nearest_even": GREY, "stochastic": PALETTE[0], "up_down": PALETTE[1]}
    with new_figure(width, 3.6 if width == "page" else 4.2) as figure:
        sums, variances = figure.subplots(1, 2) if width == "page" else figure.subplots(2, 1)
        shown = series.exact > series.exact[-1] - 3
        n = series.terms[shown]
        n = n / 1e6
        sums.plot(
            n, series.exact[shown], color=GREY, linestyle=(0, (5, 2)), label="float64", zorder=3
        )
        for mode, x in series.sums.items():
            mean, far = (
                x.mean(0)[shown],
                x.std(0)[shown] if len(x) > 1 else torch.zeros(int(shown.sum())),
            )
            # Drawn over the lines that it would hide behind.
            plain = (
                {"linestyle": (0, (1.2, 1.4)), "linewidth": 1.5, "zorder": 3}
                if len(x) == 1
                else {"linewidth": 2.4}
            )
            sums.plot(n, mean, color=colour[mode], label=words[mode], **plain)
            if len(x) > 1:
                sums.fill_between(
                    n, mean - 3 * far, mean + 3 * far, color=colour[mode], alpha=0.2, linewidth=0
                )
                variances.plot(
                    series.terms,
                    x.var(0).clamp_min(1e-18),
                    color=colour[mode],
                    label=words[mode],
                    linewidth=1.8,
                )
        if published:
            ends = series.terms[shown]
            _draw_published(published, ends[0].item(), ends[-1].item(), sums, variances)
        sums.set(xlabel="millions of terms", ylabel="sum (band: 3 deviations of runs)")
        variances.set(
            xscale="log",
            yscale="log",
            xlabel="terms",
            ylabel="variance of runs",
            ylim=(1e-16, None),
        )
        for axes in (sums, variances):
            axes.grid()
            axes.legend(fontsize=7 if published else None)
    return figure


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("path", help="file of the figure; its suffix is the format")
    parser.add_argument("--terms", type=int, default=2**22)
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--published", help="the paper's harmonic-numerics.csv")
    arguments = parser.parse_args()
    series = harmonic(arguments.terms, runs=arguments.runs, seed=arguments.seed)
    print(f"{arguments.terms:,} terms: float64 {series.exact[-1]:.6f}")
    for mode, sums in series.sums.items():
        spread = f", variance {sums[:, -1].var():.3g} of {len(sums)} runs" if len(sums) > 1 else ""
        print(f"{mode}: {sums[:, -1].mean():.6f}{spread}")
    published = read_published(arguments.published) if arguments.published else {}
    for name, points in published.items():
        terms, mean, std = max(p for p in points if p[0] <= arguments.terms)
        print(f"published, {METHODS[name]}: {mean:.6f} after {terms:,}, variance {std**2:.3g}")
    harmonic_figure(series, published=published).savefig(arguments.path)


if __name__ == "__main__":
    main()

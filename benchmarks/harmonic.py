"""Draws the harmonic series in float32, stochastically and up-down: ``python benchmarks/harmonic.py docs/images/harmonic.png``."""

import argparse

from torch_dtypes.workbench.variability.harmonic import harmonic, harmonic_figure


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", help="of the figure; its ending says the kind")
    parser.add_argument("--terms", type=int, default=2**22)
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    found = harmonic(arguments.terms, runs=arguments.runs, seed=arguments.seed)
    print(f"{arguments.terms:,} terms: float64 {found.exact[-1]:.6f}")
    for mode, sums in found.sums.items():
        spread = f", variance {sums[:, -1].var():.3g} of {len(sums)} runs" if len(sums) > 1 else ""
        print(f"{mode}: {sums[:, -1].mean():.6f}{spread}")
    harmonic_figure(found).savefig(arguments.path)


if __name__ == "__main__":
    main()

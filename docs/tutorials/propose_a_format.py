# %% [markdown]
# # Propose a format and sweep it
#
# Six bits for weights and activations: how should they be spent? Exponent bits buy range, fraction
# bits precision, a posit tapers between the two, fixed point has no range at all. This tutorial
# looks at candidates, sweeps them over a network, and takes one of them further.
#
#     python docs/tutorials/propose_a_format.py            # a few minutes
#     python docs/tutorials/propose_a_format.py --small    # seconds: what the tests run

# %%
import sys

import torch

import torch_dtypes

SMALL = "--small" in sys.argv

# %% [markdown]
# ## Candidates
#
# A name is a format: `e3m2` has a sign, three exponent and two fraction bits; `finite` spends the
# topmost codes on numbers instead of infinities and NaN; `posit6es1` is a posit; `fixed1_4` has one
# bit before the binary point. `show` says what each one is; a card has the same as numbers. None of
# them needs a line of C++, and none is registered as a dtype before it is used as one.

# %%
candidates = ["e2m3finite", "e3m2finite", "e4m1finite", "posit6es0", "posit6es1", "fixed1_4"]
if SMALL:
    candidates = ["e3m2finite", "fixed1_4"]
torch_dtypes.show(*candidates).print()

# %% [markdown]
# ## One tensor
#
# `chop` rounds float tensors to any of them. Signal over rounding error of normally distributed
# numbers, at three widths: a format without range is best where the scale fits and useless where it
# does not.

# %%
torch.manual_seed(0)
print(f"\n{'σ':>12}", *(f"{sigma:8}" for sigma in (0.05, 0.5, 5.0)))
for name in candidates:
    row = []
    for sigma in (0.05, 0.5, 5.0):
        x = sigma * torch.randn(10_000)
        row.append(
            10
            * torch.log10(x.square().sum() / (torch_dtypes.chop(x, name) - x).square().sum()).item()
        )
    print(f"{name:>12}", *(f"{decibels:8.1f}" for decibels in row))

# %% [markdown]
# ## The sweep
#
# A cell for each format and seed, in a process of its own: LeNet-5 on scikit-learn's digits,
# trained in float32, then weights and activations rounded (the recipe `ptq`). On the command line
# this is
#
#     torch-dtypes sweep --format e2m3finite --format e3m2finite ... --recipe ptq --seed 0 --seed 1
#     --epochs 5 --out sweep
#
# which can be interrupted and goes on where it was, writes tables as Markdown, CSV, LaTeX and JSON,
# a heat map and a report.

# %%
settings = dict(epochs=1, train_samples=300, test_samples=100) if SMALL else dict(epochs=5)
found = torch_dtypes.sweep(candidates, recipe="ptq", seed=range(1 if SMALL else 3), **settings)
print("\n" + found.to_markdown())

# %% [markdown]
# Do the candidates differ by more than seeds do? A point for each seed:

# %%
import matplotlib.pyplot as plt  # noqa: E402

figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
rows = found.rows()
axes.plot([row["format"] for row in rows], [row["accuracy"] for row in rows], "o", alpha=0.6)
axes.set_ylabel("test accuracy in percent")
figure.savefig("propose_a_format.png")

# %% [markdown]
# Three seeds, five epochs; float32 reaches 96.57 ± 0.89 %, a guess 12.2 %:
#
# | e2m3finite | e3m2finite | e4m1finite | posit6es0 | posit6es1 | fixed1_4 |
# |---|---|---|---|---|---|
# | 96.11 ± 0.48 | 96.67 ± 1.44 | 96.20 ± 1.05 | 97.04 ± 1.81 | 96.39 ± 1.00 | 96.48 ± 1.28 |
#
# `ptq` rounds weights and activations of a network that float32 has trained; only integers get
# scales, by calibration, so range counts for these formats, too. Yet no candidate is further from
# float32 than seeds are from each other. On this network six bits are enough whichever way they are
# spent; to tell formats apart take fewer bits, more seeds, or a harder task.
#
# ## Further: rounding modes, training, blocks
#
# A format that serves here need not serve in training, where gradients want range. The same call
# takes recipes (`recipe=["qat", "mixed"]`), rounding modes (`rounding=["nearest_even",
# "stochastic"]`), accumulators (`accumulate="chunked(32)"`), blocks with shared scales, and your
# own networks and data (`model="package.module:factory"`, `dataset="package.module:loader"`). For a
# format that is not made of exponent and fraction fields see [the names](../numerics.md#formats);
# for everything a sweep keeps, [sweeps](../how-to/run-a-sweep.md).

# %%
chosen = max(found.rows(), key=lambda row: row["accuracy"])["format"]
print(f"first in this sweep: {chosen}")
# The same six bits with a shared power of two: 6.25 bits a value.
blocks = torch_dtypes.block_format(chosen, "e8m0", 32)
x = 0.05 * torch.randn(32, 1024)
for target in (torch_dtypes.target(chosen), blocks):
    error = target.quantize(x) - x
    print(
        f"{target.name:28} "
        f"{10 * torch.log10(x.square().sum() / error.square().sum()).item():5.1f} dB at σ = 0.05"
    )

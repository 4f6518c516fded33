# %% [markdown]
# # What must the accumulator be?
#
# A dot product's terms are small; its sum is not. An adder of few bits stops growing once a term is
# below half a unit in the sum's last place: *swamping*. How wide must the accumulator be, for sums
# of which length, and what do chunks, stochastic rounding or an exact register save? One argument
# answers: `torch_dtypes.accumulate`.
#
#     python docs/tutorials/accumulator.py            # half a minute
#     python docs/tutorials/accumulator.py --small    # seconds: what the tests run

# %%
import sys

import torch

import torch_dtypes

SMALL = "--small" in sys.argv
torch.manual_seed(0)

# %% [markdown]
# ## Swamping
#
# 65,536 ones, added one after the other. e6m9 has ten significant bits: from 1,024 on the next
# number is 2 away, and adding 1 is a tie that goes back to the even neighbour. The sum stays 1,024
# for ever. In chunks of 32 terms the chunks' sums are added in a wider type; an exact accumulator
# (a quire) is right.

# %%
e6m9 = torch_dtypes.dtype("e6m9")
ones = torch.ones(4096 if SMALL else 65_536).to(e6m9)


def total(policy, **options):
    with torch_dtypes.accumulate(policy, **options):
        return ones.sum().item()


print("length            ", len(ones))
print("format            ", total("format"))
print("format, stochastic", total("format", rounding="stochastic"))
print("format, Kahan     ", total("format", kahan=True))
print("chunked(32)       ", total("chunked(32)"))
print("exact             ", total("exact"))

# %% [markdown]
# Of 65,536 ones: 1,024; 65,216 stochastically, right on average; 65,536 with Kahan's compensation,
# in chunks and exactly.
#
# ## The accumulator's digits against the length
#
# The same for random products of 8-bit numbers: signal over error in decibels, in accumulators of 3
# to 15 fraction bits. Read a column downwards: each bit is worth six decibels. Read a row to the
# right: the longer the sum, the more bits it takes.

# %%
lengths = (16, 64, 256) if SMALL else (16, 64, 256, 1024, 4096)
fractions = (3, 7, 11) if SMALL else (3, 5, 7, 9, 11, 13, 15)
rows = 16 if SMALL else 64


def decibels(length, man_bits, policy="format"):
    # Of one sign: sums grow.
    a, b = torch.rand(rows, length).to(torch.q43), torch.rand(length, 1).to(torch.q43)
    right = a.double() @ b.double()
    # The result's own format has to hold what the accumulator has.
    carrier = torch_dtypes.dtype("e8m23")
    with torch_dtypes.accumulate(policy, product=carrier, accumulator=f"e8m{man_bits}"):
        found = (a.to(carrier) @ b.to(carrier)).double()
    return (
        10 * torch.log10((right**2).mean() / ((found - right) ** 2).mean().clamp(min=1e-30)).item()
    )


signal = {f"{bits} bits": [decibels(n, bits) for n in lengths] for bits in fractions}
signal["7 bits, chunks of 32"] = [decibels(n, 7, "chunked(32)") for n in lengths]
print(f"{'':20}", *(f"{n:>8}" for n in lengths))
for name, row in signal.items():
    print(f"{name:20}", *(f"{value:8.1f}" for value in row))

# %% [markdown]
# A line falls where the accumulator is too narrow for the sum. Chunks keep it level.

# %%
import matplotlib.pyplot as plt  # noqa: E402

figure, axes = plt.subplots(figsize=(8, 4), layout="constrained")
for name, row in signal.items():
    axes.plot(lengths, row, marker="o", label=name)
axes.set_xscale("log", base=2)
axes.set_xlabel("terms of a sum")
axes.set_ylabel("signal over error in decibels")
axes.legend(title="fraction of the accumulator", loc="center left", bbox_to_anchor=(1, 0.5))
figure.savefig("accumulator.png")

# %% [markdown]
# ## A network
#
# A classifier need not care for the digits that a dot product loses. So train in float32 and
# evaluate under each accumulator: weights and activations stay in q43, only the sums change.

# %%
from sklearn.datasets import load_digits  # noqa: E402

images, labels = load_digits(return_X_y=True)
x, y = torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels)
model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
optimizer = torch.optim.Adam(model.parameters(), 0.01)
for _ in range(2 if SMALL else 15):
    for batch in torch.randperm(1400).split(32):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
        optimizer.step()


def accuracy(**sums):
    rounded = torch_dtypes.quantize_(
        model, {torch.nn.Linear: dict(weight="q43", activation="q43", **sums)}
    )
    with torch.no_grad():
        return 100 * (rounded(x[1400:]).argmax(1) == y[1400:]).float().mean().item()


print(f"accumulated in float32 {accuracy():.1f} %")
for man_bits in (1, 4) if SMALL else (1, 2, 3, 4, 6, 8):
    policy = dict(policy="format", product="e8m23", accumulator=f"e6m{man_bits}")
    print(f"accumulated in e6m{man_bits}    {accuracy(accumulate=policy):.1f} %")

# %% [markdown]
# With everything but the sums in q43, trained in float32 for 15 epochs (90.2 % accumulated in
# float32):
#
# | accumulator | e6m1 | e6m2 | e6m3 | e6m4 | e6m6 | e6m8 |
# |---|---|---|---|---|---|---|
# | accuracy | 84.9 % | 89.2 % | 89.9 % | 89.9 % | 90.9 % | 90.2 % |
#
# and decibels by length and fraction bits:
#
# | fraction bits | 16 terms | 64 | 256 | 1024 | 4096 |
# |---|---|---|---|---|---|
# | 3 | 22.7 | 13.8 | 2.5 | 0.6 | 0.1 |
# | 7 | 47.4 | 39.9 | 31.0 | 13.7 | 2.5 |
# | 11 | 74.7 | 66.3 | 61.1 | 49.9 | 34.9 |
# | 15 | 109.2 | 98.3 | 89.2 | 79.6 | 67.9 |
# | 7, in chunks of 32 | 46.8 | 46.6 | 52.6 | 56.7 | 58.6 |
#
# Four bits are enough for sums of 64 terms that only have to be compared; sums of 4,096 want
# eleven, or seven and chunks.
#
# Every policy works in training too, forward and backward:
# `torch-dtypes train --dtype q43 --accumulate "chunked(32)"`, or `accumulate=` in a rule of
# `quantize_`. What each one computes: [accumulation](../accumulators.md#accumulation).

# %% [markdown]
# # Where does my model lose digits?
#
# Two questions hide in this one. How many digits of a float32 result are rounding's alone? And
# which layer suffers most from a narrow format? Both are answered by rounding in one place at a
# time.
#
#     python docs/tutorials/where_digits_go.py            # a minute
#     python docs/tutorials/where_digits_go.py --small    # seconds: what the tests run

# %%
import sys

import torch
from sklearn.datasets import load_digits

import torch_dtypes

SMALL = "--small" in sys.argv
torch.manual_seed(0)

images, labels = load_digits(return_X_y=True)
x, y = torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels)
model = torch.nn.Sequential(
    torch.nn.Linear(64, 64),
    torch.nn.ReLU(),
    torch.nn.Linear(64, 32),
    torch.nn.LayerNorm(32),
    torch.nn.ReLU(),
    torch.nn.Linear(32, 10),
)
optimizer = torch.optim.Adam(model.parameters(), 0.003)
for _ in range(1 if SMALL else 15):
    for batch in torch.randperm(1400).split(32):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
        optimizer.step()
x_test, y_test = x[1400:], y[1400:]

# %% [markdown]
# ## Digits in float32
#
# `fuzzy` rounds every float32 operation up or down at random, so that digits which differ between
# runs are rounding's. How many hold is `significant_digits`' answer, here of a sum in two orders. A
# harmonic series loses what it adds last; summed from the small end it does not.

# %%
terms = 1 / torch.arange(1, 2000 if SMALL else 20_000, dtype=torch.float32)


def total(series):
    s = torch.zeros(())
    for t in series:
        s = s + t
    return s.item()


def runs(series):
    found = []
    for seed in range(4 if SMALL else 10):
        with torch_dtypes.fuzzy(seed=seed):
            found.append(total(series))
    return found


for name, series in (("largest first", terms), ("smallest first", terms.flip(0))):
    print(
        f"{name:16} {torch_dtypes.significant_digits(runs(series)).decimal.item():.1f} decimal "
        "digits"
    )

# %% [markdown]
# ## Digits of a network, and the module that loses them
#
# `variability` does that with a model: it repeats inference, compares metrics and each layer's
# activations, and then perturbs one module at a time, until the smallest set is known that is
# responsible for half of what all modules together do (delta debugging).

# %%
found = torch_dtypes.variability(model, [(x_test, y_test)], repeats=4 if SMALL else 20)
found.print()

# %% [markdown]
# float32 has digits to spare here. A narrow format has not.
#
# ## One layer at a time, in the format
#
# Rules of `quantize_` reach one layer by its name; what the output loses with that layer alone
# rounded says which one to give more bits. Here in decibels of the logits, and in accuracy.


# %%
def logits(rules):
    torch_dtypes.quantize_(model, rules)
    with torch.no_grad():
        out = model(x_test)
    torch_dtypes.dequantize_(model)
    return out


with torch.no_grad():
    right = model(x_test)


signal = {}


def report(what, out):
    decibels = 10 * torch.log10(right.square().sum() / (out - right).square().sum()).item()
    signal[what] = decibels
    print(
        f"{what:24} {decibels:6.1f} dB   "
        f"{100 * (out.argmax(1) == y_test).float().mean().item():5.1f} %"
    )


format = "e3m2finite"
print(f"\nfloat32: {100 * (right.argmax(1) == y_test).float().mean().item():.1f} %; in {format}:")
layers = [name for name, layer in model.named_modules() if isinstance(layer, torch.nn.Linear)]
for name in layers:
    report(f"layer {name}, weights", logits({name: dict(weight=format)}))
    report(f"layer {name}, activations", logits({name: dict(activation=format)}))
report("all of them", logits({torch.nn.Linear: dict(weight=format, activation=format)}))
report(
    "with scales",
    logits(
        {
            torch.nn.Linear: {
                what: dict(format=format, scale="power_of_two", when="call")
                for what in ("weight", "activation")
            }
        }
    ),
)

# %% [markdown]
# The shortest bar is the place that wants more bits:

# %%
import matplotlib.pyplot as plt  # noqa: E402

figure, axes = plt.subplots(figsize=(7, 3.5), layout="constrained")
axes.barh(list(signal), list(signal.values()))
axes.invert_yaxis()
axes.set_xlabel(f"signal over error of the logits in decibels, rounded to {format}")
figure.savefig("where_digits_go.png")

# %% [markdown]
# ## Count what rounding would do
#
# `observe` measures every layer's numbers against a format while the float model runs, without
# changing a bit of it: how many would underflow, overflow, lose what share of their signal.

# %%
with torch_dtypes.observe(model, formats=format) as stats, torch.no_grad():
    model(x_test)
print(stats.worst())

# %% [markdown]
# ## The result
#
# After 15 epochs the harmonic series of 20,000 terms has 5.1 digits from its large end and 6.0 from
# its small one, the network's output 6.8 of float32's 7.2, evenly spread: no layer stands out, and
# all four are responsible. In e3m2 (92.4 % in float32):
#
# | rounded | signal over error | accuracy |
# |---|---|---|
# | layer 0, weights | 20.5 dB | 93.2 % |
# | layer 0, activations | 30.1 dB | 92.2 % |
# | layer 2, weights | 24.5 dB | 93.5 % |
# | layer 2, activations | 30.4 dB | 92.2 % |
# | layer 5, weights | 28.1 dB | 92.7 % |
# | layer 5, activations | 29.7 dB | 92.4 % |
# | all of them | 17.3 dB | 92.9 % |
# | all of them, with scales | 22.7 dB | 92.2 % |
#
# (float32's sums, and so the trained weights, differ with the processor and the number of threads:
# yours may be up to a decibel off.)
#
# The weights of the first layer lose most, and a scale gives back five decibels: they were too
# small for the format, not too many bits short. (Of 397 images one is 0.25 %: differences of half a
# percent in accuracy say nothing.)
#
# A run that is no longer finite says itself where:
# `torch_dtypes.explain_divergence(model, optimizer, forward)` names the first tensor, its layer and
# pass, the likely cause and what to try. More:
# [variability](../how-to/find-lost-digits.md).

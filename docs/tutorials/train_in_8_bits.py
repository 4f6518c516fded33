# %% [markdown]
# # Train in 8 bits
#
# A network whose weights, activations, gradients and optimizer state all have 8 bits does not learn
# by itself: most updates are smaller than half the distance of two numbers, and rounding to nearest
# throws them away. This tutorial shows that, and three ways out of it.
#
#     python docs/tutorials/train_in_8_bits.py            # a minute
#     python docs/tutorials/train_in_8_bits.py --small    # seconds: what the tests run

# %%
import sys

import torch
from sklearn.datasets import load_digits

import torch_dtypes

SMALL = "--small" in sys.argv
EPOCHS, SEEDS = (1, 1) if SMALL else (10, 3)

images, labels = load_digits(return_X_y=True)
x, y = torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels)
x, y, x_test, y_test = x[:1400], y[:1400], x[1400:], y[1400:]


def network():
    return torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))


# %% [markdown]
# One training loop serves every recipe. The loss is taken in float32: the logits are few, and a
# softmax in 8 bits is another question.


# %%
def accuracy_of(make):
    """The mean test accuracy in percent; ``make`` gives a model, its optimizer and what the images
    are converted to."""
    found = []
    for seed in range(SEEDS):
        torch.manual_seed(seed)
        model, optimizer, dtype = make()
        for _ in range(EPOCHS):
            for batch in torch.randperm(len(x)).split(32):
                optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(
                    model(x[batch].to(dtype)).float(), y[batch]
                )
                loss.backward()
                optimizer.step()
        with torch.no_grad():
            found.append(
                (model(x_test.to(dtype)).float().argmax(1) == y_test).float().mean().item()
            )
    return 100 * sum(found) / SEEDS


def everything_in(dtype):
    """A plain optimizer over parameters of the dtype: every operator of a step rounds."""

    def make():
        model = network().to(dtype)
        return model, torch.optim.SGD(model.parameters(), 0.05, momentum=0.9), dtype

    return make


results = {"float32": accuracy_of(everything_in(torch.float32))}
results["q52, to nearest"] = accuracy_of(everything_in(torch.q52))

# %% [markdown]
# ## Stochastic rounding
#
# A dtype's rounding mode is part of it. Rounded stochastically, an update that is a tenth of a unit
# in the last place moves the weight once in ten steps: on average nothing is lost.

# %%
results["q52, stochastic"] = accuracy_of(
    everything_in(torch_dtypes.with_rounding(torch.q52, "stochastic"))
)

# %% [markdown]
# ## Masters
#
# Or the optimizer keeps the sum: `LowPrecision` wraps any optimizer of torch, computes its step in
# float32, and rounds only what is kept. With masters in float32, model, activations and gradients
# have 8 bits; with `master=None` the 8-bit weights are all there is, and they are updated
# stochastically.


# %%
def masters(**options):
    def make():
        model = network().to(torch.q52)
        inner = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
        return model, torch_dtypes.optim.LowPrecision(inner, **options), torch.q52

    return make


results["q52, float32 masters"] = accuracy_of(masters())
results["q52, no masters, state in 8 bits"] = accuracy_of(masters(master=None, state="q52"))

# %% [markdown]
# ## Two formats
#
# Values want digits and gradients want range. `quantize_` leaves parameters in float32 and rounds
# what goes into each product: weights and activations to q43 (e4m3), the errors that come back to
# q52 (e5m2), as float8 training on hardware does.


# %%
def two_formats():
    model = torch_dtypes.quantize_(
        network(), {torch.nn.Linear: dict(weight="q43", activation="q43", error="q52")}
    )
    return model, torch.optim.SGD(model.parameters(), 0.05, momentum=0.9), torch.float32


results["q43 forward, q52 backward"] = accuracy_of(two_formats)

for name, accuracy in results.items():
    print(f"{name:34} {accuracy:5.1f} %")

# %% [markdown]
# Which recipe keeps up with float32? One bar for each:

# %%
import matplotlib.pyplot as plt  # noqa: E402

figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
axes.barh(list(results), list(results.values()))
axes.axvline(results["float32"], color="black", linestyle=":")
axes.invert_yaxis()
axes.set_xlabel("test accuracy in percent")
figure.savefig("train_in_8_bits.png")

# %% [markdown]
# Ten epochs, mean of three seeds:
#
# | float32 | 90.8 % |
# |---|---|
# | q52, to nearest | 61.6 % |
# | q52, stochastic | 90.2 % |
# | q52, float32 masters | 90.6 % |
# | q52, no masters, state in 8 bits | 89.5 % |
# | q43 forward, q52 backward | 90.8 % |
#
# More recipes, networks and data: `torch-dtypes train --recipe all --recipe master --recipe mixed`,
# and [what each of them reaches](../reference/results.md#accuracy-by-recipe). How it works: [mixed
# precision](../how-to/mixed-precision.md).

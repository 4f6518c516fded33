# %% [markdown]
# # Are smaller blocks better?
#
# A block shares one scale. A smaller block has its largest number nearer to the others, so 4-bit
# elements should lose less. With 8-bit scales they may lose more: Fasoli et al., "Is finer better?"
# (arXiv 2601.19026), found it in language models, and why. Here it is, with three remedies.
#
#     python docs/tutorials/block_size.py            # a minute
#     python docs/tutorials/block_size.py --small    # seconds: what the tests run

# %%
import sys

import torch

import torch_dtypes

SMALL = "--small" in sys.argv
torch.manual_seed(0)
normal = torch.randn(1 << (16 if SMALL else 20))


def loss(format, deviation):
    """Mean square error over variance."""
    x = normal * deviation
    return ((torch_dtypes.chop(x, format) - x).square().mean() / deviation**2).item()


# %% [markdown]
# ## The paper's numbers
#
# e2m1 elements, normal data of deviation 0.02, as weights often have. Scales are E4M3, or UE5M3,
# which spends the sign bit that no scale needs on the exponent.

# %%
for scale in ("e4m3fn_saturate", "ue5m3fn"):
    row = [loss(f"block<e2m1finite,{scale},{size}>", 0.02) for size in (16, 8, 4)]
    print(f"{scale:16} blocks of 16, 8, 4:", *(f"{value:.5f}" for value in row))

# %% [markdown]
# | scale | 16 | 8 | 4 |
# |---|---|---|---|
# | E4M3, here | .01064 | .01054 | .01129 |
# | the paper | .01063 | .01054 | .01130 |
# | UE5M3, here | .00906 | .00732 | .00515 |
# | the paper | .00905 | .00730 | .00514 |
#
# ## Why
#
# The scale of a block is its largest magnitude over 6. For data of deviation 0.02 that is about
# 0.007, and E4M3's smallest normal number is 0.0156. Below it the scales are multiples of 1/512: a
# scale may be a quarter too large. Smaller blocks have smaller maxima, so they lie deeper there.
# Look at the error against the deviation of the data.

# %%
import matplotlib.pyplot as plt  # noqa: E402

deviations = [2**-e for e in ((4, 6, 8) if SMALL else torch.arange(0, 10.1, 0.25).tolist())]
shown = {
    "E4M3 scales": "block<e2m1finite,e4m3fn_saturate,{}>",
    "UE5M3 scales": "block<e2m1finite,ue5m3fn,{}>",
    "E4M3 and a tensor scale": "block<e2m1finite,e4m3fn_saturate,{}>_scaled",
    "the same, four over six": "block<e2m1finite,e4m3fn_saturate,{}>_four_over_six_scaled",
}
figure, panels = plt.subplots(1, 4, figsize=(12, 3.6), sharey=True, layout="constrained")
for axes, (name, format) in zip(panels, shown.items(), strict=True):
    for size, style in ((16, "-"), (8, "--"), (4, ":")):
        row = [loss(format.format(size), deviation) for deviation in deviations]
        axes.plot(deviations, row, style, color="C0", label=f"blocks of {size}")
    axes.axvline(0.02, color="0.7", linewidth=1)
    axes.set(xscale="log", yscale="log", title=name, xlabel="deviation of the data")
panels[0].set_ylabel("mean square error over variance")
panels[0].legend()
figure.savefig("block_size.png")

# %% [markdown]
# With E4M3 alone the lines cross: to the left of the grey line (0.02) smaller blocks are worse.
# Below 0.005 they are one line, since nearly every scale is the smallest number. Three remedies
# keep them apart: a scale with more range; one scale for the tensor, as NVFP4 has, which brings the
# blocks' scales into E4M3's range; and with it the choice between two scales for each block ([four
# over six](../reference/scale-rules.md)).
#
# To train with blocks of another size or scale, give the name to a rule: [rules of
# `quantize_`](../reference/rules.md).

# %% [markdown]
# # Golden vectors for RTL
#
# A circuit for a number format is tested with inputs, right results and flags, as bits.
# `torch-dtypes vectors` writes them; this tutorial checks a multiplier against them, written with
# integers as a circuit would be, and dumps a network's layers.
#
#     python docs/tutorials/golden_vectors.py [--small]

# %%
import sys
import tempfile
from pathlib import Path

import torch

import torch_dtypes
from torch_dtypes.workbench.vectors.files import write
from torch_dtypes.workbench.vectors.making import Job

SMALL = "--small" in sys.argv
folder = Path(tempfile.mkdtemp())

# %% [markdown]
# ## A file of vectors
#
# On the command line:
#
#     torch-dtypes vectors q43 --op mul --all --out mul.hex
#
# and the same from Python. The file says what it is; each line has the operands' codes, the
# result's, and the flags.

# %%
job = Job("q43", "mul", count=2000 if SMALL else None)  # None: all 65,536 pairs
path = write(job, folder / "mul.hex", "hex")
lines = path.read_text().splitlines()
print(*lines[:10], sep="\n")
vectors = [[int(word, 16) for word in line.split()] for line in lines if not line.startswith("#")]

# %% [markdown]
# ## A multiplier
#
# q43 is an IEEE-style float of 4 exponent bits and 3 fraction bits. With integers alone: unpack,
# multiply the significands, shift so that four bits and a guard are left, round to nearest even by
# guard and sticky bits, pack. Subnormal numbers are the case that is forgotten first.


# %%
def multiply(a, b, *, subnormals=True):
    sign, a, b = (a ^ b) & 0x80, a & 0x7F, b & 0x7F
    if max(a, b) >= 0x78:  # infinity is 0x78, NaN lies above
        undefined = max(a, b) > 0x78 or min(a, b) == 0
        return 0x7C if undefined else sign | 0x78
    unpacked = []
    for code in (a, b):
        field, fraction = code >> 3, code & 7
        unpacked.append((fraction | 8, field) if field else (fraction if subnormals else 0, 1))
    (m, e), (n, f) = unpacked  # m * 2^(e - 10) and n * 2^(f - 10)
    product = m * n
    if product == 0:
        return sign
    # With it four bits are left; below the smallest normal number fewer.
    field = max(product.bit_length() - 4 + e + f - 10, 1)
    shift = field + 10 - e - f
    kept, cut, half = product >> shift, product & ((1 << shift) - 1), 1 << shift >> 1
    if shift and (cut > half or (cut == half and kept & 1)):
        kept += 1
    code = ((field - 1) << 3) + kept  # a carry goes on into the exponent by itself
    return sign | min(code, 0x78)  # beyond the largest number: infinity


# %% [markdown]
# Every vector must match. A multiplier without subnormal numbers is caught: by 4,800 of all 65,536
# vectors.


# %%
def wrong(circuit):
    return [(a, b, code, flags) for a, b, code, flags in vectors if circuit(a, b) != code]


def without_subnormals(a, b):
    return multiply(a, b, subnormals=False)


print(
    f"\n{len(vectors)} vectors, {len(wrong(multiply))} wrong; without subnormal numbers "
    f"{len(wrong(without_subnormals))} wrong"
)
for a, b, code, flags in wrong(without_subnormals)[:3]:
    print(
        f"{a:02x} * {b:02x}: expected {code:02x} (flags {flags:02x}), but got "
        f"{without_subnormals(a, b):02x}"
    )
assert not wrong(multiply)

# %% [markdown]
# Where is it wrong? A point for each pair of operands whose product it gets wrong: products of two
# small numbers.

# %%
import matplotlib.pyplot as plt  # noqa: E402

figure, axes = plt.subplots(figsize=(5, 5), layout="constrained")
caught = wrong(without_subnormals)
axes.plot([a for a, *_ in caught], [b for _, b, *_ in caught], ",")
axes.set(
    xlim=(0, 255), ylim=(0, 255), xlabel="code of the first operand", ylabel="code of the second"
)
figure.savefig("golden_vectors.png")

# %% [markdown]
# ## In a Verilog test bench
#
# `--as readmemh` writes a vector as one word, which `$readmemh` reads; a comment in the file names
# the bits.
#
# ```verilog
# reg [31:0] vectors [0:65535];            // a[31:24] b[23:16] result[15:8] flags[4:0]
# initial begin
#   $readmemh("mul.mem", vectors);
#   for (i = 0; i < 65536; i = i + 1) begin
#     {a, b} = vectors[i][31:16]; #1;
#     if (result !== vectors[i][15:8] || flags !== vectors[i][4:0])
#       $display("%h * %h: %h", a, b, result);
#   end
# end
# ```

# %%
write(Job("q43", "mul", count=3), folder / "mul.mem", "readmemh")
print((folder / "mul.mem").read_text())

# %% [markdown]
# ## A network's layers
#
# An accelerator has to reproduce a layer. `dump_vectors` runs a model once and writes each
# layer's inputs, parameters and outputs as codes, here of a network in q43 whose dot products a
# quire adds up: the result of each is the correctly rounded one.

# %%
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2)).to(
    torch.q43
)
with torch_dtypes.accumulate("exact"):
    manifest = torch_dtypes.dump_vectors(model, torch.rand(1, 4).to(torch.q43), folder / "network")
for layer in manifest["layers"]:
    print(layer["name"], layer["type"], *(f"{t['role']}{t['shape']}" for t in layer["tensors"]))
print((folder / "network" / "002_2.output0.hex").read_text())

# %% [markdown]
# Operations, flags and file layouts: [golden vectors](../how-to/golden-vectors.md).

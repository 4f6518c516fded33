# %% [markdown]
# # Linear systems: a factorisation in a small format, refined to float32's accuracy
#
# Factorise in a format that is cheap, then refine the solution with residuals of more digits: the
# oldest use of mixed precision, and what GMRES-IR and HPL-MxP are built on. The factors need not be
# good; whether they are good enough depends on the matrix' condition and on the format's unit
# roundoff u. Carson and Higham (*Accelerating the solution of linear systems by iterative
# refinement in three precisions*, SIAM J. Sci. Comput. 40(2), 2018) prove that refinement converges
# while cond(A) u is sufficiently below 1, and that its result has then the working precision's
# accuracy, whatever the factors'. Here that is put to formats that no processor has.
#
#     python docs/tutorials/linear_systems.py            # a minute
#     python docs/tutorials/linear_systems.py --small    # seconds: what the tests run

# %%
import sys

import torch

import torch_dtypes
from torch_dtypes import linalg

SMALL = "--small" in sys.argv
N = 20 if SMALL else 100
torch.manual_seed(0)

# %% [markdown]
# ## LU in a format
#
# `torch.linalg.lu_factor` of a format matrix computes on exact values in float32 and rounds what
# comes out, once. `torch_dtypes.linalg.lu` factorises *in* a format: each product, difference and
# quotient rounds, in the format's mode.


# %% [markdown]
# ## Refinement in three precisions
#
# The factors are of the format, the working precision is float32, residuals are float64. `steps` is
# how many corrections it took to float32's accuracy.


# %%
def refine(a, b, dtype, limit=30):
    """Corrections until the backward error is float32's; None where it did not get there."""
    factors = linalg.lu(a.to(dtype))
    p, lower, upper = (t.float() for t in factors[:3])  # exact for these formats

    def solve(r):
        y = torch.linalg.solve_triangular(lower, p.T @ r[:, None], upper=False, unitriangular=True)
        return torch.linalg.solve_triangular(upper, y, upper=True)[:, 0]

    x = solve(b.float())
    for steps in range(limit):
        if linalg.backward_error(a, x, b) < torch.finfo(torch.float32).eps:
            return steps
        x = x + solve((b.double() - a.double() @ x.double()).float())
    return None


CONDITIONS = (10.0, 1e3) if SMALL else (10.0, 100.0, 1e3, 1e4, 1e5)
FORMATS = (
    ("bf16", "fp16")
    if SMALL
    else (
        "q43",
        "posit8es1",
        "bf16",
        "e6m9",
        "fp16",
        "posit16es2",
        "posit16es1",
        "tf32",
        "fp16_stochastic",
    )
)

systems = [(a := linalg.randsvd(N, c), a @ torch.ones(N, dtype=torch.float64)) for c in CONDITIONS]
print(f"{'':16} {'1 / u':>6}  " + "".join(f"cond {c:<8.0e}" for c in CONDITIONS))
table = []
for name in FORMATS:
    dtype = torch_dtypes.dtype(name)
    table.append([refine(a, b, dtype) for a, b in systems])
    print(
        f"{name:16} {2 / torch_dtypes.card(dtype).epsilon:6.0f}  "
        + "".join(f"{'-' if steps is None else f'{steps} steps':13}" for steps in table[-1])
    )

# %% [markdown]
# Which systems does a format solve? White cells are not solved; dark ones take many corrections.

# %%
import matplotlib.pyplot as plt  # noqa: E402

figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
steps = torch.tensor([[torch.nan if n is None else n for n in row] for row in table])
image = axes.imshow(steps.numpy(), cmap="Blues", vmin=0, aspect="auto")
axes.set_xticks(range(len(CONDITIONS)), [f"{c:.0e}" for c in CONDITIONS])
axes.set_yticks(range(len(FORMATS)), FORMATS)
axes.set_xlabel("condition number")
figure.colorbar(image, label="corrections to float32's accuracy")
figure.savefig("linear_systems.png")

# %% [markdown]
# The table is the theorem: a system is solved where its condition number is below 1 / u or not far
# above, and what is solved takes few corrections. A posit's u in the first column is that of
# numbers near 1; smaller and larger ones have a larger u.
#
# ## The same systems, in other units
#
# LU does not care for a matrix' scale; formats do. The same system times a power of two: float16
# overflows where bfloat16 does not notice, and posits lose a digit for every few powers of two.
# Higham, Pranesh and Zounon (*Squeezing a matrix into half precision, with an application to
# solving linear systems*, SIAM J. Sci. Comput. 41(4), 2019) scale the matrix before they round it;
# here by one power of two, which brings its largest element to a tenth of the format's largest
# number, or to 1 for a posit.

# %%
a, b = systems[0 if SMALL else 1]
SCALES = (0, 18) if SMALL else (-20, -12, 0, 8, 12, 18, 30)
print(f"{'':16} " + "".join(f"x 2^{s:<9}" for s in SCALES))
for name in ("bf16", "fp16", "posit16es2"):
    dtype = torch_dtypes.dtype(name)
    found = [refine(a * 2.0**s, b * 2.0**s, dtype) for s in SCALES]
    print(
        f"{name:16} "
        + "".join(f"{'-' if steps is None else f'{steps} steps':13}" for steps in found)
    )


def squeeze(a, name):
    """a times the power of two that brings its largest element where the format has the most room,
    and that power."""
    target = 1.0 if name.startswith("posit") else torch_dtypes.card(name).largest / 10
    scale = torch.exp2(torch.floor(torch.log2(target / a.abs().max())))
    return a * scale, scale


found = {}
for name in ("fp16", "posit16es2"):
    squeezed, scale = squeeze(a * 2.0**18, name)
    found[name] = refine(squeezed, b * 2.0**18 * scale, torch_dtypes.dtype(name))
print("squeezed:", ", ".join(f"{name} {steps} steps" for name, steps in found.items()))

# %% [markdown]
# ## Errors and bounds
#
# Theory bounds the factors' error, element by element, by `gamma_n` times `|L| |U|`. The worst case
# assumes that all n roundings go one way; errors that are independent grow as the root of n (Higham
# and Mary, *A new approach to probabilistic rounding error analysis*, SIAM J. Sci. Comput. 41(5),
# 2019). A quire (`accumulate="exact"`) rounds each sum once.

# %%
a, b = systems[1]
names = ("bf16", "fp16") if SMALL else ("bf16", "fp16", "tf32", "posit16es2")
errors = {}
print(f"{'':12} {'LU':>9} {'LU, exact':>9} {'worst':>9} {'likely':>9} {'x':>9} {'x - exact':>9}")
for name in names:
    dtype, unit = torch_dtypes.dtype(name), torch_dtypes.card(name).epsilon / 2
    rounded, right = a.to(dtype), b.to(dtype)
    errors[name] = []
    for policy in ("format", "exact"):
        p, lower, upper = (t.double() for t in linalg.lu(rounded, accumulate=policy)[:3])
        rows = p.T @ rounded.double()
        errors[name].append(linalg.backward_error(lower, upper, rows, kind="componentwise").item())
    errors[name] += [
        linalg.rounding_bound(N, unit),
        linalg.rounding_bound(N, unit, certainty=0.99),
    ]
    x = linalg.solve(rounded, right)
    solution = linalg.backward_error(rounded, x, right), linalg.forward_error(rounded, x, right)
    print(f"{name:12} " + " ".join(f"{error:9.1e}" for error in (*errors[name], *solution)))

# %%
figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
for i, label in enumerate(("LU", "LU, inner products exact", "worst case", "likely")):
    axes.plot(names, [errors[name][i] for name in names], "o_"[i > 1], label=label, markersize=12)
axes.set_yscale("log")
axes.set_ylabel("error of L U, by element")
axes.legend()
figure.savefig("linear_systems_bounds.png")

# %% [markdown]
# # Linear systems: from a format to the systems that it solves
#
# Factorise in a format that is cheap, then refine the solution with residuals of more digits: the
# oldest use of mixed precision, and what GMRES-IR and HPL-MxP are built on. The factors need not be
# good. Whether they are good enough depends on the matrix' condition and on the format's unit
# roundoff u. Carson and Higham (*Accelerating the solution of linear systems by iterative
# refinement in three precisions*, SIAM J. Sci. Comput. 40(2), 2018) prove it for factors in half,
# solutions in single and residuals in double precision: corrections by substitution converge up to
# a condition number of 1e4, corrections by GMRES up to 1e8. Here that is put to formats that no
# processor has.
#
#     python docs/tutorials/linear_systems.py            # a minute
#     python docs/tutorials/linear_systems.py --small    # seconds: what the tests run

# %%
import sys

import torch

import torch_dtypes
from torch_dtypes import linalg
from torch_dtypes.workbench import solve

SMALL = "--small" in sys.argv
N = 20 if SMALL else 50
torch.manual_seed(0)

# %% [markdown]
# ## My format
#
# Take a format of your own by its name: 4 exponent bits and 11 fraction bits.
# `torch_dtypes.linalg.lu` factorises *in* the format: each product, difference and quotient rounds,
# in the format's mode. (`torch.linalg.lu_factor` of a format matrix computes on exact values in
# float32 and rounds its result once.)

# %%
MINE = "e4m11"
a = linalg.randsvd(N, 1e3)
b = a.sum(1)
factors = linalg.lu(a, format=MINE)
lost = linalg.backward_error(factors.L, factors.U, factors.P.T @ a)
print(f"{MINE}: 1 / u = {2 / torch_dtypes.card(MINE).epsilon:.0f}, error of L U {lost:.1e}")

# %% [markdown]
# ## One system
#
# `linalg.refine` factorises in `factor`, holds the solution in `working` (by default the matrix'
# dtype, float64 here), and computes residuals in `residual` (by default with twice its digits). It
# says how it ended, with the errors of each step.

# %%
found = linalg.refine(a, b, factor=MINE, x_true=torch.ones(N, dtype=torch.float64))
print(f"{found.steps} steps: {found.reason}")
print("forward errors:", ", ".join(f"{float(error):.0e}" for error in found.forward_errors))
found.save("linear_systems_steps.png")

# %% [markdown]
# ## Which systems?
#
# The command `torch-dtypes solve` asks it of matrices by formats and methods, and draws a heat map:
#
#     torch-dtypes solve --format e4m11 --format fp16 --format posit16es2 --out systems
#
# The same from Python. Matrices may be your own, in a dictionary; a Matrix Market file is named by
# its path. `lu` solves for each correction by substitution, `gmres` by GMRES with the factors as
# its preconditioner.

# %%
CONDITIONS = ("1e1", "1e3") if SMALL else ("1e1", "1e2", "1e3", "1e4", "1e6", "1e8")
FORMATS = ("fp16", MINE) if SMALL else ("bf16", "fp16", MINE, "posit16es2")
systems = [f"randsvd(n={N}, cond={c})" for c in CONDITIONS]
solutions = solve(systems, FORMATS, ["lu", "gmres"])
for name in FORMATS:
    for method in ("lu", "gmres"):
        row = [r.outcome for r in solutions.rows if (r.format, r.method) == (name, method)]
        print(f"{name:11} {method:6}", *(f"{o.steps if o.converged else '-':>4}" for o in row))
solutions.figures()["heatmap"].savefig("linear_systems.png")

# %% [markdown]
# A row of the table is the theorem: substitution solves a system where its condition number is
# below 1 / u or not far above, and takes few corrections. GMRES gets further, since it needs
# factors that are good enough to precondition. A posit's u is that of numbers near 1; smaller and
# larger ones have a larger u.
#
# ## The same systems, in other units
#
# LU does not care for a matrix' scale; formats do. The same system times a power of two: float16
# overflows where bfloat16 does not notice, and posits lose a digit for every few powers of two.
# Higham, Pranesh and Zounon (*Squeezing a matrix into half precision, with an application to
# solving linear systems*, SIAM J. Sci. Comput. 41(4), 2019) scale rows and columns before they
# round the matrix: `scale="squeeze"`.

# %%
a = linalg.randsvd(N, 100.0)
SCALES = (0, 18) if SMALL else (-20, -12, 0, 8, 12, 18, 30)
print(f"{'':11} {'':8}" + "".join(f"x 2^{s:<6}" for s in SCALES))
for name in ("bf16", "fp16", "posit16es2"):
    for scale in (None, "squeeze"):
        units = {f"x 2^{s}": a * 2.0**s for s in SCALES}
        row = [r.outcome for r in solve(units, [name], ["lu"], scale=scale).rows]
        steps = "".join(f"{o.steps if o.converged else '-':<10}" for o in row)
        print(f"{name:11} {scale or 'as it is':8} {steps}")

# %% [markdown]
# ## Errors and bounds
#
# Theory bounds the factors' error, element by element, by `gamma_n` times `|L| |U|`. The worst case
# assumes that all n roundings go one way; errors that are independent grow as the root of n (Higham
# and Mary, *A new approach to probabilistic rounding error analysis*, SIAM J. Sci. Comput. 41(5),
# 2019). A quire (`accumulate="exact"`) rounds each sum once.

# %%
a = linalg.randsvd(N, 100.0 if not SMALL else 10.0)
b = a.sum(1)
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
import matplotlib.pyplot as plt  # noqa: E402

figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
for i, label in enumerate(("LU", "LU, inner products exact", "worst case", "likely")):
    axes.plot(names, [errors[name][i] for name in names], "o_"[i > 1], label=label, markersize=12)
axes.set_yscale("log")
axes.set_ylabel("error of L U, by element")
axes.legend()
figure.savefig("linear_systems_bounds.png")

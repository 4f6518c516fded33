# %% [markdown]
# # Coming from QPyTorch, Pychop, torchao or microxcaling
#
# A script for QPyTorch, Pychop or microxcaling runs here as it stands, on this package's kernels:
#
#     python -m torch_dtypes.compat qtorch script.py ARGS
#
# In a script or notebook, one line more or one line changed does the same:
#
#     from torch_dtypes.compat import install; install("qtorch")   # import qtorch as before
#     from torch_dtypes.compat import qtorch                       # or this in its place
#
# | door | of | has |
# |---|---|---|
# | `qtorch` | QPyTorch 0.3.0 | the numbers, `qtorch.quant`, `qtorch.optim`, `qtorch.auto_low` |
# | `qtorch_plus` | its fork 0.2.0 | the same, with `Posit` and `posit_quantize` |
# | `pychop` | Pychop 0.6.2 | `Chop`, `Chopf`, `Chopi`, `FaultChop`, `Bitchop`, `Simulate`, their functions, block formats, P3109, `pychop.builtin`; of layers and optimizers an error alone |
# | `mx` | microxcaling (7bc4195) | all names of `mx`; `mx.specs`, `mx.formats`, `mx.mx_ops`, `mx.elemwise_ops`, `mx.simd_ops`, `mx.activations`, `mx.mx_mapping` |
#
# A door has the original's names, defaults and types of errors, and its results. Where these are
# wrong, the door is right: a table of each section has the cases. A test compares a door with
# recorded results, and with the original where that is installed.
#
# Below are their calls and this package's, side by side, for scripts that go further. The cells
# run this side.
#
#     python docs/tutorials/coming_from.py

# %%
import sys

import torch

import torch_dtypes
from torch_dtypes.compat import mx, pychop, qtorch

SMALL = "--small" in sys.argv  # nothing here takes long
torch.manual_seed(0)
x = torch.randn(4, 64)

# %% [markdown]
# ## QPyTorch
#
# | `qtorch` 0.3 | here |
# |---|---|
# | `float_quantize(x, exp=5, man=2, rounding="nearest")` | `chop(x, "e5m2finite", rounding="nearest_away")` |
# | `float_quantize(x, exp=5, man=2)` | `chop(x, "e5m2finite", rounding="stochastic")` |
# | `float_quantize(x, exp=8, man=7, rounding="nearest")` | `chop(x, "e8m7", rounding="nearest_away")` |
# | `fixed_point_quantize(x, wl=8, fl=4, rounding="nearest")` | `chop(x, "fixed3_4")` |
# | `fixed_point_quantize(x, wl=8, fl=4, symmetric=True, rounding="nearest")` | `chop(x, "fixed3_4_symmetric")` |
# | `fixed_point_quantize(x, wl=8, fl=4, clamp=False, rounding="nearest")` | `chop(x, "fixed27_4")`, for x below 2^27 |
# | `fixed_point_quantize(x, wl=8, fl=4)` | `chop(x, "fixed3_4", rounding="stochastic")` |
# | `block_quantize(x, wl=8, rounding="nearest")` | `chop(x, "bfp8", rounding="nearest_up")` |
# | `block_quantize(x, wl=8, dim=0, rounding="nearest")` | `chop(x, "bfp8_dim0", rounding="nearest_up")` |
# | `block_quantize(x, wl=8, dim=1, rounding="nearest")` | `chop(x, "bfp8_dim1", rounding="nearest_up")` |
# | `block_quantize(x, wl=8)` | `chop(x, "bfp8", rounding="stochastic")` |
# | `quantizer(FloatingPoint(4, 3), FloatingPoint(5, 2), "nearest", "stochastic")`, `Quantizer(...)` | `Cast(forward=dict(format="e4m3finite", rounding="nearest_away"), backward=dict(format="e5m2finite", rounding="stochastic"))` |
# | `quantizer(..., clamping_grad_zero=True)` | `Cast(forward=dict(format="fixed3_4", clamped="zero"))` |
# | `auto_low.sequential_lower(model, layer_types=[...], ...)` | `quantize_(model, {nn.Linear: dict(output="e4m3finite", error="e5m2finite")})`; weights too: `weight="e4m3finite"` |
# | `OptimLP(optimizer, weight_quant=, grad_quant=, momentum_quant=, acc_quant=, grad_scaling=)` | `optim.LowPrecision(optimizer, weight=, grad=, state=, master=, grad_scale=)` |
#
# Other sizes change the name alone. `float_quantize` with 2 to 7 exponent bits is
# `e{exp}m{man}finite`; with 8 it is `e8m{man}`. Both hold up to `man=22`. `fixed_point_quantize` is
# `fixed{wl - 1 - fl}_{fl}`, up to `wl=24`. `block_quantize` is `bfp{wl}`, up to `wl=22`.
#
# The rows of the three functions, and the door, were compared with results of qtorch 0.3.0 on
# PyTorch 2.13.0 (2026-11-28, `tools/record_qtorch.py`), and a test compares them again. Stochastic
# calls have the same two results with the same probabilities. Here they differ:
#
# | call | qtorch 0.3 | the door |
# |---|---|---|
# | `float_quantize(x, 8, 23)`, x = 3 | -3 | 3 |
# | `float_quantize(x, 5, 2)`, x = -0.0 | 0.0 | -0.0 |
# | `float_quantize(x, 5, 10)`, x = 2^-25 - 2^-49 | 2^-24: it rounds a sum, which is a tie | 0 |
# | `fixed_point_quantize(x, 8, 4)`, x = 2^-5 + 2^-28 | 0, likewise | 2^-4 |
# | `block_quantize(x, 8)`, x = 2^-7 - 2^-30 beside 1.75 | 2^-6, likewise | 0 |
# | `fixed_point_quantize(x, 8, 4, clamp=False)`, x = 3.4e38 | infinity | 3.4e38 |
# | `fixed_point_quantize(x, 8, 4)`, x is NaN | NaN | 0: fixed point has no NaN |
# | tensors of float64, float16, bfloat16 | RuntimeError | rounded, once |
# | `FixedPoint(wl=8, fl=0)` | AssertionError | integers |
# | `float_quantize`, `block_quantize`, stochastic | other results for each run | follow `torch.manual_seed` |
# | `quantizer(..., backward_hooks=[f])` | runs f under `clamping_grad_zero` only | runs f |
# | `pickle.dumps(Quantizer(...))` | an error | works |
# | `copy.deepcopy` of a model after `lower` | computes with the old model's weights | with its own |
# | `OptimLP.state_dict()` | has no states | has states and accumulators |
# | `OptimLP.step(closure)` | never calls it | calls it once, first |
# | `OptimLP(RMSprop(...))` | AssertionError | takes every optimizer |
# | `posit_quantize(x, 8, 1)` (`qtorch_plus`), x infinite or NaN | -infinity | NaN (NaR) |
# | `posit_quantize(..., rounding="stochastic")` | rounds to nearest | stochastically |
# | `posit_quantize(x, 32, 2)` | ends the process | rounds |
#
# In the rows above, `clamped="zero"` also drops the gradient of a number that rounds to the last
# one, and of the lowest one; `quantizer(..., clamping_grad_zero=True)` of the door keeps these. The
# door's functions have no gradient, as the original's; `chop` passes it straight through.
#
# One million float32 numbers, one thread of an AMD EPYC (2026-11-29, `torch-dtypes bench --suite
# peers --threads 1`): the door is 30 and 38 times as fast as qtorch in `float_quantize` (to
# nearest, stochastically), 45 and 17 times in `fixed_point_quantize`, 6 and 13 times in
# `block_quantize`. It takes 0.9 to 1.0 times `chop`'s time.
#
# `e5m2finite` rounds to nearest even unless a mode is given, and `q52` is IEEE 754's format: its
# last exponent holds infinity and NaN. `grad_scaling` multiplies gradients before they are rounded;
# `grad_scale` scales the loss (`optimizer.scale(loss).backward()`) and divides after rounding. A
# layer may also run in the dtype itself: `model.to(torch.q52)`.

# %%
some = torch.tensor([1.1, 1.125, 1e6])
print(torch_dtypes.chop(some, "e5m2finite", rounding="nearest_away"))
print(qtorch.float_quantize(some, exp=5, man=2, rounding="nearest"))  # the door: the same
print(
    torch_dtypes.chop(
        torch.tensor([1.75, 0.5 + 2**-7, -0.5 - 2**-7]), "bfp8", rounding="nearest_up"
    )
)
layer = torch.nn.Sequential(
    torch.nn.Linear(64, 8),
    torch_dtypes.Cast(forward="e4m3finite", backward="e5m2finite_stochastic"),
)
optimizer = torch_dtypes.optim.LowPrecision(
    torch.optim.SGD(layer.parameters(), 0.1, momentum=0.9),
    weight="q52",
    grad="q52",
    state="e6m9",
    master="e6m9",
    grad_scale=1024,
)
optimizer.scale(layer(x).square().mean()).backward()
optimizer.step()
print(layer[0].weight[0, :4])
assert torch.equal(layer[0].weight, torch_dtypes.chop(layer[0].weight, "q52"))

# %% [markdown]
# ## Pychop
#
# | `pychop` 0.6 | here |
# |---|---|
# | `Chop(exp_bits=5, sig_bits=10, rmode=1)(X)` | `chop(X, "e5m10")`; torch, NumPy and JAX arrays |
# | `FaultChop("q43")(X)`, `"h"`, `"b"`, `"s"`, `"d"` | `chop(X, "q43")`, and the same letters |
# | `rmode=1` to `9` | `rounding=` a name, or the same number: 1 `nearest_even`, 2 `up`, 3 `down`, 4 `toward_zero`, 5 `stochastic`, 6 `stochastic_equal`, 7 `nearest_zero`, 8 `nearest_away`, 9 `to_odd` |
# | `subnormal=False` | `chop(X, "e5m10_flush")` |
# | `FaultChop(..., flip=True, p=0.5)` | `chop(X, "q43", flip_prob=0.5)` |
# | `Chopf(ibits=4, fbits=4)(X)` | `chop(X, "fixed3_4")`, if its sign is to be one of eight bits |
# | `Chopi(bits=8, symmetric=False)`: `quantize`, `dequantize` | `target("int8_affine")` with a `calibration`; in a model `quantize_(model, {nn.Linear: dict(weight="int8")})` |
# | `mx_quantize(X, "mxfp8_e4m3")` | `chop(X, "mxfp8_e4m3")`, along rows |
# | `bfp_quantize(X, "bfp8")` | `chop(X, block_format("fixed0_7", "e8m0", 32, scale_rule="rceil"))`, along rows |
# | `P3109(P3109Format(8, 4))(X)` | `chop(X, "binary8p4se")` |
# | `CPFloat(1.2, chop)` (a number that stays chopped) | `torch.tensor(1.2, dtype=torch.e5m5)` |
# | `QuantizedLinear(256, 10, chop=ChopSTE(...))` | `nn.Linear` as it is, and `quantize_(model, {nn.Linear: dict(weight="e5m10", activation="e5m10")})` |
# | `pychop.backend("torch")` | nothing: the array says what it is |
# | `random_state=` | `generator=torch.Generator().manual_seed(...)`, or torch's own |
#
# The door has Pychop's choppers, its 65 functions (as methods and in `pychop.math_func`), block
# formats, P3109 and `pychop.builtin`. Its quantised layers, optimizers and conversions of models
# raise an error that names `quantize_`, since the originals train tensors without gradients. It has
# no TensorFlow.
#
# Where Pychop is right, the door has its bits. Here they differ (`c` is `Chop(5, 10)`; a test
# evaluates each row, the third column where Pychop is installed):
#
# | call | x | `pychop` 0.6.2 | the door |
# |---|---|---|---|
# | `c(x)` | `[65520.0, 70000.0]` | `[65536.0, 0.0]` | `[inf, inf]` |
# | `Chop(5, 10, rmode=4)(x)` | `[70000.0, 200000.0]` | `[0.0, inf]` | `[65504.0, 65504.0]` |
# | `Chop(5, 10, rmode=4)(x)` | `np.nextafter(np.float32([4096]), 0)` | `[4092.0]` | `[4094.0]` |
# | `Chop(5, 2, rmode=7)(x)` | `[1.125, -1.125]` | `[1.0, -1.25]` | `[1.0, -1.0]` |
# | `Chop(5, 2, rmode=8)(x)` | `[1.125, -1.125]` | `[1.25, -1.0]` | `[1.25, -1.25]` |
# | `Chop(5, 2, rmode=9)(x)` | `[1.0, -1.5]` | `[1.25, -1.75]` | `[1.0, -1.5]` |
# | `Chop(3, 4, rmode=2)(x)` | `[1e-9, 1e-17]` | `[0.015625, 0.0]` | `[0.015625, 0.015625]` |
# | `Chop(5, 10, subnormal=False)(x)` | `[4e-5]` | `[0.0]` | `[2**-14]` |
# | `c(x)` | `[-0.0]` | `[0.0]` | `[-0.0]` |
# | `FaultChop("q43")(x)` | `[0.00098]` | `[0.0]` | `[2**-9]` |
# | `FaultChop("q43", subnormal=False)(x)` | `[0.0077]` | `[2**-6]` | `[0.0]` |
# | `FaultChop(customs=Customs(exp_bits=5, sig_bits=10))(x)` | `[1e6]` | `[999936.0]` | `[inf]` |
# | `FaultChop("h", rmode=10)(x)` | `[1.0]` | `NotImplementedError` | `[1.0]` |
# | `FaultChop("h")(x)` | `1.0` | `IndexError` | `1.0` |
# | `FaultChop("h")(x)` | `torch.tensor(1.0)` | `[1.0]` | `1.0` |
# | `Chopf(4, 4)(x)` | `[-inf, nan]` | `[-7.9375, nan]` | `[-8.0, 0.0]` |
# | `Chopi(8).quantize(x)` | `[0.0, 1.0]` | `[0, 127]` | `[-128, 127]` |
# | `Chopi(8, symmetric=True).quantize(x)` | `[0.0, 0.5, 1.0]` | `[0, 127, 127]` | `[0, 64, 127]` |
# | `bfp_quantize(x, (8, 2))` | `[nan, 1.0]` | `[nan, 1.0]` | `[nan, nan]` |
# | `mx_quantize(x, (2, 1), 2)` | `[inf, 1.0]` | `[inf, 0.0]` | `[nan, nan]` |
# | `mx_quantize(x, "mxfp4_e2m1", 2)` | `torch.tensor([1.0, 1.0, 100.0, 0.0])` | `[0.0, 0.0, 96.0, 0.0]` | `[1.0, 1.0, 96.0, 0.0]` |
# | `mx_quantize(x, (4, 3), scale_exp_bits=10)` | `[2.0**-99, 2.0**-101]` | `[2.0**-99, 2.0**-101]` | `ValueError` |
# | `float_params("mxint8")["xmin"]` | | `2.0**-134` | `2.0**-133` |
# | `Bitchop(5, 4)(x)` | `[1.1]` | `ValueError` | `[1.125]` |
# | `Bitchop(5, 4, 1)(x)` | `[1.99]` | `[3.0]` | `[2.0]` |
# | `Bitchop(5, 4, 1).u` | | `8.0` | `2.0**-5` |
# | `Simulate(2, 3, 4, rmode=4).rounding(x)` | `[1.1]` | `[1.25]` | `[1.0]` |
# | `Simulate(2, 3, 4, sign=True).rounding(x)` | `[-20.0, 14.5, 1.375]` | `[inf, inf, 1.25]` | `[-inf, 14.0, 1.5]` |
# | `P3109(P3109Format(8, 4), "to_odd")(x)` | `[300.0]` | `[inf]` | `[224.0]` |
# | `P3109(P3109Format(8, 4, False), "toward_zero")(x)` | `[-1.0]` | `[0.0]` | `[nan]` |
# | `P3109(P3109Format(8, 4, False), saturate="propagate")(x)` | `[-inf]` | `[0.0]` | `[nan]` |
# | `P3109Format(24, 14).max_code` | | `2**23 - 2` | `ValueError` |
# | `c.degrees(x)` | `torch.tensor([1.0])` | `[1.0]` | `[57.28125]` |
# | `c.radians(x)` | `torch.tensor([90.0])` | `[90.0]` | `[1.5703125]` |
# | `c.mod(x, 0 * x + 3)` | `torch.tensor([-1.0])` | `[-1.0]` | `[2.0]` |
# | `c.angle(x)` | `torch.tensor([-1.0])` | `[-1.5703125]` | `[3.140625]` |
# | `c.cbrt(x)` | `torch.tensor([-8.0])` | `[nan]` | `[-2.0]` |
# | `c.modf(x)[0]` | `torch.tensor([1.5])` | `AttributeError` | `[0.5]` |
# | `c.gamma(x)` | `torch.tensor([5.0])` | `AttributeError` | `[24.0]` |
# | `c.erf(x)` | `[1.0]` | `AttributeError` | `[0.8427734375]` |
# | `c.bitwise_and(x, x)` | `[5.0]` | `TypeError` | `[5.0]` |
# | `power(x, x, c)` | `torch.tensor([3.0])` | `AttributeError` | `[27.0]` |
# | `cumsum(x, c)` | `torch.tensor([[1.0, 2.0]])` | `TypeError` | `[1.0, 3.0]` |
# | `arccosh(x, c)` | `[0.5]` | `[nan]` | `ValueError` |
# | `log1p(x, c)` | `[-2.0]` | `[nan]` | `ValueError` |
# | `CPArray(x, c) > 1` | `[0.5, 2.0]` | `TypeError` | `[False, True]` |
# | `np.add(CPArray(x, c), 1, out=CPArray(x, c))` | `[0.5]` | `RecursionError` | `[1.5]` |
# | `backend("tensorflow")` | | `None` | `ValueError` |
#
# | otherwise | `pychop` 0.6.2 | the door |
# |---|---|---|
# | gradients | of `Chop`: 0 or an error; `CPTensor` has none | straight through, everywhere |
# | `FaultChop` in mode 5 or 6 | seeds NumPy's or torch's generator, for each call where the backend is `"auto"` | draws on from its own generator |
# | `Chopf` in mode 5 or 6 | draws from NumPy's or torch's generator; mode 6 moves representable numbers | torch's; they stay |
# | `flip=True, p=0.1` | flips a bit of every element of arrays, and of half of a tensor's | of every tenth |
# | `randfunc` | called once for normal and once for subnormal numbers | called once, for all elements |
# | `Chopf` of an array, then of a tensor | an error, or results of the first kind | each has its own kind |
# | `Chopi.dequantize` | float64 from a float64 scale, which lacks a zero of its own in torch | float32; 0 is always one of the numbers |
# | `a += 0.1`, `a[0] = 0.1`, `out=a` of a `CPArray` or a `CPTensor` | an error, or not rounded | rounded |
# | a view of a `CPTensor`, as `a[0]` | a copy | a view |
# | `chunk_size`, `device` | chunks of Dask; a device | change nothing |
# | `pychop.builtin.CPJaxArray`, `.linalg`, `pychop.blas` | are there | ImportError; `np.linalg` of a `CPArray` rounds |
#
# One million float32 numbers, one thread of an AMD EPYC beside other work (2026-11-29, `torch-dtypes
# bench --suite peers --threads 1`): the door's `Chop` is 54 to 129 times as fast as Pychop's (18 to
# 31 in modes 5 and 6), `FaultChop` 91 to 214 times (25 to 40), `Chopf` 3 to 7 times, block formats
# more than 500 times; the median is 74. It takes 0.8 to 1.2 times `chop`'s time.
#
# Overflow is IEEE 754's in every mode (the largest number toward zero, infinity to nearest), and
# stochastic results are the same for a seed on any number of threads.

# %%
X = torch.tensor([240.0, 247.0, 248.0, 1000.0, -1000.0])
for mode in (1, 2, 3, 4, 7, 8, 9):
    rounded = torch_dtypes.chop(X, "q43", rounding=mode)
    assert torch.equal(rounded, pychop.Chop(4, 3, rmode=mode)(X))  # the door: the same
    print(mode, rounded.tolist())
half = pychop.Chop(exp_bits=5, sig_bits=10)
print(pychop.CPFloat(1.234567, half) * 2 - 0.1, half.sin(X[:2]))

# %% [markdown]
# ## torchao
#
# | `torchao` | here |
# |---|---|
# | `quantize_(model, Int8WeightOnlyConfig())` | `quantize_(model, {nn.Linear: dict(weight=dict(format="int8", per="channel"))})` |
# | `quantize_(model, Int8DynamicActivationInt8WeightConfig())` | the same with `activation=dict(format="int8", when="call")` |
# | `quantize_(model, Float8DynamicActivationFloat8WeightConfig())` | `dict(weight=dict(format="e4m3fn_saturate", scale="free"), activation=dict(format="e4m3fn_saturate", scale="free", when="call"))` |
# | `filter_fn=lambda module, name: ...` | a key of the rules: a predicate, a name, a regular expression or a type |
# | `quantize_(model, QATConfig(base_config, step="prepare"))`, then `step="convert"` | the rules once; rounding passes gradients straight through |
# | `convert_to_float8_training(model, config=..., module_filter_fn=...)` | `quantize_(model, {nn.Linear: dict(weight="q43", activation="q43", error="q52")})`, each with `scale=` |
# | `MXTensor.to_mx(x, torch.float8_e4m3fn, block_size=32)` | `quantize(x, "mxfp8_e4m3")`, `.dequantize()`; as floats `chop(x, "mxfp8_e4m3")` |
# | `ScaleCalculationMode.FLOOR`, `CEIL`, `EVEN`, `RCEIL` | `"mxfp8_e4m3_ceil"`, ...: the rule behind the name |
# | `MXDynamicActivationMXWeightConfig(...)` | `quantize_(model, {nn.Linear: dict(weight="mxfp4", activation="mxfp4")})` |
#
# Differences: torchao runs a few formats fast on the hardware that has them; here any format runs
# on a CPU, in any rounding mode, with the sums that a policy asks for, so that hardware can be
# designed. Weights stay float32 masters in the model. Activations have a scale for the tensor,
# where torchao has one for each token.

# %%
model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 8))
eight_bits = dict(
    weight=dict(format="int8", per="channel"), activation=dict(format="int8", when="call")
)
torch_dtypes.quantize_(model, {torch.nn.Linear: eight_bits})
print(torch_dtypes.summary(model, show=False)["0"])
packed = torch_dtypes.quantize(x, "mxfp8_e4m3")
print(
    f"{packed.bits_per_value} bits a value;",
    torch.equal(packed.dequantize(), torch_dtypes.chop(x, "mxfp8_e4m3")),
)

# %% [markdown]
# ## microxcaling
#
# | `mx` | here |
# |---|---|
# | `quantize_mx_op(A, mx_specs, elem_format="fp8_e4m3", block_size=32, axes=[-1], round="even")` | `chop(A, "mxfp8_e4m3")` |
# | `elem_format="fp6_e3m2"`, `"fp6_e2m3"`, `"fp4_e2m1"`, `"int8"` | `"mxfp6_e3m2"`, `"mxfp6_e2m3"`, `"mxfp4"`, `"mxint8"` |
# | `axes=[0]`, `block_size=16` | `"mxfp4_axis0"`, `block_format("e2m1finite", "e8m0", 16)` |
# | `round="nearest"` (ties away from zero; its default), `"even"`, `"floor"` | `chop(A, ..., rounding="nearest_away")`, default, `"toward_zero"` |
# | `mx_specs["w_elem_format"]`, `"a_elem_format"` | `weight=`, `activation=` in a rule of `quantize_` |
# | `"w_elem_format_bp"`, `"a_elem_format_bp_ex"`, `"a_elem_format_bp_os"` | `error=` for the gradient that comes back; weights and activations are rounded once for both passes |
# | `mx.Linear(in, out, mx_specs=mx_specs)`, `mx_mapping.inject_pyt_ops(mx_specs)` | `quantize_(model, {nn.Linear: dict(weight="mxfp8_e4m3", activation="mxfp8_e4m3", error="mxfp8_e5m2")})` |
# | `mx_specs["bfloat"] = 16` (elementwise operators in bfloat16) | `Cast(forward="bf16")` between layers; or layers in a format dtype |
#
# Differences: rounding to nearest even is the default, every mode works, stochastic ones too,
# elements saturate, and a block with an infinity or NaN is NaN throughout.
#
# The door has microxcaling's bits, forward and backward, for every combination of the formats,
# roundings and `bfloat` or `fp` of `mx_specs`: products, softmax, normalisations, activations,
# `simd_...` and `LSTM` round each step as it does. Here they differ:
#
# | call | `mx` | the door |
# |---|---|---|
# | `bfloat=20`, `"floor"` of the float32 number below 4096 | 4094: its exponent is that of a rounded logarithm | 4095 |
# | `fp=16`, `"floor"` of 1e6 | infinity | 65504 |
# | -0.0 in `bfloat` | 0.0 | -0.0 |
# | `scale_bits=4`, a block with 1e6 | NaN | the largest numbers under the largest scale |
# | the gradient of `quantize_mx_op` | 0 | straight through |
# | convolutions: keys `..._bp`, `..._bp_ex`, `..._bp_os`, `round_mx_...` | ignored | used |
# | `custom_cuda=True` without a GPU | AssertionError | changes nothing |
# | injected `F.gelu(x)` | the approximation by tanh | PyTorch's, as asked |
# | injected `nn.LayerNorm(n)` | eps = 1e-12 | PyTorch's default |
# | injected `torch.norm(x, 1)` | TypeError | PyTorch's, rounded |
# | injected functions with arguments that `mx` lacks, as `torch.add(x, y, alpha=2)` | TypeError | PyTorch's, arguments and result rounded |
# | `batch_norm`: the gradient outside training | as if the statistics came from x | of the running statistics |
# | `batch_norm`: `running_var` | of variance + eps, over n | over n - 1, as PyTorch's |
# | gradients of `simd_sub`, and of `RMSNorm` to its input | not rounded | rounded |
# | `vec_use_recip` with means, and with numbers as divisors | AttributeError | works |
# | `layer_norm` over several dimensions | over the last | over all |
# | `_quantize_elemwise`, `_quantize_fp`: "floor" of numbers above the largest | infinity | the largest |
# | `from mx.linear import Linear`: modules named as a function | works | `from mx import Linear` |
# | `_shared_exponents`, `_reshape_to_blocks`, `_round_mantissa`: parts of `quantize_mx_op` | there | none; `torch_dtypes.quantize(x, "mxfp4")` gives scales and codes |
#
# On the same numbers, the door's `quantize_mx_op` is 7 to 20 times as fast as microxcaling's on a
# CPU, `quantize_elemwise_op` 73 times; softmax, `gelu`, `sigmoid` and `LayerNorm` in bfloat16 are
# 13 to 21 times as fast, both passes. The first two take 0.9 to 1.0 times `chop`'s time.

# %%
A = torch.randn(2, 64)
for name in ("mxfp8_e4m3", "mxfp6_e3m2", "mxfp4", "mxint8", "nvfp4"):
    error = torch_dtypes.chop(A, name) - A
    print(
        f"{name:11} signal over error "
        f"{10 * torch.log10(A.square().sum() / error.square().sum()).item():5.1f} dB"
    )
torch_dtypes.quantize_(
    model, {torch.nn.Linear: dict(weight="mxfp8_e4m3", activation="mxfp8_e4m3", error="mxfp8_e5m2")}
)
model(x).sum().backward()
assert model[0].weight.grad is not None

# %%
specs = mx.finalize_mx_specs(
    {"w_elem_format": "fp6_e3m2", "a_elem_format": "fp8_e4m3", "block_size": 32, "bfloat": 16}
)
layer = mx.Linear(64, 8, mx_specs=specs)  # the door
layer(x).sum().backward()
rounded = mx.quantize_mx_op(A, specs, "fp8_e4m3", axes=[-1], round="even")
assert torch.equal(rounded, torch_dtypes.chop(A, "mxfp8_e4m3"))

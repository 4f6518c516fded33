# %% [markdown]
# # Coming from QPyTorch, Pychop, torchao or microxcaling
#
# A script for QPyTorch or microxcaling runs here as it stands, on this package's kernels:
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
# | `mx` | microxcaling (7bc4195) | `mx.specs`, `mx.mx_ops`, `mx.mx_mapping`; linear layers, convolutions, matrix products; layers and functions without products |
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
from torch_dtypes.compat import mx, qtorch

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
# | `CPFloat(1.2, chop)` (a number that stays chopped) | `torch.tensor(1.2, dtype=torch.e5m5)` |
# | `QuantizedLinear(256, 10, chop=ChopSTE(...))` | `nn.Linear` as it is, and `quantize_(model, {nn.Linear: dict(weight="e5m10", activation="e5m10")})` |
# | `pychop.backend("torch")` | nothing: the array says what it is |
# | `random_state=` | `generator=torch.Generator().manual_seed(...)`, or torch's own |
#
# Differences: overflow is IEEE 754's in every mode (the largest number toward zero, infinity to
# nearest), and stochastic results are the same for a seed on any number of threads.

# %%
X = torch.tensor([240.0, 247.0, 248.0, 1000.0, -1000.0])
for mode in (1, 2, 3, 4, 7, 8, 9):
    print(mode, torch_dtypes.chop(X, "q43", rounding=mode).tolist())

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
# The door's products have microxcaling's bits, forward and backward, for every combination of the
# formats, roundings and `bfloat` or `fp` of `mx_specs`. Here they differ:
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
# | softmax, normalisations, activations, exp under `bfloat` or `fp` | round each step inside | round arguments and result; `softmax_exp2`, `vec_use_exp2`, `vec_use_recip` change nothing |
# | `mx.LSTM` | runs | NotImplementedError, which names `quantize_` |
#
# On the same numbers, the door's `quantize_mx_op` is 7 to 20 times as fast as microxcaling's on a
# CPU, `quantize_elemwise_op` 73 times. Both take 0.9 to 1.0 times `chop`'s time.

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

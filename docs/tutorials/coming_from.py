# %% [markdown]
# # Coming from QPyTorch, Pychop, torchao or microxcaling
#
# Their calls and this package's, side by side. The cells below the tables run this side.
#
#     python docs/tutorials/coming_from.py

# %%
import sys

import torch

import torch_dtypes

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
# The rows of the three functions were compared with results of qtorch 0.3.0 on PyTorch 2.13.0
# (2026-11-28, `tools/record_qtorch.py`), and a test compares them again. Stochastic rows have the
# same two results with the same probabilities. Four things differ:
#
# - **Zeros.** `float_quantize` has no -0 below its smallest normal number, `fixed_point_quantize`
#   has one; here it is the other way around.
# - **Ties.** QPyTorch first adds a number to x, in float32, and rounds the sum. This moves x onto a
#   tie where it lies beside one. In `float_quantize` x is below the smallest normal number s, and
#   within 2^-24 s of the tie. In `fixed_point_quantize` x is the first float32 number above half a
#   step. In `block_quantize` x is within 2^-22 of the tie, relative to the power of two below the
#   largest number. Here each number is rounded once.
# - **NaN.** `fixed_point_quantize` keeps it; fixed point has none here, and gives 0.
# - **Clamping.** `clamping_grad_zero` keeps the gradient of a number that rounds to the last one;
#   `clamped="zero"` drops it beyond that one.
#
# `e5m2finite` rounds to nearest even unless a mode is given, and `q52` is IEEE 754's format: its
# last exponent holds infinity and NaN. `grad_scaling` multiplies gradients before they are rounded;
# `grad_scale` scales the loss (`optimizer.scale(loss).backward()`) and divides after rounding. A
# layer may also run in the dtype itself: `model.to(torch.q52)`.

# %%
print(torch_dtypes.chop(torch.tensor([1.1, 1.125, 1e6]), "e5m2finite", rounding="nearest_away"))
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

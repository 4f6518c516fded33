"""microxcaling's names (``mx``) over this package.

docs/tutorials/coming_from.py lists where results differ from microxcaling's, and why.
"""

from . import elemwise_ops, formats, mx_mapping, mx_ops, specs
from .elemwise_ops import quantize_elemwise_op
from .mx_ops import quantize_mx_op
from .products import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose2d,
    Linear,
    bmm,
    conv1d,
    conv2d,
    conv3d,
    linear,
    matmul,
)
from .quantize import quantize_bfloat
from .specs import (
    MxSpecs,
    add_mx_args,
    finalize_mx_specs,
    get_backwards_mx_specs,
    get_mx_specs,
)
from .vectors import (
    GELU,
    LSTM,
    AdaptiveAvgPool2d,
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    GroupNorm,
    LayerNorm,
    LeakyReLU,
    ReLU,
    ReLU6,
    RMSNorm,
    Sigmoid,
    SiLU,
    Softmax,
    Tanh,
    adaptive_avg_pool2d,
    batch_norm,
    gelu,
    group_norm,
    layer_norm,
    leaky_relu,
    relu,
    relu6,
    sigmoid,
    silu,
    simd_add,
    simd_div,
    simd_exp,
    simd_log,
    simd_mul,
    simd_norm,
    simd_reduce_mean,
    simd_reduce_sum,
    simd_split,
    simd_sqrt,
    simd_square,
    simd_sub,
    softmax,
    tanh,
)

"""microxcaling's names (``mx``) over this package.

docs/tutorials/coming_from.py lists where results differ from microxcaling's, and why.
"""

from . import activations, elemwise_ops, formats, mx_mapping, mx_ops, simd_ops, specs
from .activations import (
    GELU,
    LeakyReLU,
    ReLU,
    ReLU6,
    Sigmoid,
    SiLU,
    Softmax,
    Tanh,
    gelu,
    leaky_relu,
    relu,
    relu6,
    sigmoid,
    silu,
    softmax,
    tanh,
)
from .elemwise_ops import quantize_elemwise_op
from .mx_ops import quantize_mx_op
from .norms import (
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    GroupNorm,
    LayerNorm,
    RMSNorm,
    batch_norm,
    group_norm,
    layer_norm,
)
from .pooling import AdaptiveAvgPool2d, adaptive_avg_pool2d
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
from .rnn import LSTM
from .simd_ops import (
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
)
from .specs import (
    MxSpecs,
    add_mx_args,
    finalize_mx_specs,
    get_backwards_mx_specs,
    get_mx_specs,
)

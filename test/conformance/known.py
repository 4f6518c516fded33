"""Facts about entries of the operator suite: which results are exact, have no meaning, are refused,
or fail."""

import dataclasses

import torch_dtypes
from torch_dtypes._torch_version import RUNNING

# No slack at all: docs/numerics.md promises correct rounding, or the operator only moves its
# operands' values.
EXACT = frozenset(
    (
        "add sub rsub mul div true_divide reciprocal sqrt __radd__ __rsub__ __rmul__ __rdiv__ "
        "neg abs positive sign sgn relu maximum minimum fmax fmin clamp clamp_min clamp_max ceil "
        "floor trunc round frac max min amax amin aminmax sort msort topk kthvalue median "
        "nanmedian mode unique unique_consecutive argmax argmin argsort cummax cummin eq ne lt "
        "le gt ge isclose equal isnan isfinite isinf isposinf isneginf signbit logical_and "
        "logical_or logical_xor logical_not where masked_fill masked_scatter masked_select "
        "gather take take_along_dim index_select index_fill index_copy index_put put scatter "
        "select_scatter slice_scatter diagonal_scatter as_strided_scatter __getitem__ nonzero "
        "argwhere count_nonzero any all searchsorted bucketize cat stack hstack vstack dstack "
        "column_stack block_diag cartesian_prod combinations broadcast_to broadcast_tensors "
        "expand expand_as expand_copy reshape reshape_as view view_as view_copy ravel flatten "
        "unflatten permute permute_copy transpose transpose_copy movedim t t_copy T H mT mH "
        "squeeze squeeze_copy unsqueeze unsqueeze_copy narrow narrow_copy select slice split "
        "split_with_sizes split_with_sizes_copy chunk unbind unbind_copy tensor_split hsplit "
        "vsplit dsplit unfold unfold_copy roll rot90 flip fliplr flipud tile repeat "
        "repeat_interleave diag diag_embed diagonal diagonal_copy diagflat tril triu clone "
        "contiguous alias_copy real conj conj_physical resolve_conj resolve_neg to item fill "
        "zero_ full full_like new_full ones ones_like new_ones zeros zeros_like new_zeros eye "
        "scalar_tensor constant_pad_nd nn.functional.pad nn.functional.relu nn.functional.relu6 "
        "nn.functional.hardtanh nn.functional.threshold nn.functional.hardshrink "
        "nn.functional.embedding nn.functional.max_pool1d nn.functional.max_pool2d "
        "nn.functional.max_pool3d nn.functional.max_unpool1d nn.functional.max_unpool2d "
        "nn.functional.max_unpool3d nn.functional.adaptive_max_pool1d "
        "nn.functional.adaptive_max_pool2d nn.functional.adaptive_max_pool3d "
        "nn.functional.pixel_shuffle nn.functional.pixel_unshuffle nn.functional.channel_shuffle "
        "nan_to_num copysign heaviside masked.amax masked.amin linalg.diagonal fft.fftshift "
        "fft.ifftshift"
    ).split()
)

# Results with uninitialised or random elements. Since PyTorch 2.12 the database marks them itself
# (has_nondeterministic_output).
NONDETERMINISTIC = frozenset(
    (
        "empty empty_like empty_strided empty_permuted new_empty new_empty_strided "
        "torch.ops.aten._efficient_attention_forward torch.ops.aten._flash_attention_forward"
    ).split()
)
# The later results are kept for the derivatives without rounding: in float32, or float64 for wide
# formats.
KEEPS_STATISTICS = frozenset(
    (
        "native_batch_norm _native_batch_norm_legit _batch_norm_with_update native_layer_norm "
        "native_group_norm"
    ).split()
)
# The entries above, and a matrix that is singular by intent: when its factors are rounded, its
# condition has no bound.
UNDEFINED_VALUES = NONDETERMINISTIC | frozenset("resize_ resize_as_ linalg.pinv.singular".split())


@dataclasses.dataclass(frozen=True)
class Known:
    """A reason why an entry does not pass. `where`: names of dtypes, or a number for all dtypes of
    so many bytes, or None for all. `refused`: set where raising an error is right."""

    reason: str
    where: tuple[int | str, ...] | None = None
    refused: bool = False

    def applies(self, dtype: str) -> bool:
        return (
            self.where is None
            or dtype in self.where
            or torch_dtypes.dtype(dtype).itemsize in self.where
        )


List = dict[str, dict[str, list[Known]]]  # kind, entry


def expected_in(table: List, name: str, kind: str, dtype: str) -> Known | None:
    return next(
        (known for known in table.get(kind, {}).get(name, ()) if known.applies(dtype)), None
    )


def add_known(table: List, kinds: str, names: str, known: Known):
    for kind in kinds.split():
        for name in names.split():
            table.setdefault(kind, {}).setdefault(name, []).append(known)


# ---- operators ----

FAILS: List = {
    "forward": {},
    "backward": {},
    "gradgrad": {},
    "inplace": {},
    "inplace_backward": {},
    "errors": {},
}


def find_known(name: str, kind: str, dtype: str) -> Known | None:
    return expected_in(FAILS, name, kind, dtype)


# An impossible request: it raises, and should.
_NO_WINDOWS = "window formulas exist for float32 and float64 only; PyTorch refuses float16 as well"
_WINDOWS = (
    "bartlett blackman cosine exponential gaussian general_cosine general_hamming hamming hann "
    "kaiser nuttall"
)
add_known(
    FAILS,
    "forward",
    " ".join("signal.windows." + name for name in _WINDOWS.split()),
    Known(_NO_WINDOWS, refused=True),
)
add_known(
    FAILS,
    "forward backward gradgrad",
    "view_as_complex",
    Known("no complex counterpart", refused=True),
)
add_known(FAILS, "forward backward gradgrad", "to_sparse", Known("no sparse layout", refused=True))
_JITERATOR = "unary binary 2inputs_2outputs 4inputs_with_extra_args binary_return_by_ref"
_COMPILED = Known("a user's CUDA code, which does not know formats", refused=True)
add_known(FAILS, "forward", " ".join("jiterator_" + name for name in _JITERATOR.split()), _COMPILED)
_FEW_BITS = "terms cancel, and the remaining rounding errors depend on the order of three kernels"
if RUNNING >= (2, 13):
    add_known(
        FAILS,
        "gradgrad",
        "nn.functional.linear_cross_entropy.chunked",
        Known(_FEW_BITS, ("e5m5", "posit8es2")),
    )

# Limits of the formats, not of the operators.
_OVERFLOW = "an intermediate value overflows, in another kernel than in the stock run"
add_known(FAILS, "backward", "__rpow__ linalg.householder_product", Known(_OVERFLOW, ("q52",)))
add_known(FAILS, "gradgrad", "masked.prod", Known(_OVERFLOW, ("q52",)))
add_known(FAILS, "gradgrad", "__rdiv__", Known(_OVERFLOW, ("e5m5",)))
add_known(FAILS, "backward gradgrad", "svd", Known(_FEW_BITS, ("q52",)))
_BOTH_MASKED = (
    "where both operands are masked, PyTorch's formula is 0 / 0, but 0 in a posit that does not "
    "underflow to 0"
)
add_known(
    FAILS,
    "gradgrad",
    "masked.logaddexp",
    Known(_BOTH_MASKED, ("posit8es2", "posit16es2", "posit32es2")),
)

# ---- forward-mode derivatives ----

TANGENTS: List = {}

add_known(TANGENTS, "tangent", "view_as_complex", Known("no complex counterpart", refused=True))
add_known(
    TANGENTS,
    "tangent",
    "ldexp",
    Known(
        "for the second operand alone, PyTorch's tangent of a float32 result is float64; a format "
        "result's tangent has its dtype"
    ),
)
add_known(
    TANGENTS,
    "tangent",
    "linalg.eig",
    Known("the eigenvectors' absolute values are float32, as for complex64"),
)
add_known(
    TANGENTS,
    "tangent",
    "torch.ops.aten._safe_softmax.default",
    Known("the tangent of a row of masked elements is NaN", (1,)),
)

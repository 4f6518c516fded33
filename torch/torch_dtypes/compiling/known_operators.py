"""The operators and functions that graphs of codes have in ways of their own: those that move codes, that make tensors of a dtype that they are
given, and those of which values decide what they give."""

from __future__ import annotations

import torch

aten = torch.ops.aten
SAME = {aten.detach.default, aten.alias.default, aten.lift_fresh.default}  # as the graph sees it
MOVES = {aten._unsafe_view.default, aten.clone.default}  # of codes, beside views
OF_LAYOUTS = {aten._has_same_storage_numel.default, aten.is_same_size.default}  # which say the same of codes, and nothing of values
# Views that do not declare themselves. Of what is no operator of PyTorch's own, compilers take that for a fault (an error under CI=true).
UNDECLARED_VIEWS = {
    aten.unsafe_split.Tensor: aten.split.Tensor,
    aten.unsafe_split_with_sizes.default: aten.split_with_sizes.default,
}
# What may name a dtype of ours in a graph, beside casts: constants, by the number that they are full of, and what is made of other operators.
GIVEN = object()  # the number that it is given
CONSTANT = {
    **dict.fromkeys(("zeros", "zeros_like", "new_zeros", "empty", "empty_like", "new_empty"), 0),
    **dict.fromkeys(("ones", "ones_like", "new_ones"), 1),
    **dict.fromkeys(("full", "full_like", "new_full"), GIVEN),
}
UNFILLED = {"zeros", "empty", "empty_like", "new_empty"}  # which eager code makes without rounding a number
REDUCED = ("sum", "nansum", "mean", "nanmean", "prod", "cumsum", "cumprod", "softmax", "log_softmax")
MADE = {
    *CONSTANT,
    *("arange", "linspace", "logspace", "eye", "hann_window", "hamming_window", "blackman_window", "bartlett_window", "kaiser_window"),
    *("rand", "rand_like", "randn", "randint", "randperm", "normal", "randn_like", "randint_like", "tensor", "scalar_tensor", "as_tensor"),
    *REDUCED,
}
WITHOUT_GRADIENTS = MADE - {"as_tensor", *REDUCED}
_UNKNOWN = (torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output, torch.Tag.inplace_view)


def values_decide(func, args: tuple) -> bool:
    """Whether values decide what an operator gives. (Of indexing those of masks do.)"""
    if func is aten.index.Tensor:
        return any(t is not None and t.dtype in (torch.bool, torch.uint8) for t in args[1])
    return any(tag in func.tags for tag in _UNKNOWN)


def as_a_view(func):
    """``squeeze`` of ``squeeze_``, if there is a view."""
    packet, overload = getattr(aten, func._schema.name.removeprefix("aten::").removesuffix("_"), None), func._schema.overload_name or "default"
    found = getattr(packet, overload) if packet is not None and overload in packet.overloads() else func
    return found if found.is_view else func

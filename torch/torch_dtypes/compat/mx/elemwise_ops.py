"""microxcaling's rounding of a tensor to a float."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from ...targets.chop import chop
from .formats import find_mode, find_vector_format

__all__ = ["quantize_elemwise_op"]


def quantize_elemwise_op(
    A: torch.Tensor, mx_specs: Mapping | None, round: str | None = None
) -> torch.Tensor:
    """Round A to the float of the options ``bfloat`` (8 exponent bits) or ``fp`` (5 exponent bits):
    their bits in all. The gradient passes straight through.

    Raises:
        ValueError: both options, too few bits, or an unknown mode.
    """
    if mx_specs is None:
        return A
    found = find_vector_format(mx_specs["bfloat"], mx_specs["fp"], mx_specs["bfloat_subnorms"])
    return A if found is None else chop(A, found, find_mode(round or mx_specs["round"]))

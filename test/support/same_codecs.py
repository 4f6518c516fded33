"""Compare the exact codecs of two formats that must be equal."""

import math

import numpy as np
import torch
from oracle import MODES as DETERMINISTIC
from oracle_stochastic import MODES as STOCHASTIC

from torch_dtypes import _C


def assert_same_codecs(one: _C.Format, other: _C.Format, magnitudes: torch.Tensor) -> None:
    """Check the values of all codes, and the codes of numbers in every mode and for given words.
    magnitudes: the numbers, besides special values."""
    codes = torch.arange(1 << one.bits)
    torch.testing.assert_close(
        _C.decode_exact(one, codes), _C.decode_exact(other, codes), rtol=0, atol=0, equal_nan=True
    )
    specials = torch.tensor(
        [0.0, -0.0, 1e-300, -1e-300, 1e300, math.inf, -math.inf, math.nan], dtype=torch.float64
    )
    x = torch.cat([magnitudes, -magnitudes, specials])
    words = torch.from_numpy(
        np.random.default_rng(1).integers(0, 2**64, len(x), dtype=np.uint64).view(np.int64)
    )
    for mode in (*DETERMINISTIC, *STOCHASTIC):
        for few in (0, 3) if mode == "stochastic" else (0,):
            for fmt in (one, other):
                fmt.rounding, fmt.random_bits = getattr(_C.Rounding, mode), few
            assert torch.equal(_C.encode_exact(one, x, words), _C.encode_exact(other, x, words)), (
                mode
            )

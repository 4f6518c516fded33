"""torch_dtypes: posits and custom float formats as native PyTorch dtypes.

``import torch`` loads this package by itself; afterwards ``torch.posit16es2``, ``torch.q43`` and
the others are ordinary dtypes::

    x = torch.tensor([1.2, 3.4], dtype=torch.posit16es2, requires_grad=True)
    model = Model().to(torch.q43)
    e5m5 = torch_dtypes.float_format(exp_bits=5, man_bits=5)
"""

from typing import TYPE_CHECKING

import torch

from . import _torch_version

_torch_version.check()

from .host.loading import pause_collection, restore  # noqa: E402

_loaded = restore()

with pause_collection():
    from . import _C, integrations
    from .formats import dtypes, lazy
    from .formats.codes import codes, from_codes
    from .formats.dtypes import (
        ROUNDING_MODES,
        builtin_dtypes,
        dtype,
        format_of,
        is_format_dtype,
        with_rounding,
    )
    from .formats.layouts import fixed_format, float_format, posit_format
    from .formats.tables import lns_format, table_format, takum_format
    from .host import install, loading, old_paths
    from .policies.accumulation import Accumulation, accumulate, accumulation_of, set_accumulation
    from .policies.backend import backend, set_backend
    from .policies.matmul import matmul
    from .policies.rounding import rounding
    from .storage.safetensors import load_safetensors, save_safetensors
    from .targets.block_tensors import BlockTensor, quantize
    from .targets.blocks import block_float, block_format
    from .targets.chop import chop
    from .targets.integers import integer_format
    from .targets.lookup import Target, target

if TYPE_CHECKING:
    from . import distributed, linalg, nn, optim
    from .fuzzing import Fuzzy, fuzzy
    from .quantization import Cast, calibration, dequantize_, quantize_, summary
    from .workbench import (
        BlockCard,
        Card,
        RoundingCounts,
        Statistics,
        card,
        dump_vectors,
        observe,
        show,
        sweep,
    )
    from .workbench.diagnosis.divergence import Divergence, explain_divergence
    from .workbench.sensitivity import Mixture, Sensitivity, sensitivity
    from .workbench.variability import Digits, Variability, significant_digits, variability

__all__ = [
    "ROUNDING_MODES",
    "Accumulation",
    "BlockCard",
    "BlockTensor",
    "Card",
    "Cast",
    "Digits",
    "Divergence",
    "Fuzzy",
    "Mixture",
    "RoundingCounts",
    "Sensitivity",
    "Statistics",
    "Target",
    "Variability",
    "accumulate",
    "accumulation_of",
    "backend",
    "block_float",
    "block_format",
    "builtin_dtypes",
    "calibration",
    "card",
    "chop",
    "codes",
    "dequantize_",
    "dtype",
    "dump_vectors",
    "explain_divergence",
    "fixed_format",
    "float_format",
    "format_of",
    "from_codes",
    "fuzzy",
    "integer_format",
    "is_format_dtype",
    "linalg",
    "lns_format",
    "load_safetensors",
    "matmul",
    "observe",
    "optim",
    "posit_format",
    "quantize",
    "quantize_",
    "rounding",
    "save_safetensors",
    "sensitivity",
    "set_accumulation",
    "set_backend",
    "show",
    "significant_digits",
    "summary",
    "sweep",
    "table_format",
    "takum_format",
    "target",
    "variability",
    "with_rounding",
]
__version__ = "0.2.0"

_REMOVED = {
    **dict.fromkeys(("mixed_operands", "set_mixed_operands"), "convert one operand, x.to(dtype)"),
    **dict.fromkeys(
        ("fill_infinity", "set_fill_infinity"),
        "cast a tensor for NaN, torch.tensor(numbers).to(dtype)",
    ),
    "set_optimizer_eps": (
        "give an eps that the dtype has, or wrap the optimizer in torch_dtypes.optim.LowPrecision"
    ),
}


_find, _list = lazy.attach(
    __name__,
    {
        ".distributed": "",
        ".fuzzing": "",
        ".linalg": "",
        ".nn": "",
        ".optim": "",
        ".quantization": "",
        ".workbench": "",
        ".fuzzing.blocks": "Fuzzy fuzzy",
        ".quantization.cast": "Cast",
        ".quantization.convert": "dequantize_ quantize_",
        ".quantization.scales": "calibration",
        ".quantization.summary": "summary",
        ".workbench.cards.card": "BlockCard Card card",
        ".workbench.diagnosis.divergence": "Divergence explain_divergence",
        ".workbench.observation": "RoundingCounts Statistics observe",
        ".workbench.sensitivity": "Mixture Sensitivity sensitivity",
        ".workbench.cards.comparison": "show",
        ".workbench.sweeps": "sweep",
        ".workbench.variability": "Digits Variability significant_digits variability",
        ".workbench.vectors": "dump_vectors",
    },
)


def _find_late(name: str):
    """Return a name whose module loads late, or raise for a removed one."""
    if name in _REMOVED:
        raise AttributeError(
            f"expected a name of torch_dtypes {__version__}, but got {name}, which 0.2.0 removed; "
            f"{_REMOVED[name]}"
        )
    return _find(name)


# Unseen by type checkers, which would take any name otherwise.
globals().update(__getattr__=_find_late, __dir__=_list)


if not _loaded:
    # The names of dtypes are installed last: if an earlier part raises, no name may be left that
    # stock functions misread.
    with pause_collection():
        loading.install(install.install, integrations.install, dtypes.install, old_paths.install)

# The built-in dtypes again, for type checkers: torch's stubs have no torch.posit16es2.
posit8es0: torch.dtype
posit8es1: torch.dtype
posit8es2: torch.dtype
posit16es1: torch.dtype
posit16es2: torch.dtype
posit32es2: torch.dtype
q43: torch.dtype
q52: torch.dtype
tf32: torch.dtype
e5m5: torch.dtype
e5m7: torch.dtype
e8m4: torch.dtype
globals().update({_C.name_of(d): d for d in builtin_dtypes()})

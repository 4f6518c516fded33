"""torch_dtypes: posits and custom float formats as native PyTorch dtypes.

``import torch`` loads this package by itself; afterwards ``torch.posit16es2``, ``torch.q43`` and the others are ordinary dtypes::

    x = torch.tensor([1.2, 3.4], dtype=torch.posit16es2, requires_grad=True)
    model = Model().to(torch.q43)
    e5m5 = torch_dtypes.float_format(exp_bits=5, man_bits=5)
"""

import torch

from . import _torch_version

_torch_version.check()

from .host import loading  # noqa: E402

_loaded = loading.restore()

from . import _C, distributed, integrations, nn, optim  # noqa: E402
from .formats import dtypes  # noqa: E402
from .formats.codes import codes, from_codes  # noqa: E402
from .formats.dtypes import (  # noqa: E402
    ROUNDING_MODES,
    builtin_dtypes,
    dtype,
    fixed_format,
    float_format,
    format_of,
    is_format_dtype,
    lns_format,
    posit_format,
    table_format,
    takum_format,
    with_rounding,
)
from .fuzzing import Fuzzy, fuzzy  # noqa: E402
from .host import install, old_paths  # noqa: E402
from .policies.accumulation import (  # noqa: E402
    Accumulation,
    accumulate,
    accumulation_of,
    set_accumulation,
)
from .policies.matmul import matmul  # noqa: E402
from .policies.rounding import rounding  # noqa: E402
from .quantization import (  # noqa: E402
    BlockTensor,
    Cast,
    Target,
    block_float,
    block_format,
    calibration,
    dequantize_,
    integer_format,
    quantize,
    quantize_,
    summary,
    target,
)
from .storage.safetensors import load_safetensors, save_safetensors  # noqa: E402
from .targets.chop import chop  # noqa: E402
from .workbench import (  # noqa: E402
    Card,
    RoundingCounts,
    Statistics,
    card,
    dump_vectors,
    observe,
    show,
    sweep,
)
from .workbench.diagnosis.divergence import Divergence, explain_divergence  # noqa: E402
from .workbench.sensitivity import Mixture, Sensitivity, sensitivity  # noqa: E402
from .workbench.variability import (  # noqa: E402
    Digits,
    Variability,
    significant_digits,
    variability,
)

__all__ = [
    "ROUNDING_MODES",
    "Accumulation",
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
    **dict.fromkeys(("fill_infinity", "set_fill_infinity"), "cast a tensor for NaN, torch.tensor(numbers).to(dtype)"),
    "set_optimizer_eps": "give an eps that the dtype has, or wrap the optimizer in torch_dtypes.optim.LowPrecision",
}


def _refuse(name: str):
    if name in _REMOVED:
        raise AttributeError(f"expected a name of torch_dtypes {__version__}, but got {name}, which 0.2.0 removed; {_REMOVED[name]}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


globals()["__getattr__"] = _refuse  # unseen by type checkers, which would take any name otherwise


if not _loaded:
    # formats last: where something before raises, no name of a dtype must be left that stock functions misread
    loading.install(install.install, integrations.install, dtypes.install, old_paths.install)

# The built-in dtypes once more, for type checkers: they know torch by its own stubs, which have no torch.posit16es2.
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

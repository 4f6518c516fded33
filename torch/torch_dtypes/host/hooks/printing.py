"""How a tensor and a module are printed: exact values by PyTorch's own formatter, and the formats
of a module's parameters."""

from __future__ import annotations

import functools

import torch
from torch import _tensor_str

from ... import _C
from ..table import Hook, Kind


def tensor_str(self: torch.Tensor, indent: int) -> str | None:
    """The numbers of a tensor of ours. Stock chooses how to write them by operators in the tensor's
    dtype, which round: so the text would depend on the rounding mode, and printing would draw from
    the generator in a stochastic one."""
    if not _C.is_format_tensor(self) or self.numel() == 0:
        return None
    values = self.detach().resolve_neg()
    summarize = values.numel() > _tensor_str.PRINT_OPTS.threshold
    # The formatter's copies are of what is shown only.
    shown = _tensor_str.get_summarized_data(values) if summarize else values
    return _tensor_str._tensor_str_with_formatter(
        values, indent, summarize, _tensor_str._Formatter(shown.double())
    )


class _WithFormats:
    """A module to its stock ``__repr__``: all that it is, and one word more."""

    def __init__(self, module: torch.nn.Module, formats: str) -> None:
        self._module, self._formats = module, formats

    def __getattr__(self, name: str) -> object:
        return getattr(self._module, name)

    def extra_repr(self) -> str:
        own = self._module.extra_repr()
        return (
            f"{own}{chr(10) if chr(10) in own else ', '}{self._formats}" if own else self._formats
        )


def _formats_of(module: torch.nn.Module) -> str | None:
    """``dtype=q43`` where all of a module's own numbers are in it,
    ``dtype=(weight: q43, bias: float32)`` where they differ; None: no format."""
    # Stock names the dtype of each.
    if isinstance(module, (torch.nn.ParameterList, torch.nn.ParameterDict)):
        return None
    own = {**vars(module).get("_parameters", {}), **vars(module).get("_buffers", {})}
    dtypes = {
        name: t.dtype
        for name, t in own.items()
        if isinstance(t, torch.Tensor) and t.is_floating_point()
    }
    if not any(_C.format_of(d) is not None for d in dtypes.values()):
        return None
    names = {name: str(d).removeprefix("torch.") for name, d in dtypes.items()}
    if len(set(names.values())) == 1:
        return f"dtype={next(iter(names.values()))}"
    return f"dtype=({', '.join(f'{name}: {dtype}' for name, dtype in names.items())})"


def module_repr(stock):
    """A module whose own parameters or buffers have a number format names it: print(model) tells
    one in posits from one in float32. Stock modules say no dtypes."""

    @functools.wraps(stock)
    def extended(self):
        formats = _formats_of(self)
        return stock(self if formats is None else _WithFormats(self, formats))

    return extended


HOOKS = [
    Hook("torch._tensor_str._tensor_str", Kind.ASKED, tensor_str),
    Hook("torch.nn.modules.module.Module.__repr__", Kind.REPLACED, module_repr),
]

"""Hooks of printing: exact values by PyTorch's own formatter, and the formats of parameters."""

from __future__ import annotations

import functools

import torch
from torch import _tensor_str

from ... import _C
from ..table import Hook, Kind


def tensor_str(self: torch.Tensor, indent: int) -> str | None:
    """Print the exact numbers of a format tensor.

    PyTorch chooses their notation by operators in the tensor's dtype, which round. The text would
    then depend on the rounding mode, and in a stochastic mode printing would draw from the
    generator.
    """
    if not _C.is_format_tensor(self) or self.numel() == 0:
        return None
    values = self.detach().resolve_neg()
    summarize = values.numel() > _tensor_str.PRINT_OPTS.threshold
    # The formatter copies the printed part only.
    shown = _tensor_str.get_summarized_data(values) if summarize else values
    return _tensor_str._tensor_str_with_formatter(
        values, indent, summarize, _tensor_str._Formatter(shown.double())
    )


class _WithFormats:
    """Passes for a module in its stock ``__repr__``, and adds one word."""

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
    """Return the dtypes of a module's own tensors, or None if none is a format dtype.

    It is ``dtype=q43`` if all are the same, else ``dtype=(weight: q43, bias: float32)``.
    """
    # PyTorch names the dtype of each of these lists' parameters.
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
    """Print the dtype of a module whose own parameters or buffers are format tensors.

    print(model) then tells posits from float32; stock modules print no dtypes.
    """

    @functools.wraps(stock)
    def represent(self):
        formats = _formats_of(self)
        return stock(self if formats is None else _WithFormats(self, formats))

    return represent


HOOKS = [
    Hook("torch._tensor_str._tensor_str", Kind.ASKED, tensor_str),
    Hook("torch.nn.modules.module.Module.__repr__", Kind.REPLACED, module_repr),
]

"""Results of explain_divergence: a tensor, and the reason."""

from __future__ import annotations

from dataclasses import dataclass

MASTERS = (
    "float32 masters (torch_dtypes.optim.LowPrecision around the optimizer; torch-dtypes train "
    "--recipe master)"
)


@dataclass(frozen=True)
class Divergence:
    """The first tensor that was not finite, or the reason why a finite run does not learn.

    Attributes:
        tensor: the name of a parameter, with ``.grad`` for its gradient, or of a module's output.
        layer: the module's qualified name, ``""`` for the model itself.
        where: the pass in which it went wrong: ``"forward"``, ``"backward"``, ``"update"`` or
            ``"evaluation"``.
        cause: the likely cause.
        advice: changes to try.
        fault: the fault of the tensor, in words.

    Example::

        >>> model = nn.Linear(1, 1).to(torch.q52)
        >>> with torch.no_grad():
        ...     _ = model.weight.fill_(float("inf"))
        >>> found = torch_dtypes.explain_divergence(model)
        >>> found.tensor, found.where
        ('weight', 'forward')
    """

    tensor: str
    layer: str
    where: str
    cause: str
    advice: str
    fault: str = "was the first tensor that was not finite"

    def __str__(self) -> str:
        place = f"{self.where} pass, layer {self.layer or 'model'!r}"
        return f"{self.tensor} {self.fault} ({place}): {self.cause}. Try {self.advice}."


def layer_of(name: str) -> str:
    """Return the qualified name of the module that has the parameter ``name``."""
    return name.rpartition(".")[0]

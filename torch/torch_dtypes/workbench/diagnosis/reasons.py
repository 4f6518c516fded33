"""What explain_divergence finds: a tensor, and the reason."""

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
        tensor: its name: a parameter's, with ``.grad`` for its gradient, or that of a module's
            output.
        layer: the module's qualified name, ``""`` for the model itself.
        where: the pass that made it: ``"forward"``, ``"backward"``, ``"update"`` or
            ``"evaluation"``.
        cause: what likely happened.
        advice: what to try.
        fault: what is wrong with it, in words.

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
    """The qualified name of the module that has a parameter."""
    return name.rpartition(".")[0]

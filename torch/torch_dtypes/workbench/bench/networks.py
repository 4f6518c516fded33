"""The suite ``networks``: a training step of twelve networks and of recurrent layers, in posits and
in bfloat16, over stock float32's."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import torch
from torch import nn

from ..training.generators import forked_generators
from ..training.gpt import VOCABULARY, build_gpt
from ..training.recipes import build_optimizer
from ..training.records import Config
from ..training.sources import import_torchvision_models
from .measuring import Group, Row, Sizes, named_dtypes
from .training import STEP

SUMMARY = (
    "A training step with Adam of small images or texts, over stock float32's: ten networks of "
    "torchvision, a GPT and a BERT of ten million parameters, an LSTM and a GRU."
)
IMAGES = (
    "alexnet",
    "vgg11",
    "resnet18",
    "resnet50",
    "mobilenet_v3_small",
    "efficientnet_b0",
    "densenet121",
    "convnext_tiny",
    "vit_b_16",
    "swin_t",
)
_GPT, _BERT, _RECURRENT = "GPT", "BERT", ("LSTM", "GRU")
_DTYPES, _REFERENCE = ("posit16es2",), "bfloat16"
_MEDIAN, _WORST, _RECURRENT_LIMIT = 1.25, 2.0, 1.7
_TOKENS = 128
_CLASSES = 10


class Bert(nn.Module):
    """A transformer's encoder over bytes, with logits for each, of shape ``(N, 256, T)``."""

    def __init__(self, layers: int = 12, width: int = 256) -> None:
        super().__init__()
        self.bytes, self.positions = nn.Embedding(VOCABULARY, width), nn.Embedding(_TOKENS, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, activation="gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers)
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.bytes(x) + self.positions(torch.arange(x.shape[1]))
        return self.head(self.encoder(x)).transpose(1, 2)


class Recurrent(nn.Module):
    """An LSTM or a GRU over bytes, with logits for each, of shape ``(N, 256, T)``."""

    def __init__(self, kind: str, width: int = 128) -> None:
        super().__init__()
        self.bytes = nn.Embedding(VOCABULARY, width)
        self.layer = getattr(nn, kind)(width, 2 * width, batch_first=True)
        self.head = nn.Linear(2 * width, VOCABULARY)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layer(self.bytes(x))[0]).transpose(1, 2)


def _build(name: str, side: int) -> nn.Module:
    if name == _GPT:
        return build_gpt(f"gpt(layers=12, heads=4, width=256, context={_TOKENS})")
    if name == _BERT:
        return Bert()
    if name in _RECURRENT:
        return Recurrent(name)
    size = {"image_size": side} if name == "vit_b_16" else {}
    return import_torchvision_models().get_model(name, weights=None, num_classes=_CLASSES, **size)


def _namespace(name: str, sizes: Sizes, dtype: torch.dtype) -> dict:
    """Return the variables of STEP: the same weights and inputs for every dtype."""
    with forked_generators():
        torch.manual_seed(0)
        model = _build(name, sizes.step_images).to(dtype)
        if name in IMAGES:
            side = sizes.step_images
            inputs = torch.rand(sizes.step_batch, 3, side, side).to(dtype)
            labels = torch.randint(_CLASSES, (sizes.step_batch,))
        else:
            inputs, labels = torch.randint(VOCABULARY, (2, sizes.step_batch, _TOKENS))
    return {
        "model": model,
        "optimizer": build_optimizer(Config(name), model.parameters()),
        "images": inputs,
        "labels": labels,
        "cross_entropy": nn.functional.cross_entropy,
    }


def _why_no_torchvision() -> str | None:
    """Return the reason why torchvision cannot be imported, or None."""
    try:
        import_torchvision_models()
    except (ImportError, RuntimeError) as error:
        return str(error).splitlines()[0]
    return None


def groups(sizes: Sizes, dtypes: Sequence[torch.dtype] | None) -> list[Group]:
    named = named_dtypes(dtypes, _DTYPES)
    cases = {"float32": torch.float32, _REFERENCE: torch.bfloat16, **named}
    images = () if _why_no_torchvision() else IMAGES

    def group(name: str) -> Group:
        limit = _RECURRENT_LIMIT if name in _RECURRENT else _WORST
        rows = [
            Row(_work(name, sizes), n, "float32", limit if n in _DTYPES else None)
            for n in cases
            if n != "float32"
        ]

        def spaces() -> dict[str, dict]:
            return {n: _namespace(name, sizes, d) for n, d in cases.items()}

        return Group(dict.fromkeys(cases, STEP), spaces, rows, rounds=5, quick_rounds=1)

    return [group(name) for name in (*images, _GPT, _BERT, *_RECURRENT)]


def _work(name: str, sizes: Sizes) -> str:
    return f"{name} step, batch {sizes.step_batch}"


def notes(sizes: Sizes) -> list[str]:
    why = _why_no_torchvision()
    return [f"torchvision: not imported ({why}): pip install torchvision"] if why else []


def sentences(rows: list[dict]) -> list[str]:
    """Tell the median and the worst ratio of each dtype over the networks."""
    lines = []
    for threads in dict.fromkeys(row["threads"] for row in rows):
        for dtype in dict.fromkeys(row["dtype"] for row in rows):
            ratios = {
                row["work"].split()[0]: row["ratio"]
                for row in rows
                if (row["dtype"], row["threads"]) == (dtype, threads)
                and not row["work"].startswith(_RECURRENT)
            }
            if not ratios:  # the run was interrupted
                continue
            worst = max(ratios, key=lambda name: ratios[name])
            target = f" (target {_MEDIAN})" if dtype in _DTYPES else ""
            lines.append(
                f"{dtype}, {threads} thread{'s' * (threads > 1)}: the median of {len(ratios)} "
                f"networks is {statistics.median(ratios.values()):.2f}{target}, the worst "
                f"{ratios[worst]:.2f}, {worst}."
            )
    return lines

"""The suite ``training``: a step of LeNet-5, AlexNet and ResNet-18 in a dtype."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..training.generators import forked_generators
from ..training.models import build_model
from ..training.recipes import build_optimizer
from ..training.records import Config
from .measuring import Group, Row, Sizes, named_dtypes

TITLES = {"lenet5": "LeNet-5", "alexnet": "AlexNet", "resnet18": "ResNet-18"}
STEP = "optimizer.zero_grad(); cross_entropy(model(images), labels).backward(); optimizer.step()"
_TARGETS = {"lenet5": 1.5, "alexnet": 1.5, "resnet18": 1.15}
_DTYPES = ("posit16es2", "q52")


def namespace(model: str, batch_size: int, dtype: torch.dtype) -> dict:
    """Return the variables of STEP: the same weights and images for every dtype."""
    channels = 1 if model == "lenet5" else 3
    with forked_generators():
        torch.manual_seed(0)
        network = build_model(model, channels).to(dtype)
        images, labels = (
            torch.rand(batch_size, channels, 32, 32).to(dtype),
            torch.randint(10, (batch_size,)),
        )
    optimizer = build_optimizer(Config(model), network.parameters())
    cross_entropy = torch.nn.functional.cross_entropy
    return {
        "model": network,
        "optimizer": optimizer,
        "images": images,
        "labels": labels,
        "cross_entropy": cross_entropy,
    }


def groups(sizes: Sizes, dtypes: Sequence[torch.dtype] | None) -> list[Group]:
    named = named_dtypes(dtypes, _DTYPES)

    def group(model: str, batch_size: int) -> Group:
        def spaces():
            return {
                name: namespace(model, batch_size, d)
                for name, d in {"float32": torch.float32, **named}.items()
            }

        work = f"{TITLES[model]} step, batch {batch_size}"
        rows = [Row(work, n, "float32", _TARGETS[model] if n in _DTYPES else None) for n in named]
        slow = model != "lenet5"
        return Group(
            dict.fromkeys(("float32", *named), STEP),
            spaces,
            rows,
            rounds=3 if slow else 40,
            quick_rounds=1 if slow else 5,
        )

    return [group(model, batch_size) for model, batch_size in sizes.networks]

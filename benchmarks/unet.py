"""Measures how many digits of a U-Net's Dice scores hold, class by class.

Usage: ``python benchmarks/unet.py OUT``. A small U-Net learns to segment generated images (discs
and squares on a bright ground, in noise) in float32. Then ``variability`` repeats its answers under
random rounding, and writes its page into OUT. The experiment follows the segmentation of brains by
Gonzalez-Pepe, Akhaddar, Glatard, Chatelain, "Fuzzy PyTorch" (arXiv 2605.25991), at a small size.
"""

from __future__ import annotations

import argparse

import torch
from torch import nn
from torch.nn import functional as F

from torch_dtypes import variability

CLASSES = ("ground", "disc", "square")
_SIDE = 32


def images(n: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Return images ``(n, 1, 32, 32)`` with a disc and a square each, and maps of labels."""
    line = torch.arange(_SIDE, dtype=torch.float32)
    y, x = line[:, None], line[None, :]
    labels = torch.zeros(n, _SIDE, _SIDE, dtype=torch.long)
    for map_ in labels:
        (cy, cx, top, left), radius = (
            torch.randint(7, _SIDE - 7, (4,), generator=generator),
            torch.randint(3, 7, (), generator=generator),
        )
        square = ((y - top).abs() <= radius - 1) & ((x - left).abs() <= radius - 1)
        map_[square] = 2
        map_[(y - cy) ** 2 + (x - cx) ** 2 <= radius**2] = 1
    shades = torch.tensor([1.0, 0.7, 0.4])[labels]
    noise = 0.2 * torch.randn(labels.shape, generator=generator)
    return (shades + noise)[:, None], labels


def _pair(inputs: int, outputs: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for channels in (inputs, outputs):
        layers += [
            nn.Conv2d(channels, outputs, 3, padding=1),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
        ]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """Ronneberger, Fischer, Brox, "U-Net" (2015), with two steps down and 8 to 32 channels."""

    def __init__(self, classes: int = len(CLASSES), width: int = 8) -> None:
        super().__init__()
        self.down1, self.down2 = _pair(1, width), _pair(width, 2 * width)
        self.bottom = _pair(2 * width, 4 * width)
        self.raise2 = nn.ConvTranspose2d(4 * width, 2 * width, 2, stride=2)
        self.up2 = _pair(4 * width, 2 * width)
        self.raise1 = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.up1 = _pair(2 * width, width)
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = self.down1(x)
        second = self.down2(F.max_pool2d(first, 2))
        bottom = self.bottom(F.max_pool2d(second, 2))
        x = self.up2(torch.cat([self.raise2(bottom), second], 1))
        return self.head(self.up1(torch.cat([self.raise1(x), first], 1)))


def train(steps: int, seed: int) -> UNet:
    """Train a network in float32 on images of batches of 16."""
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    model = UNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(steps):
        x, labels = images(16, generator)
        loss = F.cross_entropy(model(x), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", help="folder of the page, its tables and figures")
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--mode", default="stochastic")
    parser.add_argument("--level", default="operator", choices=("operator", "instruction"))
    parser.add_argument("--where", action="store_true", help="search for the modules responsible")
    options = parser.parse_args()
    model = train(options.steps, options.seed)
    x, labels = images(options.images, torch.Generator().manual_seed(options.seed + 1))
    found = variability(
        model,
        list(zip(x.split(16), labels.split(16), strict=True)),
        metrics=["dice"],
        repeats=options.repeats,
        seed=options.seed,
        mode=options.mode,
        level=options.level,
        where=options.where,
    )
    found.title = f"Dice of a U-Net: {', '.join(f'{i} {c}' for i, c in enumerate(CLASSES))}"
    found.print()
    found.write(options.out)


if __name__ == "__main__":
    main()

"""Measures what each ingredient of the recipe "nvfp4" is worth to a small language model.

    python benchmarks/nvfp4_ingredients.py --seeds 3 --steps 600

A GPT of two blocks learns Python's own reference texts, byte by byte. Each row is a way to round
the operands of its linear layers (but the last one); the number is the loss on the texts that were
held back, and its difference from float32's with the same seed. The paper: NVIDIA, "Pretraining
large language models with NVFP4" (arXiv 2509.25149), figure 4 and appendix E.
"""

from __future__ import annotations

import argparse
import copy
import statistics
from pydoc_data import topics

import torch
from torch import nn
from torch.nn import functional as F

import torch_dtypes
from torch_dtypes.quantization import RECIPES, recipe

WIDTH, HEADS, CONTEXT, BATCH = 64, 4, 64, 16


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.projection = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = self.qkv(self.before(x)).unflatten(-1, (3, HEADS, -1)).movedim(-3, 0)
        q, k, v = heads.transpose(-2, -3)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.projection(y.transpose(-2, -3).flatten(-2))
        return x + self.down(F.gelu(self.up(self.between(x))))


class GPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bytes, self.places = nn.Embedding(256, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(Block(), Block())
        self.last, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 256)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.bytes(x) + self.places.weight[: x.shape[1]]
        return self.head(self.last(self.blocks(x)))


def list_ways() -> dict[str, dict | None]:
    """Return the ways to round, by name: rules of a linear layer, None for float32."""
    whole = RECIPES["nvfp4"].rule

    def change(**others) -> dict:
        rule = copy.deepcopy(whole)
        for product, operands in others.items():
            rule[product] |= operands
        return rule

    plain = dict.fromkeys(("weight", "activation", "error"), "nvfp4")
    return {
        "float32": None,
        "nvfp4, the recipe": whole,
        "without the Hadamard transform": change(weight_grad={"transform": None}),
        "without stochastic rounding": change(
            input_grad={"error": "nvfp4"}, weight_grad={"error": "nvfp4"}
        ),
        "without blocks of 16x16": change(
            forward={"weight": "nvfp4"}, input_grad={"weight": "nvfp4"}
        ),
        "without any of them": plain,
        "rounded once for all products": plain | {"axis": -1},
    }


def train(rule: dict | None, seed: int, steps: int) -> float:
    """Return the loss on the held-back texts."""
    text = torch.tensor(list("\n".join(topics.topics.values()).encode()))
    train_text, held_back = text[: len(text) * 9 // 10], text[len(text) * 9 // 10 :]
    torch.manual_seed(seed)
    model = GPT()
    if rule is not None:
        rules = recipe("nvfp4", model)
        torch_dtypes.quantize_(model, {n: r and rule for n, r in rules.items()})
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, steps)
    draw = torch.Generator().manual_seed(seed)
    span = torch.arange(CONTEXT + 1)

    def batch(source: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        starts = torch.randint(len(source) - CONTEXT - 1, (count, 1), generator=draw)
        rows = source[starts + span]
        return rows[:, :-1], rows[:, 1:]

    def loss_of(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(model(x).flatten(0, 1), y.flatten())

    for _ in range(steps):
        loss = loss_of(*batch(train_text, BATCH))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    draw.manual_seed(0)
    with torch.no_grad():
        return loss_of(*batch(held_back, 512)).item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=600)
    options = parser.parse_args()
    torch.set_num_threads(1)
    first: list[float] = []
    print("| operands | loss | above float32's, by seed |\n|---|---|---|")
    for name, rule in list_ways().items():
        losses = [train(rule, seed, options.steps) for seed in range(options.seeds)]
        first = first or losses
        above = ", ".join(f"{a - b:+.3f}" for a, b in zip(losses, first, strict=True))
        print(f"| {name} | {statistics.mean(losses):.3f} | {above} |", flush=True)


if __name__ == "__main__":
    main()

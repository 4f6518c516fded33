"""Small networks that tests of compiled graphs train in our dtypes."""

import torch
import torch.nn.functional as F
from torch import nn


class LeNet5(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 6, 5), nn.Tanh(), nn.AvgPool2d(2), nn.Conv2d(6, 16, 5), nn.Tanh(), nn.AvgPool2d(2), nn.Conv2d(16, 120, 5), nn.Tanh()
        )  # fmt: skip
        self.classifier = nn.Sequential(nn.Flatten(), nn.Linear(120, 84), nn.Tanh(), nn.Linear(84, 10))

    def forward(self, x):
        return self.classifier(self.features(x))

    @staticmethod
    def batch(dtype, size=2):
        return torch.randn(size, 1, 32, 32).to(dtype)


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(11, 8), nn.Linear(8, 11)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.25, batch_first=True, activation="gelu")

    def forward(self, tokens):
        return self.head(self.layer(self.embed(tokens)))

    @staticmethod
    def batch(dtype, size=2):
        return torch.randint(0, 11, (size, 5))


def step(model, run, x):
    torch.manual_seed(3)  # of dropout
    model.zero_grad()
    y = run(x)
    loss = F.cross_entropy(y.flatten(0, -2), torch.zeros(y[..., 0].numel(), dtype=torch.long))
    loss.backward()
    return [y, loss, *(p.grad for p in model.parameters())]

"""A deep narrow residual network with batch normalisation, for
``torch-dtypes sweep --model deep_residual:relu``: what directed rounding does to it.

50 linear layers stand for the 50 convolutions of a ResNet-50 (He, Zhang, Ren and Sun,
arXiv:1512.03385, whose basic block this is): cheap to train, and as deep.
docs/reference/results.md has the figures.
"""

from torch import nn


class Block(nn.Module):
    """Two linear layers with batch normalisation, and the input added before the last
    activation."""

    def __init__(self, width, activation):
        super().__init__()
        self.residual = nn.Sequential(
            nn.Linear(width, width, bias=False),
            nn.BatchNorm1d(width),
            activation(),
            nn.Linear(width, width, bias=False),
            nn.BatchNorm1d(width),
        )
        self.activation = activation()

    def forward(self, x):
        return self.activation(x + self.residual(x))


def network(activation, blocks=24, width=256):
    """From images of 32 by 32 pixels to 10 logits."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(32 * 32, width),
        *(Block(width, activation) for _ in range(blocks)),
        nn.Linear(width, 10),
    )


def relu():
    return network(nn.ReLU)


def tanh():
    return network(nn.Tanh)

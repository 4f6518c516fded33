"""A deep narrow residual network with batch normalisation, to see the effect of directed rounding.

Use it by ``torch-dtypes sweep --model deep_residual:relu``. Its 50 linear layers stand for the 50
convolutions of a ResNet-50, with the same basic block (He, Zhang, Ren and Sun, arXiv:1512.03385).
It is cheap to train, and as deep. Results are in docs/reference/results.md.
"""

from torch import nn


class Block(nn.Module):
    """Two linear layers with batch normalisation; the input is added before the last activation."""

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
    """Make a network from images of 32 by 32 pixels to 10 logits."""
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

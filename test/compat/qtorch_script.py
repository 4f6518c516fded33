"""A script for QPyTorch, of the shape of its overview and of its example with stochastic weight
averaging: test_doors.py runs it through the door, as it stands."""

import sys

import torch
from qtorch import FixedPoint, FloatingPoint
from qtorch.auto_low import sequential_lower
from qtorch.optim import OptimLP
from qtorch.quant import Quantizer, fixed_point_quantize, quantizer
from torch import nn

torch.manual_seed(int(sys.argv[1]))
print(fixed_point_quantize(torch.tensor([0.3, 9.0]), wl=8, fl=4, rounding="nearest").tolist())
bit_8 = FloatingPoint(exp=5, man=2)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.quant = Quantizer(bit_8, bit_8, "nearest", "stochastic")
        self.conv, self.pool, self.head = nn.Conv2d(1, 8, 3), nn.MaxPool2d(2), nn.Linear(72, 2)

    def forward(self, x):
        x = self.quant(self.pool(torch.relu(self.conv(x))))
        return self.head(x.flatten(1))


def quant(number, rounding="stochastic"):
    return quantizer(forward_number=number, forward_rounding=rounding)


model = Net()
optimizer = OptimLP(
    torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9),
    weight_quant=quant(FixedPoint(wl=16, fl=13)),
    grad_quant=quant(bit_8),
    momentum_quant=quant(FloatingPoint(exp=6, man=9)),
    acc_quant=quant(FloatingPoint(exp=6, man=9)),
)
images = torch.randn(256, 1, 8, 8)
labels = (images[:, 0, 2:6, 2:6].mean((1, 2)) > 0).long()
for _ in range(60):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
lowered = sequential_lower(model, ["conv", "linear"], bit_8, forward_rounding="nearest")
share = (lowered(images).argmax(1) == labels).float().mean().item()
print(f"{share:.2f}", all((p * 2**13 == (p * 2**13).round()).all() for p in model.parameters()))

"""LeNet-5 on drawn images."""

import torch

from torch_dtypes.workbench.training.models import LeNet5


def train_lenet(dtype, device="cpu", epochs=2, images=64):
    """Return the weights, on the CPU, after some epochs by SGD with momentum."""
    torch.manual_seed(2)
    inputs, labels = torch.randn(images, 1, 32, 32).to(dtype), torch.randint(10, (images,))
    model = LeNet5().to(device, dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for _ in range(epochs):
        for x, y in zip(inputs.split(16), labels.split(16), strict=True):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x.to(device)), y.to(device)).backward()
            optimizer.step()
    return [p.detach().cpu() for p in model.parameters()]

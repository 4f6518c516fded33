"""LeNet-5 hardly learns with sums of two fraction bits, and learns with six, as
docs/accumulators.md says."""

import pytest
import torch
import torch.nn.functional as F

import torch_dtypes
from torch_dtypes.workbench.training.data import load_dataset
from torch_dtypes.workbench.training.models import build_model


def losses(accumulator, steps=40, size=8):
    """Of LeNet-5 in q43 on handwritten digits, with float32 masters; products and sums of both
    passes are rounded."""
    torch.manual_seed(0)
    data = load_dataset("digits", train_samples=steps * size).train
    model = build_model("lenet5", 1).to(torch.q43)
    optimizer = torch_dtypes.optim.LowPrecision(
        torch.optim.Adam(model.parameters(), 0.002), grad_scale="dynamic"
    )
    seen = []
    with torch_dtypes.accumulate("format", accumulator=accumulator):
        for images, labels in (data.batch(slice(i * size, (i + 1) * size)) for i in range(steps)):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images.to(torch.q43)).float(), labels)
            optimizer.scale(loss).backward()
            optimizer.step()
            seen.append(loss.item())
    return torch.tensor(seen)


@pytest.mark.slow
def test_lenet5_over_accumulators():
    """Guessing has a loss of ln 10 = 2.30. Five seconds each."""
    narrow, wide = losses("e6m2"), losses("e6m6")
    assert narrow[:30].mean() > 2.2 and narrow[-10:].mean() > 2.0
    assert wide[-10:].mean() < 1.7 and wide[-10:].mean() < narrow[-10:].mean() - 0.4

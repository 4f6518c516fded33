"""Losses of sharded tensors (DTensor): means over all ranks' elements, and their gradients, are one process's, whatever the sizes of the parts.
Reductions over dim=[], too, which PyTorch's sharding rules take for none."""

import pytest
import torch
import torch.distributed as dist
from ranks import DEVICE, together
from torch.nn import functional as F

from torch_dtypes._overlay import releases

pytestmark = [
    pytest.mark.skipif(not dist.is_available(), reason="torch is built without torch.distributed"),
    pytest.mark.skipif(not releases.SUBCLASSES_OF_DTENSOR_DISPATCH, reason="sums over ranks are refused before PyTorch 2.12"),
    pytest.mark.filterwarnings("ignore:.*(is deprecated|torch.jit|requires_grad=True to a scalar).*"),  # PyTorch's own
]
LOSSES = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "soft_margin_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits")


def losses(rank):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    mesh = init_device_mesh(DEVICE, (2,))
    for k, name in enumerate(LOSSES):
        loss, dtype = getattr(F, name), (torch.posit16es2, torch.q43)[k % 2]
        for rows, reduction in ((4, "mean"), (5, "mean"), (1, "mean"), (5, "sum")):  # parts alike, of two sizes, and one without elements
            x, y = torch.rand(2, rows, 3, generator=torch.Generator().manual_seed(rows)).to(dtype)
            x.requires_grad_()
            expected = loss(x, y, reduction=reduction)
            expected.backward()
            xs, ys = (distribute_tensor(t.detach(), mesh, [Shard(0)]) for t in (x, y))
            xs.requires_grad_()
            found = loss(xs, ys, reduction=reduction)
            found.backward()
            what = (name, dtype, rows, reduction)
            assert found.dtype is xs.grad.dtype is dtype and (xs.grad.placements == xs.placements or rows == 1), what
            # Parts of a sum are float32's, in the ranks' order.
            torch.testing.assert_close(found.full_tensor().double(), expected.double(), rtol=torch.finfo(dtype).eps, atol=0, msg=str(what))
            assert torch.equal(xs.grad.full_tensor(), x.grad), what


def test_losses(tmp_path):
    together(losses, tmp_path)


OVER_ALL = {
    "sum": lambda x, **k: x.sum(dim=[], **k), "mean": lambda x, **k: x.mean(dim=[], **k), "amax": lambda x, **k: x.amax(dim=(), **k),
    "amin": lambda x, **k: x.amin(dim=(), **k), "nansum": lambda x, **k: x.nansum(dim=[], **k), "var": lambda x, **k: x.var(dim=[], **k),
    "norm": lambda x, **k: torch.linalg.vector_norm(x, dim=[], **k),
}  # fmt: skip


def reductions(rank):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    mesh = init_device_mesh(DEVICE, (2,))
    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(0)).to(torch.posit16es2)
    for dim in (0, 1):
        xs = distribute_tensor(x, mesh, [Shard(dim)])
        for name, reduce in OVER_ALL.items():
            for keepdim in (False, True):
                found, expected = reduce(xs, keepdim=keepdim).full_tensor(), reduce(x, keepdim=keepdim)
                torch.testing.assert_close(found.double(), expected.double(), rtol=1e-3, atol=0, msg=name)
                assert found.dtype is torch.posit16es2 and found.shape == expected.shape, name


def test_reductions_over_no_named_dimension(tmp_path):
    together(reductions, tmp_path)

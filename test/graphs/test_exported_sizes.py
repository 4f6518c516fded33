"""torch.export of models in our dtypes whose sizes vary: programs with eager code's bits at sizes that no run before has seen."""

import new_process
import pytest
import torch
from capture import assert_same, layers_in_parts  # noqa: F401 (a fixture)
from networks import LeNet5, Transformer
from torch import nn
from torch.export import Dim
from torch.nn import functional as F

import torch_dtypes
from torch_dtypes._overlay import releases

pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated", "ignore::DeprecationWarning", "ignore::FutureWarning")  # PyTorch's own


def model_of(forward, dtype=torch.posit16es2):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)

    Model.forward = forward
    torch.manual_seed(0)
    return Model().to(dtype)


def expect_same(program, model, *cases):
    run = program.module()
    with torch.no_grad():
        for case in cases:
            for found, expected in zip(*map(torch.utils._pytree.tree_leaves, (run(*case), model(*case))), strict=True):
                assert_same(found, expected)


FRESH = """
import sys, torch
torch.backends.cudnn.allow_tf32 = False  # as in this process (devices.py)
run = torch.export.load(sys.argv[1] + "/p.pt2").module()
for x, expected in torch.load(sys.argv[1] + "/cases.pt", weights_only=True):
    found = run(x)
    assert found.dtype is expected.dtype and found.tolist() == expected.tolist(), x.shape
"""


@pytest.mark.usefixtures("layers_in_parts")
def test_networks(tmp_path):
    torch.manual_seed(0)
    lenet = LeNet5().to(torch.posit16es2).eval()
    program = torch.export.export(lenet, (LeNet5.batch(torch.posit16es2),), dynamic_shapes=({0: Dim("batch")},))
    batches = [LeNet5.batch(torch.posit16es2, n) for n in (1, 2, 3, 17)]
    expect_same(program, lenet, *((x,) for x in batches))
    torch.export.save(program, tmp_path / "p.pt2")
    torch.save([(x, lenet(x).detach()) for x in batches], tmp_path / "cases.pt")
    done = new_process.run("-c", FRESH, str(tmp_path))
    assert done.returncode == 0, done.stderr

    transformer = Transformer().to(torch.q43).eval()
    shortest = 1 if releases.RUNNING >= (2, 13) else 2  # for one token, PyTorch 2.11 has other operators
    sizes = {0: Dim.AUTO, 1: Dim("length", min=shortest, max=40)}
    program = torch.export.export(transformer, (Transformer.batch(torch.q43),), dynamic_shapes={"tokens": sizes})
    expect_same(program, transformer, *((torch.randint(0, 11, size),) for size in ((2, 5), (3, shortest), (7, 23))))


def pooled(self, x):
    return F.max_pool2d(F.avg_pool2d(F.interpolate(x, scale_factor=2), 2), 2, padding=1).flatten(1)


@pytest.mark.parametrize(
    "forward, shapes, sizes",
    [
        (lambda self, x: self.linear(x).mean(0) + x.sum() / x.shape[0], {0: Dim("n")}, [(1, 4), (9, 4)]),
        (lambda self, x: (x @ x.T).softmax(-1).T @ x, {0: Dim("n")}, [(1, 4), (9, 4)]),
        (lambda self, x: x * torch.arange(x.shape[0]).unsqueeze(1) + torch.zeros(x.shape[0], 1, dtype=x.dtype), {0: Dim.AUTO}, [(9, 4)]),
        (lambda self, x: (x.to(torch.q43).float() + x.float()).view(x.shape[0], -1, 2).to(torch.q52), {0: Dim("n")}, [(1, 4), (9, 4)]),
        (lambda self, x: torch.cat([x, x.view(2 * x.shape[0], 2).repeat(1, 2)]).flatten()[:-3], {0: Dim.DYNAMIC}, [(9, 4)]),
        (lambda self, x: self.linear(x) if x.shape[0] < 10 else x, {0: Dim.AUTO}, [(9, 4)]),
    ],
)
def test_functions(forward, shapes, sizes):
    model = model_of(forward)
    program = torch.export.export(model, (torch.randn(3, 4).to(torch.posit16es2),), dynamic_shapes=(shapes,))
    expect_same(program, model, *((torch.randn(size).to(torch.posit16es2),) for size in sizes))


@pytest.mark.skipif(releases.RUNNING < (2, 13), reason="PyTorch 2.11 takes even sizes alone here, in float32 too")
def test_images():
    model = model_of(pooled)
    shapes = {0: Dim("n"), 2: Dim("h", min=5, max=64), 3: Dim("w", min=5, max=64)}
    program = torch.export.export(model, (torch.randn(2, 3, 20, 22).to(torch.posit16es2),), dynamic_shapes=(shapes,))
    expect_same(program, model, *((torch.randn(size).to(torch.posit16es2),) for size in ((1, 3, 5, 21), (3, 3, 33, 14))))


def test_several_arguments():
    n = Dim("n")
    model = model_of(lambda self, x, *, y: {"sum": self.linear(x).repeat(2, 1) + y["y"], "s": y["s"] * 2})
    x = torch.randn(3, 4).to(torch.posit16es2)

    def given(size):
        x = torch.randn(size, 4).to(torch.posit16es2)
        return (x,), {"y": {"y": torch.randn(2 * size, 4).to(torch.posit16es2), "s": torch.randn(size)}}

    args, kwargs = given(3)
    program = torch.export.export(model, args, kwargs, dynamic_shapes={"x": {0: n}, "y": {"y": {0: 2 * n}, "s": {0: n}}})
    for size in (1, 8):
        args, kwargs = given(size)
        with torch.no_grad():
            found, expected = program.module()(*args, **kwargs), model(*args, **kwargs)
        assert_same(found["sum"], expected["sum"])
        assert_same(found["s"], expected["s"])
    added = model_of(lambda self, x, y: x + y)  # where the model, not a name, says that sizes are one
    run = torch.export.export(added, (x, x), dynamic_shapes=({0: Dim.AUTO}, {0: Dim.AUTO})).module()
    assert_same(run(x[:2], x[:2]), x[:2] + x[:2])
    with pytest.raises(AssertionError, match="size"):
        run(x, x[:2])


def test_training_mode():
    torch.manual_seed(0)
    model, x = nn.BatchNorm1d(4).to(torch.posit16es2), torch.randn(3, 4).to(torch.posit16es2)
    run = torch.export.export(model, (x,), dynamic_shapes=({0: Dim("n", min=2)},)).module()
    for size in (5, 2):
        x = torch.randn(size, 4).to(torch.posit16es2)
        assert_same(run(x).detach(), model(x).detach())
        assert torch.equal(run.running_mean, torch_dtypes.codes(model.running_mean))


@pytest.mark.parametrize(
    "forward, shape, error",
    [
        (lambda self, x: x * (1 / x.shape[0]), Dim.AUTO, "otherwise than by sums and products of them .0.33"),
        (lambda self, x: (x, x.shape[0]), Dim.AUTO, "a number that it returns"),
        (lambda self, x: x * torch.ones(x.shape[0], x.shape[0]).tril()[:, :1].to(x.dtype), Dim("n"), r"min=2"),
    ],
)
def test_what_depends_on_sizes(forward, shape, error):
    with pytest.raises(NotImplementedError, match=rf"torch\.posit16es2.*{error}"):
        torch.export.export(model_of(forward), (torch.randn(3, 4).to(torch.posit16es2),), dynamic_shapes=({0: shape},))


def test_what_stock_refuses():
    x = torch.randn(3, 4).to(torch.posit16es2)
    branch = model_of(lambda self, x: self.linear(x) if x.shape[0] < 10 else x)
    with pytest.raises(torch._dynamo.exc.UserError, match=r"n = Dim\('n', max=9\)"):
        torch.export.export(branch, (x,), dynamic_shapes=({0: Dim("n")},))
    bounded = torch.export.export(branch, (x,), dynamic_shapes=({0: Dim.AUTO},)).module()
    with pytest.raises(AssertionError, match="9"):
        bounded(torch.randn(10, 4).to(torch.posit16es2))
    loop = model_of(lambda self, x: sum(row for row in x))
    with pytest.raises(torch._dynamo.exc.UserError, match="n"):
        torch.export.export(loop, (x,), dynamic_shapes=({0: Dim("n")},))
    with pytest.raises(NotImplementedError, match="expected dynamic_shapes of tensors alone"):
        torch.export.export(model_of(lambda self, x, n: x * n), (x, 3), dynamic_shapes=({0: Dim.AUTO}, Dim.AUTO))

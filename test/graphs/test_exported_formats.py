"""torch.export of models in our dtypes: programs over codes with eager code's bits, in files that a process with torch alone reads and runs."""

import copy

import new_process
import pytest
import torch
from capture import assert_same, layers_in_parts  # noqa: F401 (a fixture)
from networks import LeNet5, Transformer
from torch import nn

import torch_dtypes

RUN_TIME = torch_dtypes.float_format(exp_bits=5, man_bits=6)
pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated", "ignore::DeprecationWarning", "ignore::FutureWarning")  # PyTorch's own


class Several(nn.Module):
    """Operators of several results, of lists, casts, numbers in the places of tensors, a buffer that is written to, structured operands."""

    def __init__(self):
        super().__init__()
        self.norm, self.fc = nn.BatchNorm1d(4), nn.Linear(4, 4)
        self.register_buffer("scale", torch.linspace(1, 2, 4), persistent=False)

    def forward(self, x, *, more, times=2):
        y = self.fc(self.norm(x)) * self.scale
        a, b = y.split([1, 3], 1)
        values, places = torch.cat([b, a, more["y"]], 1).to(torch.q43).max(1)
        y = torch.where(y > 1, 0.3, y) * torch.tensor([0.1, 0.2, 0.3, 0.4]).to(y.dtype)
        return {"y": (1 - y / times).clamp(min=-3), "found": (values, places), "float": more["s"] * y.float(), "none": None, "times": times}


def several(dtype):
    return Several().to(dtype), (torch.randn(3, 4).to(dtype),), {"more": {"y": torch.randn(3, 2).to(dtype), "s": torch.randn(())}}


def network(kind, dtype):
    return kind().to(dtype).eval(), (kind.batch(dtype),), {}


def cases():
    torch.manual_seed(0)
    yield "lenet", *network(LeNet5, torch.posit16es2)
    yield "transformer", *network(Transformer, torch.q43)
    yield "wide", *network(Transformer, torch.posit32es2)
    yield "several", *several(torch.posit16es2)
    yield "run-time format", *several(RUN_TIME)


def assert_all_same(found, expected):
    assert torch.utils._pytree.tree_structure(found) == torch.utils._pytree.tree_structure(expected)
    for a, b in zip(*map(torch.utils._pytree.tree_leaves, (found, expected)), strict=True):
        if isinstance(b, torch.Tensor):
            assert_same(a, b)
        else:
            assert a == b


FRESH = """
import sys, torch
from torch.utils import _pytree as pytree
torch.backends.cudnn.allow_tf32 = False  # as in this process (devices.py)
for name in sys.argv[1:]:
    args, kwargs, expected = torch.load(name + ".pt", weights_only=True)
    found = torch.export.load(name + ".pt2").module()(*args, **kwargs)
    for a, b in zip(pytree.tree_leaves(found), pytree.tree_leaves(expected), strict=True):
        assert a.dtype is b.dtype and (a.tolist() == b.tolist()) if isinstance(b, torch.Tensor) else a == b, name
    print(a.dtype if isinstance(a, torch.Tensor) else pytree.tree_leaves(found)[0].dtype)
"""


@pytest.mark.usefixtures("layers_in_parts")
def test_programs(tmp_path):
    files = []
    for name, model, args, kwargs in cases():
        program = torch.export.export(model, args, kwargs)
        assert not any(torch_dtypes.is_format_dtype(v.dtype) for v in program.state_dict.values())
        assert program.state_dict.keys() == model.state_dict().keys()
        torch.export.save(program, tmp_path / f"{name}.pt2")
        run = program.module()
        with torch.no_grad():
            expected = model(*args, **kwargs)
            assert_all_same(run(*args, **kwargs), expected)
            torch.save((args, kwargs, expected), tmp_path / f"{name}.pt")
            with torch_dtypes.rounding("up"):
                assert_all_same(run(*args, **kwargs), model(*args, **kwargs))
        files.append(str(tmp_path / name))
    done = new_process.run("-c", FRESH, *files)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["torch.posit16es2", "torch.q43", "torch.posit32es2", "torch.posit16es2", str(RUN_TIME)]


def test_written_buffers():
    torch.manual_seed(0)
    model, args, kwargs = several(torch.posit16es2)
    run = torch.export.export(copy.deepcopy(model), args, kwargs).module()  # the run that is recorded has written to nothing
    for _ in range(2):
        assert_all_same(run(*args, **kwargs), model(*args, **kwargs))
    for name in ("norm.running_mean", "norm.running_var", "norm.num_batches_tracked"):
        b = model.get_buffer(name)
        assert torch.equal(run.get_buffer(name), torch_dtypes.codes(b) if torch_dtypes.is_format_dtype(b.dtype) else b)


class Exchanging(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.q43))

    def forward(self, x):
        self.count = self.count + 1
        return x * self.count


def model_of(forward):
    class Model(nn.Module):
        pass

    Model.forward = forward
    return Model()


@pytest.mark.parametrize(
    "model, error",
    [(model_of(lambda self, x: x * x.sum().item()), "depends on values"), (model_of(lambda self, x: x[x > 0]), "depends on values"),
     (Exchanging(), "another tensor in the place of count"), (model_of(lambda self, x: x.add_(1)), "writes to an argument")],
)  # fmt: skip
def test_what_no_program_can_have(model, error):
    with pytest.raises(NotImplementedError, match=rf"expected a model whose operators.*torch\.q43.*{error}"):
        torch.export.export(model, (torch.ones(3, dtype=torch.q43),))


def test_options():
    x = torch.ones(3, dtype=torch.q43)
    model = model_of(lambda self, x: x * 2)
    assert_same(torch.export.export(model, (), {"x": x}, strict=True).module()(x=x), x * 2)
    with pytest.raises(NotImplementedError, match=r"expected no preserve_module_call_signature, but got \('',\)"):
        torch.export.export(model, (x,), preserve_module_call_signature=("",))
    with pytest.raises(NotImplementedError, match=r"draft_export, but got torch\.q43"):
        torch.export.draft_export(model, (x,))


def test_operands():
    x = torch.ones(3, dtype=torch.q43)
    run = torch.export.export(model_of(lambda self, x: x * 2), (x,)).module()
    assert_same(run(torch_dtypes.codes(x)), x * 2)
    for other in (torch.ones(3), torch.ones(3, dtype=torch.posit8es1)):
        with pytest.raises(TypeError, match=r"expected a tensor of torch\.q43, or its codes in torch\.uint8, but got one of"):
            run(other)
    with pytest.raises(AssertionError, match=r"3"):  # stock's
        run(torch.ones(4, dtype=torch.q43))


def test_factories():
    torch.manual_seed(0)
    made = model_of(lambda self, x: x + torch.zeros(3, dtype=torch.q43) + torch.full((3,), 0.3, dtype=torch.q43) * torch.ones(1, dtype=torch.q43))
    lstm, x = nn.LSTM(4, 3, num_layers=2).to(torch.q43), torch.randn(5, 2, 4).to(torch.q43)  # whose first state are zeros
    with torch.no_grad():
        for model, given in ((made, x[0, 0, :3]), (lstm, x)):
            assert_all_same(torch.export.export(model, (given,)).module()(given), model(given))


# ---- other forms of a program ----


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.norm, self.b = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4)
        self.b.weight = self.a.weight

    def forward(self, x):
        return self.b(self.norm(self.a(x)))


def test_other_forms():
    torch.manual_seed(0)
    model, x = Tied().to(torch.posit16es2), torch.randn(3, 4).to(torch.posit16es2)
    program = torch.export.export(copy.deepcopy(model), (x,))
    state = {name: codes.clone() for name, codes in program.state_dict.items()}  # which runs write to
    expected = [model(x) for _ in range(2)]  # in training mode, which writes to the statistics
    with torch.no_grad():
        for run in (copy.deepcopy(program).module(), program.run_decompositions().module(), torch.export.unflatten(program)):
            run.load_state_dict(state)
            for y in expected:
                assert_same(run(x), y.detach())
            assert torch.equal(run.get_buffer("norm.running_var"), torch_dtypes.codes(model.norm.running_var))


def test_a_module_in_several_places():
    """It was a KeyError, and the model had copies of its parameters from then on."""

    class Again(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([nn.BatchNorm1d(4)] * 2 + [nn.Linear(4, 4)])
            self.last = nn.Sequential(self.layers[0], self.layers[2])

        def forward(self, x):
            return self.last(self.layers[2](self.layers[1](self.layers[0](x))))

    torch.manual_seed(0)
    model, x = Again().to(torch.posit16es2).eval(), torch.randn(3, 4).to(torch.posit16es2)
    before = {name: (id(v), v.clone()) for name, v in model.state_dict(keep_vars=True).items()}
    program = torch.export.export(model, (x,))
    after = model.state_dict(keep_vars=True)
    assert all(id(after[name]) == number and torch.equal(after[name], v) for name, (number, v) in before.items())
    with torch.no_grad():
        assert_same(program.module()(x), model(x))


@pytest.mark.parametrize("form", [lambda p: p.module(), torch.export.unflatten])
def test_state_of_the_model(form):
    torch.manual_seed(0)
    x = torch.randn(3, 4).to(torch.posit16es2)
    program = torch.export.export(Tied().to(torch.posit16es2).eval(), (x,))
    other = Tied().to(torch.posit16es2).eval()
    run = form(program)
    run.load_state_dict(other.state_dict())
    with torch.no_grad():
        assert_same(run(x), other(x))
    for dtype in (torch.posit16es1, torch.float32):  # which the integers would take, rounded to integers
        with pytest.raises(TypeError, match=rf"expected a\.weight in torch\.posit16es2, or its codes.*but got {dtype}"):
            run.load_state_dict(Tied().to(dtype).state_dict())


# ---- gradients ----


def test_gradients_are_refused():
    torch.manual_seed(0)
    model, x = nn.Linear(4, 2).to(torch.q43), torch.randn(3, 4).to(torch.q43)
    program = torch.export.export(model, (x,))
    run = program.module()
    y = run(x)
    assert y.requires_grad  # as the model's
    with pytest.raises(RuntimeError, match=r"expected no gradients of an exported program, but got backward\(\) of its result of torch\.q43"):
        y.sum().backward()
    for given in (x, torch_dtypes.codes(x)):
        assert not torch.no_grad()(run)(given).requires_grad
    needing = x.clone().requires_grad_()
    with pytest.raises(RuntimeError, match=r"expected an input without requires_grad in an exported program, but got one of torch\.q43"):
        run(needing)
    with torch.no_grad():
        assert_same(run(needing), model(x))
    frozen = torch.export.export(model.requires_grad_(False), (x,)).module()
    assert not frozen(x).requires_grad
    beside = torch.export.export(model_of(lambda self, x, s: x * s.to(x.dtype)), (x, torch.ones(()))).module()
    with pytest.raises(RuntimeError, match=r"expected an input without requires_grad.* one of torch\.float32"):
        beside(x, torch.ones((), requires_grad=True))


def test_gradients_of_programs_are_refused():
    from torch.export.experimental import _export_forward_backward

    x = torch.ones(3, 4, dtype=torch.q43)
    program = torch.export.export(nn.Linear(4, 2).to(torch.q43), (x,))
    with pytest.raises(NotImplementedError, match="but got one of codes: a program of codes runs forward alone"):
        _export_forward_backward(program)


# ---- what rounds at random ----

STOCHASTIC = torch_dtypes.with_rounding(torch.q43, "stochastic")


class AtRandom(nn.Module):
    """Equal calls, one whose result nobody needs, casts, several results, and dropout."""

    def forward(self, x):
        x.tanh()
        twice = x * x - x * x
        parts = torch.cat([twice, twice]).split(2)
        return twice, (x.float() / 3).to(x.dtype), parts[0] * 1.1, torch.nn.functional.dropout(x, 0.5, True)


def seeded(f, *args):
    torch.manual_seed(5)
    return f(*args)


FRESH_AT_RANDOM = """
import sys, torch
x, expected = torch.load(sys.argv[1] + "/x.pt", weights_only=True)
run = torch.export.load(sys.argv[1] + "/p.pt2").module()
torch.manual_seed(5)
for a, b in zip(run(x), expected, strict=True):
    assert a.dtype is b.dtype and a.tolist() == b.tolist()
"""


def test_rounds_at_random(tmp_path):
    torch.manual_seed(0)
    model, x = AtRandom(), torch.randn(4, 16).to(STOCHASTIC)
    program = torch.export.export(model, (x,))
    run, expected = program.module(), seeded(model, x)
    assert_all_same(seeded(run, x), expected)
    assert any(a.tolist() != b.tolist() for a, b in zip(run(x), run(x), strict=True))
    assert seeded(run, x)[0].any()  # equal calls draw each for itself
    torch.export.save(program, tmp_path / "p.pt2")
    torch.save((x, expected), tmp_path / "x.pt")
    done = new_process.run("-c", FRESH_AT_RANDOM, str(tmp_path))
    assert done.returncode == 0, done.stderr
    varying = torch.export.export(model, (x,), dynamic_shapes=({1: torch.export.Dim.AUTO},)).module()
    assert_all_same(seeded(varying, x[:, :7].contiguous()), seeded(model, x[:, :7].contiguous()))


class OfArguments(nn.Module):
    def forward(self, x, s):
        return x, x.view(-1), x[1:], x.t()[0], x.expand(2, *x.shape), x.detach(), x * 2, s[1:], s


@pytest.mark.parametrize("varies", [False, True], ids=["one size", "sizes that vary"])
def test_results_that_are_arguments_or_views_of_them(tmp_path, varies):
    """What is written to them reaches the argument, as it does where the model itself runs."""
    size = torch.export.Dim("size", min=3)
    sizes = {"dynamic_shapes": {"x": {0: size}, "s": None}} if varies else {}
    program = torch.export.export(OfArguments(), (torch.ones(3, 4).to(torch.posit16es2), torch.ones(3)), **sizes)
    torch.export.save(program, tmp_path / "program.pt2")

    def look(run, rows):
        x, s = torch.linspace(-2, 2, 4 * rows).reshape(rows, 4).to(torch.posit16es2), torch.ones(3)
        results = run(x, s)
        seen = [(v is x, v is s, v._base is x, v._base is s, v._version - x._version) for v in results]
        for v in results[1:4]:
            v.mul_(2)
        results[7].add_(1)
        del seen[5]  # stock's decompositions make a view of what is detached
        return seen, [v.tolist() for v in results], x.tolist(), s.tolist()

    loaded = torch.export.load(tmp_path / "program.pt2")
    for run in (program.module(), program.run_decompositions().module(), loaded.module()):
        for rows in (3, 5) if varies else (3,):
            assert look(run, rows) == look(OfArguments(), rows)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.posit16es2], ids=str)
def test_models_made_under_a_default_dtype(dtype):
    torch.set_default_dtype(dtype)
    try:
        model, x = nn.Sequential(nn.Linear(3, 4), nn.ReLU()), torch.linspace(-1, 1, 6).reshape(2, 3)
        assert_same(torch.export.export(model, (x,)).module()(x).detach(), model(x).detach())
    finally:
        torch.set_default_dtype(torch.float32)

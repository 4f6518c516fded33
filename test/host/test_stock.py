"""Stock PyTorch keeps its bits, objects, graphs and errors when the package is loaded."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

import torch_dtypes
from torch_dtypes import _C

pytestmark = pytest.mark.one_worker

ROOT = Path(__file__).resolve().parents[2]

# Printed as JSON by one process with the package and by one without: {name: result}.
PROGRAM = r"""
import copy, hashlib, io, json, os, pickle, sys, warnings
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

warnings.simplefilter("ignore")
torch.set_num_threads(1)
assert ("torch_dtypes" in sys.modules) == (sys.argv[1] == "with")
answers = {"names of torch": sorted(n for n in vars(torch) if not n.startswith("__"))}


def digest(value):
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided:
            return [str(value.layout), digest(value.to_dense())]
        raw = value.detach().contiguous().resolve_conj().resolve_neg().flatten()
        raw = b"" if not raw.numel() else raw.view(torch.uint8).numpy().tobytes()
        grad = type(value.grad_fn).__name__ if value.grad_fn is not None else None
        facts = [
            str(value.dtype),
            list(value.shape),
            list(value.stride()),
            value.requires_grad,
            grad,
            str(value.device),
            type(value).__name__,
        ]
        return [*facts, hashlib.sha256(raw).hexdigest()[:16]]
    if isinstance(value, (tuple, list)):
        return [digest(v) for v in value]
    if isinstance(value, dict):
        return {str(k): digest(v) for k, v in value.items()}
    return repr(value)


def saved(value):
    file = io.BytesIO()
    torch.save(value, file)
    return hashlib.sha256(file.getvalue()).hexdigest()


def answer(name, function):
    torch.manual_seed(0)
    try:
        answers[name] = digest(function())
    except Exception as error:
        answers[name] = f"{type(error).__name__}: {error}"


def train(dtype):
    layers = (
        nn.Conv2d(1, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Dropout(0.1),
        nn.Flatten(),
        nn.Linear(36, 5),
    )
    model = nn.Sequential(*layers).to(dtype)
    optim = torch.optim.Adam(model.parameters(), 0.01)
    losses = []
    for _ in range(4):
        x = torch.rand(6, 1, 8, 8).to(dtype)
        optim.zero_grad()
        loss = F.cross_entropy(model(x), torch.randint(5, (6,)))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optim.step()
        losses.append(loss.detach())
    return (
        losses,
        model.state_dict(),
        [s for p in optim.state.values() for s in p.values()],
        [p.grad for p in model.parameters()],
    )


for dtype in (torch.float32, torch.float64, torch.bfloat16):
    answer(f"training in {dtype}", lambda: train(dtype))

F32, F64, BF, F16, I64, C64 = (
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.int64,
    torch.complex64,
)
for line in EXPRESSIONS:

    def evaluate(line=line):
        x = torch.randn(3, 4)
        r, d, b, m, c, i = (
            x.clone().requires_grad_(),
            x.double(),
            x.bfloat16(),
            x > 0,
            torch.complex(x, x),
            torch.tensor([2, 0, 1]),
        )
        return eval(line, {**globals(), **locals()})

    answer(line, evaluate)
    for default in (torch.float64, torch.bfloat16):
        if "default" not in line and line.startswith("torch."):
            torch.set_default_dtype(default)
            answer(f"{line} by default in {default}", evaluate)
            torch.set_default_dtype(torch.float32)
json.dump(answers, sys.stdout)
"""

EXPRESSIONS = """
torch.zeros(2, 3) | torch.zeros((2,), dtype=BF) | torch.ones(2, dtype=I64) | torch.empty(2, 3).shape
torch.empty_strided((2, 3), (1, 2)).stride() | torch.full((2,), 1.5) | torch.full((2,), 3)
torch.full((2,), True) | torch.full((2,), 1j)
torch.arange(5) | torch.arange(0, 1, 0.1) | torch.arange(5, dtype=BF) | torch.range(0, 3)
torch.linspace(0, 1, 7) | torch.logspace(0, 1, 5, dtype=F64) | torch.eye(3)
torch.eye(2, 3, dtype=F16) | torch.scalar_tensor(1.5) | torch.scalar_tensor(3)
torch.rand(3, 4) | torch.rand(3, dtype=BF) | torch.randn(5) | torch.randn(3, dtype=F64)
torch.randn(2, dtype=C64) | torch.randint(9, (5,)) | torch.randint(2, 9, (5,), dtype=F32)
torch.randperm(9) | torch.normal(0.0, 1.0, (4,)) | torch.normal(x, x.abs())
torch.bernoulli(x.sigmoid())
torch.tensor([1.5, 2]) | torch.tensor(3) | torch.tensor([True]) | torch.tensor([1j])
torch.tensor([1.5], dtype=BF, requires_grad=True) | torch.tensor(x)
torch.tensor([x[0, 0], x[0, 1]]) | torch.tensor(np.zeros(2)) | torch.as_tensor(x) is x
torch.as_tensor([1.0]) | torch.as_tensor(x, dtype=F64) | torch.asarray(x).data_ptr() == x.data_ptr()
torch.asarray([1.5])
torch.zeros_like(x) | torch.ones_like(x, dtype=BF) | torch.full_like(b, 1.3) | torch.rand_like(x)
torch.randn_like(b) | torch.randint_like(x, 7) | torch.empty_like(x.t()).stride() | x.new_zeros(2)
x.new_full((2,), 1.5, dtype=F64) | x.new_ones(2) | x.new_tensor([1.5])
x.new_tensor([1], dtype=I64) | x.new(2, 3).shape | x.new([1.5])
x.new_empty_strided((2, 3), (1, 2)).stride()
torch.hann_window(5) | torch.kaiser_window(4, dtype=F64) | torch.blackman_window(5, periodic=False)
torch.zeros(2, out=torch.empty(0)) | torch.arange(3, out=torch.empty(0, dtype=F64))
torch.rand(2, device="meta").shape | torch.zeros(2, dtype=F32, layout=torch.sparse_coo)
torch.zeros(2, dtype=torch.float8_e5m2fnuz)
x.to(F64) | x.to("cpu") is x | x.to(F32) is x | x.to(b) | r.to(F64) | r.to(BF).to(F32) | x.to(I64)
r.double() | r.bfloat16() | r.half() | x.float() is x | x.int() | x.bool() | x.to(C64)
x.to(F64, copy=True) | x.to(device="cpu", dtype=F16)
x.to(memory_format=torch.contiguous_format) is x | b.to(torch.float8_e5m2fnuz) | x.type() | b.type()
x.type(F64) | x.type("torch.DoubleTensor") | x.type(torch.DoubleTensor) | x.type_as(b)
r.type_as(d)
x.copy_(b) | d.copy_(x) | r.clone().copy_(d) | b.copy_(c.real) | torch.zeros(3, 4).copy_(r)
x.view(torch.int32) | b.view(torch.int16) | x.view(BF) | x.view(12) | c.view(F32)
torch.view_as_real(c) | x.set_(d.float()) | x.set_(x.untyped_storage(), 1, (2,))
x.set_(x.storage()) | x.resize_(2, 2) | x.t() | r.detach() | r.data | x.tolist() | x[0, 0].item()
x.numpy().dtype | b.numpy() | torch.from_dlpack(x) | x.__dlpack_device__() | np.asarray(x).dtype
x.sum() | x.sum(dtype=F64) | b.sum(1) | r.mean(0) | x.mean(dtype=F64) | torch.sum(i)
torch.prod(x, 1) | x.cumsum(0, dtype=F64) | x.softmax(1) | r.softmax(1, dtype=F64)
torch.log_softmax(b, 1) | torch.norm(x) | torch.linalg.norm(x, dtype=F64) | x.var(1) | x.std()
torch.nansum(x) | x.logcumsumexp(1) | F.softmax(x, 1, dtype=F64)
torch.promote_types(F16, BF) | torch.promote_types(I64, F32) | torch.promote_types(C64, F64)
torch.result_type(x, 1.5) | torch.result_type(b, d) | torch.result_type(1, 2.5)
torch.result_type(i, 1j) | torch.can_cast(F32, I64) | torch.can_cast(torch.bool, F16)
torch.get_default_dtype() | torch.finfo(F16) | torch.finfo(torch.float8_e5m2fnuz)
torch.iinfo(torch.int8) | F32.is_floating_point | C64.to_real() | F16.to_complex() | I64.is_signed
BF.itemsize | pickle.loads(pickle.dumps(BF)) | repr(F32)
x + b | x * 2 | i + 1.5 | x @ x.t() | b @ b.t() | torch.addmm(x[:, :3], x, x.t())
torch.einsum("ij,kj->ik", d, d) | torch.cat([x, b]) | torch.stack([x, d.float()])
torch.where(m, x, 0.0) | x[m] | x[i] | x[:, 1] | x.sort(1) | x.topk(2) | x.gather(1, i[:, None])
torch.lerp(x, x + 1, 0.3) | torch.addcmul(x, x, x) | torch.addcdiv(x, x, x + 2) | x.sqrt() | 1 / x
1 - x | x.reciprocal() | x.fill_(1.5) | b.fill_(1.3) | x.zero_() | x.masked_fill(m, 2)
x.index_put((i,), x[0]) | x.isfinite() | torch.isclose(x, x) | torch.allclose(x, x)
torch.equal(x, b) | x.is_nonzero()
F.conv2d(x[None, None], x[None, None, :2, :2]) | F.linear(x, x) | F.cross_entropy(x, i) | F.gelu(r)
F.layer_norm(b, (4,)) | F.max_pool1d(x, 2)
F.scaled_dot_product_attention(x[None], x[None], x[None])
F.interpolate(x[None, None], scale_factor=2, mode="bilinear") | F.embedding(i, x) | F.dropout(x)
nn.LSTM(4, 3)(x[None])[0] | nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).eval()(x[None])
torch.fft.fft(x) | torch.linalg.inv(x[:, :3]) | torch.linalg.svd(x).S.abs()
(torch.cond(x.sum() > 0, lambda t: t * 2, lambda t: t - 1, (x,)))
(torch.while_loop(lambda n, t: n < 3, lambda n, t: (n + 1, t * 1.5), (torch.tensor(0), x)))
(torch._higher_order_ops.scan(lambda a, t: (a + t, a * t), x[0], x))
(torch._higher_order_ops.map(lambda t: t * 2, x))
torch.while_loop is torch._higher_order_ops.while_loop
torch.autograd.grad(r.to(F64).sum(), r) | torch.autograd.grad((r * d).sum(), r)
torch.autograd.grad(r.bfloat16().float().sum(), r) | torch.func.vmap(lambda t: t * 2)(x)
torch.func.grad(lambda t: (t * t).sum())(x) | torch.func.jvp(torch.sin, (x,), (x,))
torch.jit.script(nn.Linear(4, 2))(x)
torch.jit.trace(lambda t: t.to(F64) + torch.zeros(4), (x,))(x)
torch.jit.trace(lambda t: t.sum(dtype=F64), (x,)).graph_for(x).__class__
nn.Linear(2, 2, dtype=F64).weight | nn.Linear(2, 2).to(F64).weight
nn.Linear(2, 2).to("cpu", BF).weight | nn.Linear(2, 2).half().bias | nn.Linear(2, 2).type(F64).bias
nn.Linear(2, 2).to(d).weight | nn.Linear(2, 2).to(memory_format=torch.channels_last).weight
copy.deepcopy(nn.Linear(2, 2)).weight | pickle.loads(pickle.dumps(x))
pickle.loads(pickle.dumps(r)) | copy.deepcopy(r) | copy.copy(x)
len(pickle.dumps({"a": b, "d": F32}))
saved({"x": x, "p": nn.Parameter(x)})
repr(x) | repr(r.to(F64)) | repr(b) | torch.get_default_dtype() | x.is_floating_point()
torch.is_floating_point(b) | x.dtype.__reduce__() | x.untyped_storage().nbytes() | x.storage().dtype
x.to_sparse() | x.to_sparse_csr() | torch.quantize_per_tensor(x, 0.1, 0, torch.qint8).int_repr()
torch.nested.nested_tensor([x[0], x[1, :2]]).size(0) | torch.empty(2, device="meta", dtype=BF).dtype
torch.autocast("cpu", dtype=BF).__enter__() and x @ x.t() | x.share_memory_().is_shared()
torch.utils.data.default_collate([x, x])
"""

# Mistakes in stock code, whose errors may not change.
MISTAKES = """
torch.while_loop(1, 2, 3) | torch.zeros("a") | torch.zeros(2, dtype=3)
torch.zeros(2, dtype="float32") | torch.zeros() | torch.ones(-1) | torch.tensor()
torch.tensor("a") | torch.tensor([[1], [1, 2]]) | torch.full((2,), "a") | torch.full((2,))
torch.arange() | torch.arange(0, 1, 0) | torch.linspace(0, 1, -1) | torch.eye(-1) | torch.rand("a")
torch.randint(3) | torch.empty_strided((2,)) | torch.zeros_like(3) | torch.zeros_like()
torch.full_like(x)
x.to("nowhere") | x.to(3.5) | x.to(F32, F32) | x.to() is x | x.type("torch.NoTensor") | x.view(5)
x.view(torch.int64, 3) | x.new_zeros() | x.new_zeros("a") | x.new_tensor() | x.new("a") | x.set_(1)
x.set_(d) | r.numpy() | r.requires_grad_().tolist().__class__ | x.item() | c.to(F32).dtype
x.double(3) | torch.promote_types(F32) | torch.promote_types(F32, 1) | torch.result_type(1)
torch.can_cast(F32) | torch.set_default_dtype(I64) | torch.set_default_dtype("a") | torch.finfo(I64)
torch.iinfo(F32) | torch.finfo("a") | torch.finfo(1, 2) | I64.to_complex()
x.sum(dtype="a") | torch.softmax(x) | torch.sum(x, dtype=I64) | torch.mean(i) | x + "a" | x @ d
torch.cat([x, "a"]) | r.add_(1) | x[7] | x.copy_(torch.ones(7)) | torch.as_tensor(object())
torch.asarray(object()) | x.masked_fill(m, "a") | nn.Linear(2, 2).to(I64) | nn.Linear(2, 2).to("a")
pickle.loads(b"\\x80\\x04.") | x.__dlpack__(stream="a") | r.__dlpack__() | torch.from_dlpack(3)
torch.normal(0.0, -1.0, (2,)) | torch.hann_window(-1) | torch.scalar_tensor("a")
torch.logspace(0, 1) | x.fill_("a") | torch.empty(2, memory_format="a") | torch.zeros(2, out=3)
torch.zeros(2, dtype=F32, out=d) | torch.isclose(x, d) | torch.allclose(x, i)
"""


def split(text):
    return [e for line in text.splitlines() for e in map(str.strip, line.split(" | ")) if e]


def run(program, *arguments, **environment):
    env = {**os.environ, **environment}
    if env.get("TORCH_DEVICE_BACKEND_AUTOLOAD") != "0":
        program = f"import torch; torch.q43\n{program}"  # loads the package
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
        env=env,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def answers():
    program = PROGRAM.replace("EXPRESSIONS", repr(split(EXPRESSIONS) + split(MISTAKES)))
    with ThreadPoolExecutor(2) as pool:
        ours = pool.submit(run, program, "with")
        theirs = pool.submit(run, program, "without", TORCH_DEVICE_BACKEND_AUTOLOAD="0")
        return json.loads(ours.result()), json.loads(theirs.result())


@pytest.mark.whole
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_training_gives_the_same_bits(answers, dtype):
    ours, theirs = (a[f"training in torch.{dtype}"] for a in answers)
    assert not isinstance(theirs, str) and ours == theirs


@pytest.mark.parametrize("expression", split(EXPRESSIONS))
def test_expression_gives_the_same_bits_dtypes_strides_and_graph(answers, expression):
    ours, theirs = answers
    named = [
        key for key in theirs if key == expression or key.startswith(f"{expression} by default")
    ]
    assert named and not str(theirs[expression]).startswith(
        ("NameError", "SyntaxError", "AttributeError")
    )
    for key in named:
        assert ours[key] == theirs[key], key


@pytest.mark.parametrize("expression", split(MISTAKES))
def test_error_has_the_same_words(answers, expression):
    ours, theirs = answers
    assert ours[expression] == theirs[expression]


# Objects


def test_builtins_are_the_same_objects():
    functions = torch._C._VariableFunctions
    names = (
        "zeros ones empty full arange linspace eye rand randn randint tensor as_tensor asarray "
        "sum softmax zeros_like promote_types result_type"
    )
    for name in names.split():
        assert getattr(torch, name) is getattr(functions, name), name
        assert (
            type(getattr(torch, name)).__name__ == "builtin_function_or_method"
            and getattr(torch, name).__name__ == name
        )
        assert getattr(torch, name).__doc__
    base = torch._C.TensorBase
    for name in "to type view float double set_ new_zeros new_tensor sum numpy tolist".split():
        assert (
            type(vars(base)[name]).__name__ == "method_descriptor"
            and vars(base)[name].__objclass__ is base
        ), name
    assert torch.Tensor.to is torch._C.TensorBase.to and torch.ones(1).to.__self__ is not None
    assert type(base.dtype).__name__ == "getset_descriptor"


def test_overrides_know_the_builtins():
    table = torch.overrides.get_testing_overrides()
    for function in (
        torch.zeros_like,
        torch.sum,
        torch.Tensor.to,
        torch.Tensor.type,
        torch.softmax,
    ):
        assert function in table
    assert torch.zeros in torch.overrides.get_ignored_functions()


class Recorder(torch.overrides.TorchFunctionMode):
    def __init__(self):
        self.seen = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.seen.append(function)
        return function(*args, **(kwargs or {}))


def test_modes_and_subclasses_see_the_same_functions():
    with Recorder() as recorder:
        x = torch.zeros(2, dtype=torch.float32)
        x.to(torch.float64)
        torch.zeros_like(x)
        torch.sum(x, dtype=torch.float64)
    assert recorder.seen == [torch.zeros, torch.Tensor.to, torch.zeros_like, torch.sum]


def test_namespace_gains_the_dtypes_only(answers):
    ours, theirs = (set(each["names of torch"]) for each in answers)
    assert theirs <= ours
    assert ours - theirs == {str(d).removeprefix("torch.") for d in torch_dtypes.builtin_dtypes()}


@pytest.mark.whole
def test_warnings_and_threads_are_as_before():
    code = (
        "import torch, sys; print(torch.get_num_threads(), torch.get_default_dtype(), "
        "torch.is_grad_enabled(), torch.initial_seed())"
    )
    ours, theirs = run(code), run(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert ours.split()[:3] == theirs.split()[:3]


# TorchScript, torch.compile, dispatch


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_torchscript_of_stock_code():
    @torch.jit.script
    def function(x: torch.Tensor, dtype: int):
        y = torch.zeros([2], dtype=torch.float64) + x.to(torch.float64).sum()
        return (
            y.to(dtype),
            torch.ones_like(x),
            x.new_zeros([2]),
            torch.tensor([1.5]),
            torch.softmax(x, 0, dtype=torch.float32),
        )

    made = function(torch.ones(3), 7)
    assert [t.dtype for t in made] == [
        torch.float64,
        torch.float32,
        torch.float32,
        torch.float32,
        torch.float32,
    ]
    assert made[0].tolist() == [3.0, 3.0]


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_traced_graphs_hold_the_stock_operators():
    traced = torch.jit.trace(
        lambda x: x.to(torch.float64).sum(dtype=torch.float32) + torch.zeros(2), (torch.ones(3),)
    )
    assert {n.kind() for n in traced.graph.nodes()} >= {
        "aten::to",
        "aten::sum",
        "aten::zeros",
        "aten::add",
    }
    assert traced(torch.ones(3)).tolist() == [3.0, 3.0]


@pytest.mark.whole
def test_fake_tensors_and_compiled_functions_of_stock_code():
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode():
        x = torch.zeros(2, dtype=torch.bfloat16)
        assert (x.to(torch.float32) + 1).dtype is torch.float32
    code = """
import torch

f = torch.compile(
    lambda x: (x.to(torch.float64) + torch.zeros(3)).sum(dtype=torch.float32),
    backend="eager",
    fullgraph=True,
)
print(f(torch.ones(3)).item())
"""
    assert run(code).strip() == "3.0"


@pytest.mark.whole
def test_collectives_of_stock_code_stay_in_whole_graphs():
    code = """
import torch, torch.distributed as dist
import torch.distributed._functional_collectives as collectives

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
whole = torch.compile(
    lambda x: collectives.all_reduce(x * 2, "sum", dist.group.WORLD) + 1,
    backend="eager",
    fullgraph=True,
)
print(whole(torch.ones(2)).tolist())
"""
    assert run(code).strip() == "[3.0, 3.0]"


def test_names_in_the_graph_of_stock_casts():
    x = torch.ones(2, requires_grad=True)
    casts = {
        "ToCopyBackward0": x.bfloat16(),
        "CloneBackward0": x.clone(),
        "CopyBackwards": torch.zeros(2).copy_(x),
        "ViewBackward0": x.view(2, 1),
    }
    for name, made in casts.items():
        assert type(made.grad_fn).__name__ == name
    assert str(x.to(torch.float64).grad_fn).startswith("<ToCopyBackward0 object at")


def test_stock_tensors_are_no_format_tensors():
    for dtype in (
        torch.float32,
        torch.bfloat16,
        torch.float8_e5m2fnuz,
        torch.float64,
        torch.int16,
        torch.uint8,
    ):
        t = torch.zeros(2, dtype=dtype)
        assert (
            t.dtype is dtype
            and not _C.is_format_tensor(t)
            and not _C.is_format_tensor(t.view(torch.uint8))
        )


@pytest.mark.whole
def test_a_stock_call_runs_no_more_python():
    """benchmarks/stock_overhead.py measures the cost of the C++ code in front of it."""
    code = """
import sys, torch
x, events = torch.ones(2), []
calls = [lambda: torch.zeros(2), lambda: x.to(torch.float32), lambda: x.dtype]
calls += [lambda: torch.sum(x), lambda: torch.zeros_like(x), lambda: x + x]
def note(frame, event, argument):
    name = getattr(argument, "__name__", "")
    events.append(f"{event} {frame.f_code.co_name} {name}".strip())
for call in calls:  # what a first call imports
    call()
for call in calls:
    sys.setprofile(note)
    call()
    sys.setprofile(None)
print("\\n".join(events))
"""
    ours, theirs = run(code), run(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert ours == theirs and "c_call <lambda> zeros" in ours

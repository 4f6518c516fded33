"""Impossible requests raise a clear exception. No input ends the process or returns the storage
dtype."""

import itertools
import json
import os
from pathlib import Path

import blame
import new_process
import pytest
import torch

import torch_dtypes

pytestmark = pytest.mark.one_worker

ROOT = Path(__file__).resolve().parents[2]
NAMES = ["posit16es2", "q43", "e11m30"]

# The program that makes the calls in child processes. A parent notices a child that dies by a
# signal, and goes on with the next call. A child ends after a call that changes the state of the
# process.
RUNNER = r"""
import gc, json, os, signal, sys, warnings
import torch, torch_dtypes, numpy as np, math, copy
import torch.nn as nn, torch.nn.functional as F
from torch.utils.data import default_collate
from torch.autograd import forward_ad
import torch._dynamo, torch.distributions, torch.export, torch.func
import torch.fx.experimental.proxy_tensor, torch.nested, torch.optim
import torch._functorch.aot_autograd, torch.utils.flop_counter

torch.set_num_threads(1)
warnings.simplefilter("ignore")
name, calls = sys.argv[1], json.load(sys.stdin)
D = torch_dtypes.dtype(name)
C = {1: torch.float8_e5m2fnuz, 2: torch.bfloat16, 4: torch.float32, 8: torch.float64}[D.itemsize]
B = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[D.itemsize]
aten = torch.ops.aten


def seen(value):
    if isinstance(value, torch.Tensor):
        return [
            [
                str(value.dtype),
                torch_dtypes._C.is_format_tensor(value),
                value.dtype.is_floating_point,
            ]
        ]
    if isinstance(value, torch.nn.Module):
        return [x for p in value.parameters() for x in seen(p)]
    if isinstance(value, dict):
        value = list(value.values())
    return [x for v in value for x in seen(v)] if isinstance(value, (list, tuple)) else []


def run(code):
    torch.manual_seed(0)
    s = torch.tensor([1.25, -2.0, 3.0, 0.5])
    i = torch.tensor([0, 2, 1, 3])
    b = torch.tensor([True, False, True, True])
    x = s.to(D)
    u = x.abs()
    m = (torch.eye(3) * 3 + 0.5).to(D)
    sm = m.float()
    img = torch.ones(1, 2, 6, 6).to(D)
    l = x.clone().requires_grad_()
    q = s.to(torch.q52)
    scope = {**globals(), **locals()}
    try:
        value = (exec(code, scope), scope.get("r"))[1] if ";" in code else eval(code, scope)
        return ["returned", seen(value)]
    except Exception as error:
        return ["raised", f"{type(error).__name__}: {str(error)[:300]}"]


gc.freeze()
answers = []
while len(answers) < len(calls):
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        for code in calls[len(answers) :]:
            signal.alarm(60)
            os.write(write, (json.dumps(run(code)) + "\n").encode())
            if any(
                trace in code
                for trace in ("__enter__", "set_", "compile", "export", "script", "resize_")
            ):
                break
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        answers += [[0, json.loads(line)] for line in pipe]
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status:
        answers.append([status, None])
json.dump(answers, sys.stdout)
"""

# Every floating tensor that comes back must have the dtype D. test/conformance runs the operators
# and modules of PyTorch's databases.
STAYS = """
aten.zeros([2], dtype=D) | aten.ones([2], dtype=D) | aten.empty([2], dtype=D)
aten.full([2], 1.5, dtype=D) | aten.arange(5, dtype=D)
aten.linspace(0, 1, 3, dtype=D) | aten.logspace(0, 1, 3, dtype=D) | aten.eye(3, dtype=D)
aten.rand([2], dtype=D) | aten.randn([2], dtype=D)
aten.randint(5, [2], dtype=D) | aten.randperm(4, dtype=D) | aten.scalar_tensor(1.5, dtype=D)
aten.zeros_like(s, dtype=D) | aten.ones_like(s, dtype=D)
aten.empty_like(s, dtype=D) | aten.full_like(s, 1.5, dtype=D) | aten.rand_like(s, dtype=D)
aten.randn_like(s, dtype=D) | aten.randint_like(s, 5, dtype=D)
aten._to_copy(s, dtype=D) | aten._to_copy(i, dtype=D) | aten.new_zeros(s, [2], dtype=D)
aten.new_empty(s, [2], dtype=D) | aten.new_full(s, [2], 1.5, dtype=D)
aten.new_ones(s, [2], dtype=D) | aten.new_empty_strided(s, [2], [1], dtype=D)
aten.empty_strided([2], [1], dtype=D) | aten.hann_window(4, dtype=D)
aten.to.dtype(s, D) | aten.to.device(s, "cpu", D) | aten.to.dtype_layout(s, dtype=D)
aten.sum(s, dtype=D) | aten.sum.dim_IntList(s, [0], dtype=D)
aten.mean(s, dtype=D) | aten.mean.dim(s, [0], dtype=D) | aten.prod(s, dtype=D)
aten.prod.dim_int(s, 0, dtype=D) | aten.cumsum(s, 0, dtype=D)
aten.cumprod(s, 0, dtype=D) | aten.softmax.int(s, 0, D) | aten.log_softmax.int(s, 0, D)
aten.nansum(s, dtype=D) | aten.norm.ScalarOpt_dtype(s, 2, dtype=D)
aten.norm.ScalarOpt_dim_dtype(s, 2, [0], False, dtype=D) | aten.linalg_vector_norm(s, 2, dtype=D)
aten.linalg_norm(s, 2, dtype=D)
aten.linalg_matrix_norm(sm, dtype=D) | aten.view.dtype(torch.zeros(4, dtype=B), D)
aten.view_copy.dtype(torch.zeros(4, dtype=B), D)
aten.tril_indices(3, 3, 0, dtype=D) | aten.triu_indices(3, 3, 0, dtype=D)
aten.normal.float_float(0.0, 1.0, [2], dtype=D) | aten.kaiser_window(4, dtype=D)
aten.fft_fftfreq(4, dtype=D) | aten.range(0, 3, dtype=D) | aten.to_dense(s, dtype=D)
aten.to_mkldnn(s, D) | aten.zeros([2], dtype=D, device="meta")
aten.empty_permuted([2], [0], dtype=D) | torch.ops.prims.convert_element_type(s, D)
aten.sum.out(s, dtype=D, out=x) | aten.sum.IntList_out(s, [0], dtype=D, out=x[0])
aten.cumsum.out(s, 0, dtype=D, out=x) | aten.zeros.out([2], out=x)
aten.sum(x, dtype=D) | aten.zeros_like(x) | aten.zeros_like(x, dtype=D) | aten._to_copy(x)
aten._to_copy(x, dtype=D) | aten.new_zeros(x, [2]) | aten.clone(x)
torch.sum(s, dtype=D) | torch.mean(s, dtype=D) | torch.prod(s, dtype=D)
torch.cumsum(s, 0, dtype=D) | torch.cumprod(s, 0, dtype=D) | s.sum(dtype=D)
s.mean(0, dtype=D) | s.softmax(0, dtype=D) | torch.softmax(s, 0, dtype=D) | torch.softmax(s, 0, D)
F.softmax(s, 0, dtype=D) | F.log_softmax(s, 0, dtype=D)
F.softmin(s, 0, dtype=D) | torch.special.softmax(s, 0, dtype=D)
torch.special.log_softmax(s, 0, dtype=D) | torch.nansum(s, dtype=D) | torch.nanmean(s, dtype=D)
torch.norm(s, dtype=D) | torch.norm(s, 1, 0, dtype=D) | torch.linalg.norm(s, dtype=D)
torch.linalg.vector_norm(s, dtype=D) | torch.linalg.matrix_norm(sm, dtype=D)
torch.masked.sum(s, dtype=D) | torch.masked.mean(s, mask=b, dtype=D)
torch.masked.softmax(s, 0, dtype=D) | torch.masked.norm(s, 2, 0, dtype=D)
torch.masked.cumsum(s, 0, dtype=D)
torch.sum(i, dtype=D) | torch.mean(i, dtype=D) | torch.mean(b, dtype=D)
torch.cumsum(b, 0, dtype=D) | torch.sum(x, dtype=D) | torch.softmax(x, 0, dtype=D)
torch.cumsum(x, 0, dtype=D)
torch.fft.fftfreq(4, dtype=D) | torch.fft.rfftfreq(4, dtype=D) | torch.tril_indices(3, 3, dtype=D)
torch.randperm(3, dtype=D) | torch.vander(x) | torch.from_file("f", size=0, dtype=D)
torch.frombuffer(bytearray(8), dtype=D) | torch.sparse_coo_tensor([[0, 1]], [1.0, 2.0], dtype=D)
torch.sparse_coo_tensor([[0, 1]], x[:2]) | torch.sparse_coo_tensor((2, 2), dtype=D)
torch.sparse_csr_tensor([0, 1, 2], [0, 1], [1.0, 2.0], dtype=D)
torch.sparse_csr_tensor([0, 1, 2], [0, 1], x[:2])
torch.sparse_csc_tensor([0, 1, 2], [0, 1], x[:2])
torch.sparse_bsr_tensor([0, 1], [0], m[None], dtype=D)
torch.sparse_compressed_tensor([0, 1, 2], [0, 1], x[:2], layout=torch.sparse_csr) | x.to_sparse()
m.to_sparse_csr() | m.to_sparse_bsr((1, 1))
torch.zeros(2, dtype=D, layout=torch.sparse_coo)
torch.empty(2, 2, dtype=D, layout=torch.sparse_csr) | torch.zeros(2, dtype=D, layout=torch._mkldnn)
x.to_mkldnn() | x.to_dense() | x.to_dense(dtype=D)
x.to(torch.sparse_coo) | torch.zeros_like(x, layout=torch.sparse_coo) | s.to_sparse().to(D)
s.to_sparse().to_dense(dtype=D) | torch.sparse.mm(sm.to_sparse(), m)
torch.sparse.sum(s.to_sparse(), dtype=D)
torch.sparse.softmax(sm.to_sparse(), 0, dtype=D)
torch.sparse.log_softmax(sm.to_sparse(), 0, dtype=D) | x + s.to_sparse()
x.sparse_mask(s.to_sparse()) | torch.sparse.spdiags(x[None], torch.tensor([0]), (4, 4))
torch.nested.nested_tensor([[1.0], [2.0, 3.0]], dtype=D) | torch.nested.nested_tensor([x, x[:2]])
torch.nested.as_nested_tensor([x, x[:2]])
torch.nested.nested_tensor([x, x[:2]], layout=torch.jagged)
torch.nested.nested_tensor([s, s[:2]], layout=torch.jagged, dtype=D)
torch.nested.nested_tensor([s, s[:2]]).to(D)
torch.nested.nested_tensor_from_jagged(x, torch.tensor([0, 2, 4]))
torch.nested.nested_tensor_from_jagged(x, torch.tensor([0, 2, 4])) * 2
F.linear(torch.nested.nested_tensor([sm, sm[:1]]), m) | m @ torch.nested.nested_tensor([sm, sm[:1]])
torch.matmul(torch.nested.nested_tensor([sm, sm[:1]]), m, out=m)
nn.Linear(3, 2).to(D)(torch.nested.nested_tensor([sm, sm[:1]]))
F.scaled_dot_product_attention(torch.nested.nested_tensor([sm, sm[:1]]), m[None], m[None])
F.bilinear(torch.nested.nested_tensor([sm, sm[:1]]), m, m[None])
torch._nested_from_padded(m[None], torch.tensor([[1, 2]]))
torch.zeros_like(torch.nested.nested_tensor([s, s[:2]]), dtype=D)
torch.full_like(s.to_sparse(), 2.0, dtype=D)
torch.quantize_per_tensor(x, 0.1, 0, torch.qint8) | torch.quantize_per_tensor(s, 0.1, 0, D)
torch.quantize_per_channel(m, s[:3].abs(), i[:3], 0, torch.qint8)
torch.quantize_per_tensor_dynamic(x, torch.qint8, False)
torch.fake_quantize_per_tensor_affine(x, 0.1, 0, 0, 255)
torch.empty_quantized([2], torch.quantize_per_tensor(s, 0.1, 0, torch.qint8), dtype=D)
torch._empty_affine_quantized([2], scale=1.0, zero_point=0, dtype=D)
x.to(torch.qint8) | x.to(torch.bits8) | torch.empty(2, dtype=torch.qint8).to(D)
torch.quantize_per_tensor(s, 0.1, 0, torch.qint8).to(D)
torch.ao.quantization.MinMaxObserver(dtype=D) | torch.set_default_tensor_type(D)
torch.set_default_tensor_type("torch.posit16es2") | torch.Tensor(x) | torch.FloatTensor(x)
torch.iinfo(D) | D() | torch.dtype() | D < D | copy.deepcopy(D) | setattr(D, "y", 1)
torch.promote_types(D, C) and 1
torch.empty(2, device="meta", dtype=D) | torch.zeros(2, device="meta", dtype=D)
torch.ones(2, device="meta", dtype=D) | torch.rand(2, device="meta", dtype=D)
torch.tensor([1.0], device="meta", dtype=D) | x.to("meta")
x.to(device="meta", dtype=D) | torch.empty_like(x, device="meta")
torch.zeros_like(x, device="meta") | torch.empty_like(s, device="meta", dtype=D)
x.new_empty(2, device="meta") | x.new_zeros(2, device="meta") | x.new_tensor([1.0], device="meta")
torch.zeros(2, device="meta").to(D) | torch.zeros(2, device="meta").copy_(x) and 1
x.copy_(torch.zeros(4, device="meta")) | nn.Linear(2, 2, device="meta", dtype=D)
nn.Linear(2, 2).to(D).to("meta") | nn.Linear(2, 2, device="meta").to(D)
nn.Linear(2, 2, dtype=D).to_empty(device="meta")
x.to("meta") + 1
torch.empty(2, 2, device="meta", dtype=D) @ torch.empty(2, 2, device="meta", dtype=D)
torch.empty(2, device="meta", dtype=D).to("cpu") | x.cuda() | x.to("cuda") | x.to("mps")
torch.zeros(2, dtype=D, device="cuda") | x.pin_memory() | torch.zeros(2, dtype=D, pin_memory=True)
r = torch._subclasses.FakeTensorMode().from_tensor(x); r
from torch._subclasses import FakeTensorMode as M; mode = M(); mode.__enter__(); r = torch.zeros(2, dtype=D)
from torch._subclasses import FakeTensorMode as M; mode = M(); mode.__enter__(); r = torch.ones(2).to(D) + 1
torch.compile(lambda t: t * 2 + 1, backend="eager")(x)
torch.compile(lambda t: t.to(D), backend="eager")(s)
torch.compile(lambda t: torch.zeros(2, dtype=D) + t, backend="eager")(x[:2])
torch.compile(lambda t: t.sin(), backend="aot_eager")(x)
torch.jit.trace(lambda t: t * 2 + 1, (x,))(x) | torch.jit.trace(lambda t: t.to(D) + 1, (s,))(s)
torch.jit.trace(lambda t: torch.zeros(2, dtype=D) + t, (x[:2],))(x[:2])
torch.jit.trace(nn.Linear(4, 2).to(D), (x,))(x)
torch.jit.freeze(torch.jit.trace(nn.Linear(4, 2).to(D).eval(), (x,)))(x)
torch.fx.symbolic_trace(lambda t: t * 2)(x)
from torch.fx.experimental.proxy_tensor import make_fx; r = make_fx(lambda t: t * 2 + torch.ones(4, dtype=D))(x)(x)
torch.export.export(nn.Linear(4, 2).to(D), (x,)).module()(x)
torch.jit.script(nn.Linear(4, 2).to(D))(x)
torch.func.vmap(lambda t: t * 2)(x) | torch.func.vmap(lambda t: t @ t)(m)
torch.func.vmap(lambda t: t.to(D))(s) | torch.func.vmap(lambda t: torch.zeros(2, dtype=D) + t)(x)
torch.func.vmap(F.softmax, (0, None))(m, 0) | torch.func.vmap(lambda t: t.sum(), in_dims=1)(m)
torch.func.vmap(lambda t: t.new_zeros(2))(x)
torch.func.grad(lambda t: (t * t).sum())(x) | torch.func.jacrev(lambda t: t * t)(x)
torch.func.jacfwd(lambda t: t * t)(x) | torch.func.hessian(lambda t: (t ** 3).sum())(x)
torch.func.jvp(lambda t: t * t, (x,), (x,)) | torch.func.vjp(lambda t: t * t, x)[1](x)
torch.func.linearize(lambda t: t * t, x)[0]
dl = forward_ad.dual_level(); dl.__enter__(); d = forward_ad.make_dual(x, x); r = list(forward_ad.unpack_dual(d * d))
torch.autograd.functional.jvp(lambda t: t * t, x, x)
torch.autograd.functional.hessian(lambda t: (t * t).sum(), x)
torch.func.functional_call(nn.Linear(4, 2).to(D), {}, x)
torch.func.functionalize(lambda t: t.clone().add_(1))(x)
torch.distributions.Normal(x, u).rsample() | torch.distributions.Normal(x, u).log_prob(x)
torch.distributions.Categorical(logits=x).log_prob(i)
torch.distributions.Categorical(probs=u).sample() | torch.distributions.Uniform(x, x + 1).sample()
torch.distributions.Bernoulli(logits=x).sample() | torch.distributions.Gamma(u, u).rsample()
torch.distributions.Dirichlet(u).rsample()
torch.distributions.MultivariateNormal(x[:3], m).rsample()
nn.utils.parametrizations.weight_norm(nn.Linear(4, 2).to(D))(x)
nn.utils.parametrizations.spectral_norm(nn.Linear(4, 2).to(D))(x)
nn.utils.parametrizations.orthogonal(nn.Linear(4, 2).to(D))(x)
nn.utils.parameters_to_vector(nn.Linear(4, 2).to(D).parameters())
nn.utils.rnn.pad_sequence([x, x[:2]])
nn.utils.rnn.pack_padded_sequence(m, i[3:4], enforce_sorted=False)[0]
nn.utils.rnn.pack_sequence([x, x[:2]])[0]
x.as_subclass(nn.Parameter) | r = type("T", (torch.Tensor,), {}); r = x.as_subclass(r) * 2
T = type("T", (torch.Tensor,), {}); r = torch.Tensor._make_subclass(T, x)
T = type("T", (torch.Tensor,), {}); r = T._make_wrapper_subclass(T, (2,), dtype=D);
nn.Parameter(x) | nn.Buffer(x) | torch.utils.swap_tensors(x, u) or x | torch.cat([x, q]) and 1
torch.where(b, x, q) and 1
x.rename("n") | torch.zeros(2, names=("n",), dtype=D) | x.real | x.conj() | x.resolve_conj()
x.share_memory_() | x.numpy(force=True) and 1 | np.asarray(x) is None or 1 | np.array([1.0]) * x
x * np.float64(2) | np.float32(2) * x | default_collate([x, x]) | torch.from_dlpack(x)
torch.utils.dlpack.to_dlpack(x) and 1 | memoryview(x) and 1 | x.__cuda_array_interface__ and 1
x.storage().tolist() and 1 | x.storage()[0] and 1 | x.storage().float() and 1
torch.tensor(x.storage()) | torch.TypedStorage(4, dtype=D) and 1
torch.TypedStorage(wrap_storage=x.untyped_storage(), dtype=D)[0] and 1 | x.storage_type() and 1
x.set_(x.storage()) | torch.empty(0, dtype=D).set_(s.untyped_storage())
torch.tensor(torch.TypedStorage(wrap_storage=x.untyped_storage(), dtype=D)) | x.type(str(D))
x.type(D) | x.to("posit16es2") | x.to(D, C) | x.to(D, D)
torch.optim.Adam([l], fused=True) and 1
o = torch.optim.Adam([l], fused=True); l.grad = x; o.step(); r = list(o.state[l].values())[1:]
o = torch.optim.SGD([l], 0.1, fused=True); l.grad = x; o.step(); r = l
o = torch.optim.SGD([l], 0.1, foreach=True); l.grad = x; o.step(); r = l
o = torch.optim.LBFGS([l]); l.grad = x; r = o.step(lambda: (l * l).sum())
o = torch.optim.SGD([l], 0.1); g = torch.amp.GradScaler("cpu"); g.scale((l * l).sum()).backward(); g.step(o); g.update(); r = l
a = torch.autocast("cpu", dtype=D); a.__enter__(); r = m
torch.set_autocast_dtype("cpu", D) or torch.get_autocast_dtype("cpu") and 1
torch.set_autocast_dtype("cpu", D) or torch.autocast("cpu").__enter__() and torch.ones(2, 2) @ torch.ones(2, 2) and 1
x.grad_fn or (l * 2).grad_fn and 1 | l.grad.__class__ and 1 | setattr(x, "data", u) or x
setattr(l, "grad", u) or l.grad | setattr(l, "grad", s) or l.grad
setattr(x, "data", q) or (x.dtype is q.dtype or 1 / 0) and 1 | torch.add(s, s, out=x)
torch.mm(m, m, out=m.clone()) | torch.sum(s, 0, out=x[0]) | torch.cat([x, x], out=x.clone())
torch.sort(x, out=(x.clone(), i.clone())) | torch.max(m, 0, out=(x.clone(), i.clone()))
torch.topk(x, 2)
torch.mul(s, s, out=torch.empty(0, dtype=D)) | torch.exp(s, out=x) | torch.matmul(sm, sm, out=m)
torch.softmax(s, 0, out=x) | torch.where(b, s, s, out=x) | torch.arange(4, out=x)
torch.linspace(0, 1, 4, out=x) | torch.cumsum(s, 0, out=x) | torch.index_select(s, 0, i, out=x)
torch.stack([s, s], out=torch.empty(0, dtype=D)) | torch.eye(3, out=m)
torch.bmm(sm[None], sm[None], out=m[None])
torch.utils.checkpoint.checkpoint(torch.sin, l, use_reentrant=False)
torch.autograd.gradcheck(lambda t: t * t, (l,), raise_exception=False) and 1
h = torch.autograd.graph.save_on_cpu(); h.__enter__(); y = (l * l).sum(); y.backward(); r = l.grad
k = torch.autograd.detect_anomaly(); k.__enter__(); (l * l).sum().backward(); r = l.grad
torch.utils.flop_counter.FlopCounterMode(display=False).__enter__() and m @ m
p = torch.profiler.profile(record_shapes=True); p.__enter__(); r = m @ m; p.__exit__(None, None, None)
from torch.utils._python_dispatch import TorchDispatchMode as M; k = type("K", (M,), {"__torch_dispatch__": lambda self, f, t, a=(), k=None: f(*a, **(k or {}))})(); k.__enter__(); r = torch.zeros(2, dtype=D) + x[:2]
from torch.overrides import TorchFunctionMode as M; k = type("K", (M,), {"__torch_function__": lambda self, f, t, a=(), k=None: f(*a, **(k or {}))})(); k.__enter__(); r = torch.zeros(2, dtype=D) + x[:2]
torch.zeros(-1, dtype=D) | torch.zeros(2**62, dtype=D) | torch.zeros(2**40, 2**40, dtype=D)
torch.empty(2**62, dtype=D) | torch.full((2,), "a", dtype=D) | torch.tensor("a", dtype=D)
torch.tensor([[1], [2, 3]], dtype=D) | torch.tensor(None, dtype=D) | torch.tensor([1j], dtype=D)
torch.full((2,), 1j, dtype=D) | torch.full((2,), 2**100, dtype=D) | torch.tensor(2**100, dtype=D)
torch.tensor([2**64], dtype=D)
torch.arange(0, 5, 0, dtype=D) | torch.arange(dtype=D) | torch.arange(0, math.inf, dtype=D)
torch.linspace(0, 1, -1, dtype=D) | torch.eye(-1, dtype=D) | torch.randint(5, 2, (2,), dtype=D)
torch.zeros("a", dtype=D) | torch.zeros(2, dtype=D, device="nowhere")
torch.zeros(2, dtype=D, bad=1) | torch.ones(dtype=D) | torch.tensor(dtype=D) | torch.tensor([1], D)
torch.full((2,), dtype=D) | torch.full(dtype=D) | torch.normal(0.0, -1.0, (2,), dtype=D)
x.view(3) | x.reshape(3) | x[10] | x["a"] | x.as_strided((100,), (1,))
x.as_strided((2,), (1,), 10**6) | x.as_strided((2,), (-1,)) | x.resize_(-1)
x.set_(x.untyped_storage(), 100, (5,)) | x.set_(x.untyped_storage(), 0, (2**61,))
x.set_(x.untyped_storage(), 0, (2,), (2**62,)) | x.unfold(0, 10, 1) | x.expand(3)
x[:3].view(torch.int64) and 1 | x.to(D, memory_format=torch.channels_last) | torch.cat([])
x.fill_("a") | x.fill_(1j) | x.fill_(s)
x.new() | x.new(2, 3) | x.new("a") | x.new([[1], [2, 3]]) | x.new_full((2,), 1j)
x.new_full((2,), None) | x.new_empty(-1) | x.new_tensor("a")
torch.rand_like(x, dtype=torch.int64) and 1 | torch.randn_like(x, generator=3)
torch.full_like(x, "a") | torch.empty_like(3, dtype=D) | torch.zeros_like(None, dtype=D)
torch.as_tensor(object(), dtype=D) | torch.asarray(object(), dtype=D)
torch.scalar_tensor("a", dtype=D) | torch.scalar_tensor(s, dtype=D)
x + "a" | x + None | x @ x[:2] | x + q | x @ q | x < q | torch.equal(x, q) | torch.allclose(x, q)
x.copy_(q) | x & x | x << 1 | ~x | x // 2 | x % 2 | x ** 2 | -x | abs(x) | 2 ** x | divmod(x, 2)
x.bitwise_and(x)
"""  # noqa: E501

# Calls that request a stock dtype, or operators that return one: the result must have that dtype.
ANSWERS = {
    "float32": """
x.float() | x.to(torch.float32) | aten._to_copy(x, dtype=torch.float32)
torch.sum(x, dtype=torch.float32)
torch.zeros_like(x, dtype=torch.float32) | x + s | torch.where(b, x, s) | torch.cat([x, s])
x.type(torch.float32) | x.type(torch.FloatTensor)
x.type('torch.FloatTensor') | s.type_as(s) | torch.add(x, x, out=s) | s.copy_(x)
torch.einsum('i,i', x, s) | torch.stack([x, s]) | m @ sm
torch.bmm(m[None], sm[None]) | F.linear(x, s[None]) | F.conv2d(img, torch.ones(1, 2, 3, 3))
F.mse_loss(x, s) | torch.dot(x, s)
torch.dequantize(s) | setattr(x, 'data', s) or x
""",
    "float64": """
x.double() | torch.bincount(i, weights=x)
""",
    "complex": """
torch.complex(x, x) | torch.polar(u, x) | torch.fft.fft(x) | torch.fft.rfft(x) | x * 1j
torch.stft(x.repeat(8), 8, return_complex=True, window=torch.ones(8, dtype=D))
x.to(torch.complex64)
x + torch.ones(4, dtype=torch.complex64) | torch.linalg.eigvals(m)
""",
    "C": """
x.to(C) | x.view(C) | torch.zeros_like(x, dtype=C) | x.new_zeros(2, dtype=C) | x.type(C)
torch.empty(2, dtype=C) | torch.sum(x, dtype=C)
torch.tensor([1.0], dtype=C) | torch.asarray(x, dtype=C) | torch.as_tensor(x, dtype=C)
torch.tensor(x, dtype=C) | x.to('cpu', C)
x.to(torch.zeros(1, dtype=C)) | torch.zeros(1, dtype=C).to(C) | x.clone().to(dtype=C, copy=True)
nn.Parameter(x).to(C).detach()
torch.empty_like(x, dtype=C) | x.softmax(0, dtype=C) | x.cumsum(0, dtype=C)
nn.Linear(4, 2).to(D).to(C) | nn.Linear(4, 2, dtype=C).to(C)
""",
    "bool": """
x == x | x.isnan() | x.bool() | torch.isclose(x, x) | x.isfinite() | x.signbit() | x.logical_not()
torch.isin(x, x) | x > 1 | x.ne(s)
""",
    "int64": """
x.argmax() | x.argsort() | x.long() | x.nonzero() | x.to(torch.int64) | torch.count_nonzero(x)
torch.searchsorted(s.sort().values, x)
torch.bucketize(x, s.sort().values) | x.to(i)
""",
}


def split(text):
    return [
        call for line in text.splitlines() for call in map(str.strip, line.split(" | ")) if call
    ]


CALLS = {"D": split(STAYS), **{dtype: split(calls) for dtype, calls in ANSWERS.items()}}
ALL_CALLS = [(expected, call) for expected, calls in CALLS.items() for call in calls]
CONTAINER = {"posit16es2": "bfloat16", "q43": "float8_e5m2fnuz", "e11m30": "float64"}


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """Run each call in its own process. Return for each dtype (exit status, ["returned", dtypes] or
    ["raised", text])."""
    flat = [call for _, call in ALL_CALLS]
    found = {}
    for name in NAMES:
        done = new_process.run(
            "-c",
            RUNNER,
            name,
            input=json.dumps(flat),
            timeout=300,
            cwd=tmp_path_factory.mktemp("calls"),
            env={**os.environ, "TORCHDYNAMO_VERBOSE": "0"},
        )
        assert done.returncode == 0, done.stderr[-2000:]
        found |= {
            (name, call): answer for call, answer in zip(flat, json.loads(done.stdout), strict=True)
        }
    return found


def test_nothing_ends_the_process(answers):
    for name, (_, call) in itertools.product(NAMES, ALL_CALLS):
        status, answer = answers[name, call]
        assert status == 0 and answer is not None, (
            f"{call} with {name} ended the process (status {status})"
        )


def test_result_has_the_asked_dtype(answers):
    for name, (expected, call) in itertools.product(NAMES, ALL_CALLS):
        _, answer = answers[name, call]
        kind, found = answer or ("raised", "")
        if kind == "raised":
            continue  # any exception is fine here
        if expected == "float32" and name == "e11m30" and "dtype=D" not in call:
            continue
        wanted = {"D": f"torch.{name}", "C": f"torch.{CONTAINER[name]}"}.get(
            expected, f"torch.{expected}"
        )
        for dtype, ours, floating in found:
            if expected == "complex":
                assert dtype in ("torch.complex64", "torch.complex128"), f"{call} gave {dtype}"
            elif floating or expected != "D":
                assert dtype == wanted, f"{call} gave {dtype} for {wanted}"
            assert ours == (dtype in (f"torch.{name}", "torch.q52")), (
                f"{call}: {dtype} in the wrong class"
            )


CLEAR_CALLS = [call for _, call in ALL_CALLS if not call.startswith(("aten", "torch.ops"))]


def test_errors_do_not_blame_pytorch(answers):
    for name, call in itertools.product(NAMES, CLEAR_CALLS):
        _, answer = answers[name, call]
        kind, text = answer or ("raised", "")
        if kind == "raised":
            for words in blame.WORDS:
                assert words not in text, f"{call} with {name}: {text}"


def test_lobpcg_takes_stock_dtypes_only():
    x = torch.eye(8).to(torch.posit16es2)
    for a in (x, x.clone().requires_grad_()):
        with pytest.raises(
            TypeError, match=r"expected float32 or float64, but got torch\.posit16es2"
        ):
            torch.lobpcg(a, 2)
    assert torch.lobpcg(x.float(), 2)[0].dtype is torch.float32


X = torch.ones(4).to(torch.posit16es2)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: X.as_strided((2,), (1,), -1),
            RuntimeError,
            "expected a storage offset of at least 0, but got -1",
        ),
        (
            lambda: torch.tensor([True]).where(X, 1.0),
            RuntimeError,
            "where: expected a condition of bool, but got posit16es2",
        ),
        (
            lambda: torch.ops.aten.promote_types(torch.float32, X.dtype),
            TypeError,
            "expected two stock dtypes, but got number .* Use torch.promote",
        ),
        (lambda: X.sum(dtype=2.5), TypeError, "expected a torch.dtype as dtype, but got 2.5"),
        (
            lambda: torch.softmax(X, 0, dtype="cpu"),
            TypeError,
            "expected a torch.dtype as dtype, but got 'cpu'",
        ),
        (
            lambda: torch.ops.aten._local_scalar_dense(X[:0]),
            RuntimeError,
            "item: expected one element, but got 0",
        ),
        (lambda: X[0].to("meta").item(), RuntimeError, "cannot be called on meta tensors"),
        (
            lambda: torch.ops.aten.to_mkldnn_backward(torch.ones(4), X),
            NotImplementedError,
            "to_mkldnn_backward: expected a stock dtype",
        ),
    ],
)
def test_found_by_random_calls(call, error, message):
    """tools/fuzz.py found these: each once returned a wrong result, read beyond the tensor's
    memory, or ended in an assertion."""
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("value", ["inf", "nan"])
@pytest.mark.parametrize("name", NAMES)
def test_eigenvalues_of_numbers_that_are_none_are_an_error(name, value):
    """LAPACK read beyond its memory, which ended the process."""
    a = torch.full((8, 8), float(value)).to(torch_dtypes.dtype(name))
    for call in (
        lambda: torch.linalg.eigvals(a),
        lambda: torch.linalg.eigvals(a, out=torch.empty(8, dtype=torch.complex64)),
    ):
        with pytest.raises(
            RuntimeError, match="expected a matrix of finite numbers, but got an infinity or NaN"
        ):
            call()
    assert torch.linalg.eigvals(torch.eye(3).to(a.dtype)).tolist() == [1, 1, 1]


def run_python(code):
    return new_process.run("-c", code, cwd=ROOT, timeout=120)


def test_more_formats_than_fit_are_refused_and_the_rest_lives_on():
    done = run_python("""
import torch, torch_dtypes

made = []
try:
    for nbits in range(2, 33):
        for es in range(5):
            made.append(torch_dtypes.posit_format(nbits, es))
except (ValueError, RuntimeError) as error:
    print(type(error).__name__, str(error).splitlines()[0])
assert torch_dtypes._C.format_count() == torch_dtypes._C.max_formats == 64
for dtype in made:
    assert (
        torch.ones(3, dtype=dtype).sum().item() >= 1 and torch_dtypes.dtype(str(dtype)[6:]) is dtype
    )
print("done")
""")
    assert done.returncode == 0, done.stderr
    error, last = done.stdout.splitlines()
    assert last == "done"
    assert error.startswith(
        "ValueError expected at most 64 number formats in one process, but got one more (posit"
    )


def test_operators_written_in_python_refuse_our_dtypes():
    """They once read beyond PyTorch's table of dtypes: an error without meaning, or the end of the
    process."""

    @torch.library.custom_op("torch_dtypes_test::in_dtype", mutates_args=())
    def in_dtype(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        return x.to(dtype, copy=True)

    for x in (torch.ones(2), torch.ones(2, dtype=torch.posit16es2)):
        for dtype in (torch.posit16es2, torch.posit32es2, torch.q43):
            for op in (
                torch.ops.prims.convert_element_type,
                torch.ops.prims.convert_element_type.default,
                in_dtype,
            ):
                with pytest.raises(
                    TypeError, match=f"expected a stock dtype for this operator .* got {dtype}"
                ):
                    op(x, dtype)
        assert in_dtype(x, torch.float64).dtype is torch.float64


def test_cuda_code_of_a_user_takes_no_codes_for_numbers():
    squares = torch.cuda.jiterator._create_jit_fn(
        "template <typename T> T squares(T x) { return x * x; }"
    )
    for x in (torch.ones(3, dtype=torch.posit16es2), torch.empty(0, dtype=torch.posit16es2)):
        with pytest.raises(
            NotImplementedError,
            match=r"expected operands of stock dtypes .* but got torch\.posit16es2",
        ):
            squares(x)

"""Layers and products with a stock operand beside a format tensor behave like bfloat16 beside
float32. conformance/test_two_dtypes.py has the rest."""

import contextlib

import mixed_operand_cases as cases
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_sequence, pad_sequence
from torch.utils._pytree import tree_leaves

import torch_dtypes
from torch_dtypes._torch_version import RUNNING

# Storage dtypes: bfloat16, a float8, float32 itself.
DTYPES = (torch.posit16es2, torch.q43, torch.posit32es2)
every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)
pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    # Warnings of PyTorch's rms_norm, and of jvp.
    pytest.mark.filterwarnings(
        "ignore:Mismatch dtype between input and weight", "ignore:.*torch.jit.script"
    ),
]


@pytest.fixture
def without_onednn():
    """oneDNN's layers accept more mixtures, depending on the processor."""
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    yield
    torch._C._set_mkldnn_enabled(before)


def dtypes_of(name, dtype, mixture, gradients=False):
    """Return the dtypes of a call's floating results, or the error."""
    call, shapes = cases.ALL[name]
    operands = [
        o.requires_grad_(gradients)
        for o in cases.operands(shapes, [dtype if narrow else torch.float32 for narrow in mixture])
    ]
    try:
        results = [
            t for t in tree_leaves(call(*operands)) if t is not None and t.is_floating_point()
        ]
    except (RuntimeError, TypeError, ValueError) as error:
        return error
    if gradients:
        sum(r.double().sum() for r in results if r.requires_grad).backward()
        assert all(o.grad is None or o.grad.dtype is o.dtype for o in operands)
    return [t.dtype for t in results]


def error_of(call, *args):
    with pytest.raises(RuntimeError) as caught:
        call(*args)
    return caught.value


def expect_names(error, dtype):
    message = str(error)
    assert "expected operands of one dtype" in message and ". Convert " in message, message
    # In the second step of an LSTM, the state was promoted in the first.
    given = ("torch.float32", str(torch.promote_types(dtype, torch.float32)))
    assert any(name in message for name in given) and str(dtype) in message, message
    assert not any(word in message for word in ("Float", "c10", "Half", " float ")), message


# Results of PyTorch that have the dtype of one operand, and not the promoted dtype.
KEEP = ("fold", "inner with a number", "lstm", "rms_norm")


@every_dtype
@pytest.mark.parametrize("name", cases.ALL)
def test_what_stock_does(name, dtype, without_onednn):
    # Recorded calls take another path. The dtypes of PyTorch's cells and statistics do not differ
    # between the two.
    recorded = (
        (False, True)
        if dtype is torch.posit16es2 and name not in cases.WITH_STATISTICS
        else (False,)
    )
    for mixture in cases.mixtures(name):
        # A format LSTM has the equations of PyTorch's CPU version on every device. PyTorch's GPU
        # version is different (`--device cuda` is a mode).
        with torch._C.DisableTorchFunction() if name == "lstm" else contextlib.nullcontext():
            expected = dtypes_of(name, torch.bfloat16, mixture)
        for gradients in recorded:
            found = dtypes_of(name, dtype, mixture, gradients)
            if isinstance(expected, Exception):
                assert isinstance(found, type(expected)), (mixture, expected, found)
                expect_names(found, dtype)
            elif name == "addmv" and RUNNING < (2, 13) and isinstance(found, Exception):
                # Earlier releases add to a float32 vector; format tensors raise in every release.
                expect_names(found, dtype)
            else:
                own = [dtype if d is torch.bfloat16 else d for d in expected]
                wide = [d if d is dtype else torch.promote_types(dtype, d) for d in own]
                assert found == (own if name in KEEP else wide), (mixture, expected, found)


@every_dtype
@pytest.mark.parametrize("name", cases.BY_ACCIDENT)
def test_what_only_some_kernels_of_stock_take(name, dtype):
    n = len(cases.ALL[name][1])
    expect_names(dtypes_of(name, dtype, [True] * (n - 1) + [False]), dtype)


@every_dtype
def test_whole_networks(dtype):
    network = nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 2)
    ).to(dtype)
    images = torch.randn(2, 1, 4, 4)
    expect_names(error_of(network, images), dtype)
    expect_names(error_of(network.float(), images.to(dtype)), dtype)
    for forward in (torch.no_grad, torch.inference_mode):
        with forward():
            expect_names(error_of(network, images.to(dtype)), dtype)
    for layer in (nn.LSTM(2, 2), nn.GRU(2, 2), nn.RNN(2, 2)):
        with pytest.raises((RuntimeError, ValueError), match=str(dtype)):
            layer.to(dtype)(torch.randn(3, 1, 2))
    with pytest.raises(RuntimeError, match=str(dtype)), torch.autocast("cpu"):
        nn.Linear(2, 2).to(dtype)(torch.randn(1, 2))


# ---- normalisation layers with float32 parameters ----


def normalisations():
    torch.manual_seed(0)
    layers = {
        "batch": nn.BatchNorm1d(3),
        "batch, evaluating": nn.BatchNorm1d(3).eval(),
        "batch without parameters": nn.BatchNorm1d(3, affine=False),
        "batch without statistics": nn.BatchNorm1d(3, track_running_stats=False),
        "instance": nn.InstanceNorm1d(3, affine=True),
        "instance with statistics": nn.InstanceNorm1d(3, affine=True, track_running_stats=True),
        "group": nn.GroupNorm(3, 3),
        "layer": nn.LayerNorm(5),
        "layer without bias": nn.LayerNorm(5, bias=False),
        "rms": nn.RMSNorm(5),
    }
    for layer in layers.values():
        for p in layer.parameters():
            nn.init.normal_(p)
    return layers


@every_dtype
@pytest.mark.parametrize("name", normalisations())
@pytest.mark.parametrize("recorded", [True, False])
def test_normalisation_by_float32_parameters(name, dtype, recorded):
    exact = torch.float32 if torch_dtypes.format_of(dtype).fits_float else torch.float64
    ours, stock = normalisations()[name], normalisations()[name].to(exact)
    x = torch.randn(4, 3, 5, generator=torch.Generator().manual_seed(1)).to(dtype).requires_grad_()
    values = x.detach().to(exact).requires_grad_()
    with torch.set_grad_enabled(recorded):
        y, expected = ours(x), stock(values)
    assert y.dtype is dtype and torch.equal(y.double(), expected.to(dtype).double())
    for found, want in zip(ours.buffers(), stock.buffers(), strict=True):
        assert found.dtype is not dtype and torch.equal(found, want.to(found.dtype))
    if not recorded:
        with torch.inference_mode():
            assert ours.eval()(x).dtype is dtype
        return
    y.sum().backward()
    expected.backward(torch.ones_like(expected))
    assert x.grad.dtype is dtype and torch.equal(x.grad.double(), values.grad.to(dtype).double())
    for p, q in zip(ours.parameters(), stock.parameters(), strict=True):
        assert p.grad.dtype is torch.float32 and torch.equal(p.grad, q.grad.float())


@every_dtype
def test_normalisation_in_transformations(dtype):
    layer = nn.LayerNorm(5)
    x = torch.randn(4, 3, 5).to(dtype)
    assert torch.equal(torch.vmap(layer)(x).double(), layer(x).detach().double())
    assert torch.func.grad(lambda t: layer(t).sum())(x).dtype is dtype
    gradients = torch.func.grad(lambda p: torch.func.functional_call(layer, p, x).sum().float())(
        dict(layer.named_parameters())
    )
    assert all(g.dtype is torch.float32 for g in gradients.values())
    statistics = nn.BatchNorm1d(3, track_running_stats=False)
    assert torch.vmap(statistics)(x.expand(2, 4, 3, 5)).dtype is dtype
    x.requires_grad_()
    (g,) = torch.autograd.grad(layer(x).square().sum(), x, create_graph=True)
    assert torch.autograd.grad(g.sum(), x)[0].dtype is dtype


@every_dtype
def test_transformations_refuse_too(dtype):
    weight, x = torch.randn(2, 3).to(dtype), torch.randn(4, 3)
    for call in [
        lambda: torch.vmap(lambda t: F.linear(t, weight))(x),
        lambda: torch.func.grad(lambda w: F.linear(x, w).sum())(weight),
        lambda: torch.func.jvp(lambda w: F.linear(x, w), (weight,), (weight,)),
        lambda: torch.func.vjp(lambda t: F.linear(t, weight), x),
    ]:
        expect_names(error_of(call), dtype)


def test_elements_promote():
    x, w = torch.randn(3).to(torch.posit16es2), torch.randn(3)
    assert (
        (x * w).dtype
        is (x + w).dtype
        is torch.where(x > 0, x, w).dtype
        is torch.outer(x, w).dtype
        is torch.float32
    )
    assert (x * w[0]).dtype is torch.posit16es2


@every_dtype
def test_the_error_says_all_that_is_to_be_converted(dtype):
    bias, x, weight = torch.randn(4), torch.randn(2, 3).to(dtype), torch.randn(3, 4)
    assert f"Convert self and mat2 with .to({dtype})" in str(error_of(torch.addmm, bias, x, weight))
    assert f"Convert self with .to({dtype})" in str(
        error_of(torch.addmm, bias, x, weight.to(dtype))
    )
    assert f"Convert mat1 with .to({dtype})" in str(
        error_of(torch.addmm, bias.to(dtype), x.float(), weight.to(dtype))
    )


@pytest.mark.parametrize("op, gates", [("_thnn_fused_gru_cell", 3), ("_thnn_fused_lstm_cell", 4)])
def test_a_gpu_s_cells_take_one_dtype(op, gates):
    """Recurrent layers call these on a GPU, after products without a bias. They once gave float32
    results for a format state."""
    shapes = [(2, 3 * gates), (2, 3 * gates), (2, 3), (3 * gates,), (3 * gates,)]
    for place in range(5):
        operands = [
            torch.ones(shape, dtype=torch.posit16es2 if i == place else torch.float32)
            for i, shape in enumerate(shapes)
        ]
        expect_names(error_of(getattr(torch.ops.aten, op), *operands), torch.posit16es2)


@pytest.mark.parametrize("name", ["posit16es2", "q43", "tf32"])
def test_padded_sequences_have_the_first_one_s_dtype(name):
    """Like PyTorch, which copies the others into a tensor like the first."""
    dtype = torch_dtypes.dtype(name)
    first, second = (
        torch.ones(3, dtype=dtype, requires_grad=True),
        torch.full((2,), 1.1, requires_grad=True),
    )
    padded = pad_sequence([first, second], batch_first=True)
    assert padded.dtype is dtype and torch.equal(padded[1, :2], second.to(dtype))
    padded.sum().backward()
    assert first.grad.dtype is dtype and second.grad.dtype is torch.float32
    assert pad_sequence([second, first]).dtype is torch.float32
    assert pack_sequence([first, second]).data.dtype is dtype
    assert pad_sequence([first.detach(), torch.arange(2)]).dtype is dtype


def test_meshes_of_dtypes_in_one_container():
    """Stock PyTorch compares storage dtypes there."""
    for a, b in (
        (torch.posit16es2, torch.bfloat16),
        (torch.tf32, torch.float32),
        (torch.posit16es2, torch.float32),
    ):
        for mesh in (torch.meshgrid, torch.cartesian_prod):
            with pytest.raises(RuntimeError, match="meshgrid: expected operands of one dtype"):
                mesh(torch.ones(2, dtype=a), torch.ones(2, dtype=b))
    with pytest.raises(
        RuntimeError, match="expected tensors of one number format, but got q43 and q52"
    ):
        torch.meshgrid(
            torch.ones(2, dtype=torch.q43), torch.ones(2, dtype=torch.q52), indexing="ij"
        )
    assert {
        t.dtype
        for t in torch.meshgrid(
            torch.ones(2, dtype=torch.q43), torch.ones(3, dtype=torch.q43), indexing="xy"
        )
    } == {torch.q43}

"""Autograd through functions of torch and torch.nn: gradients near float64's, results and gradients of the dtype."""

import pytest
import torch
from test_autograd import expect_grad, expect_tensor
from torch import nn
from torch.nn import functional as F

import torch_dtypes

SMOOTH = {
    "sin": torch.sin, "exp": torch.exp, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "log": lambda x: (x.abs() + 1).log(),
    "sqrt": lambda x: (x * x + 1).sqrt(), "softmax": lambda x: x.softmax(0) * x,
    "product": lambda x: x * x.flip(0), "quotient": lambda x: x / (x * x + 2), "power": lambda x: (x * x) ** 1.5,
    "matmul": lambda x: x.view(2, 2) @ x.view(2, 2), "norm": lambda x: x.norm(), "mean": lambda x: x.mean() * x,
    "var": lambda x: x.var(), "cumsum": lambda x: x.cumsum(0) * x, "prod": lambda x: x.prod(), "logsumexp": lambda x: x.logsumexp(0), "gelu": F.gelu,
    "layer_norm": lambda x: F.layer_norm(x, (4,)), "where": lambda x: torch.where(x > 0, x * x, -x),
    "linear": lambda x: F.linear(x, x[None].expand(3, 4)), "cat": lambda x: torch.cat([x, x * 2]).sum() * x,
    "einsum": lambda x: torch.einsum("i,j->ij", x, x), "lerp": lambda x: x.lerp(x.flip(0), 0.3), "addcdiv": lambda x: torch.addcdiv(x, x, x * x + 1),
}  # fmt: skip


@pytest.mark.parametrize("function", SMOOTH)
def test_gradients_are_near_float64_s(function):
    values, results = [0.7, -1.3, 0.4, 2.1], []
    for dtype in (torch.float64, torch.posit32es2):
        x = torch.tensor(values, dtype=dtype, requires_grad=True)
        y = SMOOTH[function](x)
        assert y.dtype is dtype
        (y * torch.linspace(1, 2, y.numel(), dtype=dtype).view(y.shape)).sum().backward()
        expect_grad(x)
        results.append((y.detach().double(), x.grad.double()))
    for ours, reference in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(ours, reference, rtol=3e-6, atol=3e-6)


# The functions of torch.nn


def nn_cases():
    """name: (function of float arguments, shapes of them)."""
    target = torch.tensor([1, 0, 2])

    def one(f):
        return f, [(3, 4)]

    def two(f):
        return f, [(3, 4), (3, 4)]

    def image(f):
        return f, [(2, 4, 6, 6)]

    def module(make, *shape):
        def run(x):
            made = make().to(x.dtype)
            out = made(x)
            out = out[0] if isinstance(out, tuple) else out
            if out.requires_grad:
                for p, g in zip(made.parameters(), torch.autograd.grad(out.sum(), list(made.parameters()), retain_graph=True), strict=True):
                    expect_tensor(g, p.dtype)
            return out

        return run, [shape]

    plain = "relu gelu silu mish elu celu selu softplus softsign tanhshrink hardtanh hardswish hardsigmoid hardshrink softshrink leaky_relu relu6"
    cases = {name: one(getattr(F, name)) for name in f"{plain} logsigmoid tanh sigmoid dropout alpha_dropout normalize rrelu glu".split()}
    for f in (F.softmax, F.log_softmax, F.softmin, F.gumbel_softmax):
        cases[f.__name__] = one(lambda x, f=f: f(x, dim=1))
    for f in (F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss, F.binary_cross_entropy_with_logits, F.cosine_similarity, F.pairwise_distance):
        cases[f.__name__] = two(f)
    cases |= {
        "cross_entropy with weights and smoothing": (lambda x, w: F.cross_entropy(x, target, w.detach().abs(), label_smoothing=0.1), [(3, 4), (4,)]),
        "ctc_loss": (lambda x: F.ctc_loss(x.log_softmax(2), torch.tensor([[1, 2]]), torch.tensor([5]), torch.tensor([2])), [(5, 1, 4)]),
        "TransformerEncoderLayer in evaluation": module(lambda: nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).eval(), 2, 3, 4),
        "conv_transpose2d": (lambda x, w: F.conv_transpose2d(x, w, stride=2, output_padding=1), [(2, 4, 6, 6), (4, 3, 3, 3)]),
        "batch_norm in evaluation": (lambda x, m, v: F.batch_norm(x, m.detach(), v.detach().abs()), [(3, 4), (4,), (4,)]),
        "masked attention": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), [(1, 2, 3, 4)] * 3),
        "conv2d of groups": (lambda x, w: F.conv2d(x, w, stride=2, padding=1, groups=2), [(2, 4, 6, 6), (6, 2, 3, 3)]),
        "batch_norm": (lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True), [(3, 4, 2, 2), (4,), (4,)]),
        "interpolate bilinear": image(lambda x: F.interpolate(x, size=(9, 4), mode="bilinear", align_corners=True)), "dropout2d": image(F.dropout2d),
        "TransformerEncoderLayer": module(lambda: nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), 2, 3, 4),
        "InstanceNorm2d": module(lambda: nn.InstanceNorm2d(3, affine=True, track_running_stats=True), 2, 3, 4, 4),
        "grid_sample": (lambda x, g: F.grid_sample(x, g, align_corners=False), [(2, 4, 6, 6), (2, 3, 3, 2)]), "prelu": (F.prelu, [(3, 4), (1,)]),
        "binary_cross_entropy": two(lambda x, y: F.binary_cross_entropy(x.sigmoid(), y.detach().sigmoid())), "instance_norm": image(F.instance_norm),
        "kl_div": two(lambda x, y: F.kl_div(x.log_softmax(1), y.softmax(1), reduction="batchmean")), "pad": image(lambda x: F.pad(x, (1, 1, 2, 0))),
        "gaussian_nll_loss": (lambda x, y, v: F.gaussian_nll_loss(x, y, v.abs() + 1), [(3, 4)] * 3), "LSTM": module(lambda: nn.LSTM(4, 3), 5, 2, 4),
        "interpolate bicubic": image(lambda x: F.interpolate(x, scale_factor=1.5, mode="bicubic")), "linear": (F.linear, [(3, 4), (5, 4), (5,)]),
        "embedding_bag": (lambda w: F.embedding_bag(torch.tensor([[0, 2], [1, 2]]), w), [(3, 4)]), "max_pool2d": image(lambda x: F.max_pool2d(x, 2)),
        "cross_entropy, unreduced": one(lambda x: F.cross_entropy(x, target, reduction="none")), "conv1d": (F.conv1d, [(2, 4, 6), (3, 4, 3), (3,)]),
        "max_pool2d with indices": image(lambda x: F.max_pool2d(x, 2, return_indices=True)[0]), "RNN": module(lambda: nn.RNN(4, 3), 5, 2, 4),
        "cross_entropy of probabilities": two(lambda x, p: F.cross_entropy(x, p.softmax(1))), "hinge": one(lambda x: F.multi_margin_loss(x, target)),
        "group_norm": (lambda x, w, b: F.group_norm(x, 2, w, b), [(2, 4, 3, 3), (4,), (4,)]), "fold": (lambda x: F.fold(x, (4, 4), 2), [(1, 8, 9)]),
        "scaled_dot_product_attention": (F.scaled_dot_product_attention, [(1, 2, 3, 4)] * 3), "unfold": image(lambda x: F.unfold(x, 2)),
        "embedding": (lambda w: F.embedding(torch.tensor([[0, 2], [1, 2]]), w), [(3, 4)]), "max_pool1d": (lambda x: F.max_pool1d(x, 2), [(2, 4, 6)]),
        "layer_norm": (lambda x, w, b: F.layer_norm(x, (4,), w, b), [(3, 4), (4,), (4,)]), "avg_pool1d": (lambda x: F.avg_pool1d(x, 2), [(2, 4, 6)]),
        "soft_margin_loss": two(lambda x, y: F.soft_margin_loss(x, y.detach().sign())), "triplet_margin_loss": (F.triplet_margin_loss, [(3, 4)] * 3),
        "conv_transpose3d": (F.conv_transpose3d, [(1, 2, 3, 3, 3), (2, 3, 2, 2, 2)]), "conv3d": (F.conv3d, [(1, 2, 4, 4, 4), (3, 2, 2, 2, 2), (3,)]),
        "adaptive_avg_pool1d": (lambda x: F.adaptive_avg_pool1d(x, 3), [(2, 4, 6)]), "nll_loss": one(lambda x: F.nll_loss(x.log_softmax(1), target)),
        "interpolate area": image(lambda x: F.interpolate(x, size=3, mode="area")), "max_pool3d": (lambda x: F.max_pool3d(x, 2), [(1, 2, 4, 4, 4)]),
        "interpolate nearest": image(lambda x: F.interpolate(x, scale_factor=2)), "rms_norm": (lambda x, w: F.rms_norm(x, (4,), w), [(3, 4), (4,)]),
        "reflect pad": image(lambda x: F.pad(x, (1, 1, 2, 0), mode="reflect")), "avg_pool2d": image(lambda x: F.avg_pool2d(x, 3, 2, ceil_mode=True)),
        "conv_transpose1d": (F.conv_transpose1d, [(2, 4, 6), (4, 3, 3), (3,)]), "local_response_norm": image(lambda x: F.local_response_norm(x, 2)),
        "adaptive_avg_pool2d": image(lambda x: F.adaptive_avg_pool2d(x, 1)), "adaptive_max_pool2d": image(lambda x: F.adaptive_max_pool2d(x, 2)),
        "GRU": module(lambda: nn.GRU(4, 3, 2, bidirectional=True), 5, 2, 4), "avg_pool3d": (lambda x: F.avg_pool3d(x, 2), [(1, 2, 4, 4, 4)]),
        "lp_pool2d": image(lambda x: F.lp_pool2d(x.abs() + 1, 2, 2)),
        "BatchNorm2d": module(lambda: nn.BatchNorm2d(3), 2, 3, 4, 4), "bilinear": (F.bilinear, [(3, 4), (3, 2), (5, 4, 2), (5,)]),
        "cross_entropy": one(lambda x: F.cross_entropy(x, target)), "conv2d": (F.conv2d, [(2, 4, 6, 6), (3, 4, 3, 3), (3,)]),
        "pixel_shuffle": image(lambda x: F.pixel_shuffle(x, 2)),
    }  # fmt: skip
    return cases


NN = nn_cases()


@pytest.mark.parametrize("dtype", [torch.posit16es2, torch.q43, torch.tf32, torch_dtypes.dtype("e11m30")], ids=str)
@pytest.mark.parametrize("name", NN)
def test_function_of_torch_nn_gives_results_and_gradients_of_the_dtype(name, dtype):
    torch.manual_seed(0)
    function, shapes = NN[name]
    arguments = [torch.randn(shape).to(dtype).requires_grad_() for shape in shapes]
    out = function(*arguments)
    expect_tensor(out, dtype)
    with torch.no_grad():
        expect_tensor(function(*arguments), dtype)
        expect_tensor(function(*(a.detach() for a in arguments)), dtype)
    out.sum().backward()
    reached = [a for a in arguments if a.grad is not None]
    assert arguments[0].grad is not None
    for a in reached:
        expect_grad(a)
        assert a.grad.shape == a.shape


@pytest.mark.parametrize("given", [torch.float32, torch.bfloat16, torch.q43], ids=str)
def test_the_backward_operator_casts_a_given_gradient(given):
    x = torch.ones(3, dtype=torch.posit16es2, requires_grad=True)
    torch.ops.aten._backward((x * 2) * x, [x], torch.ones(3, dtype=given))
    assert x.grad.dtype is torch.posit16es2 and x.grad.tolist() == [4, 4, 4]


@pytest.mark.parametrize("operator", [torch.ops.aten._softmax_backward_data, torch.ops.aten._log_softmax_backward_data])
@pytest.mark.parametrize("asked", [torch.posit16es2, torch.q43, torch.float32], ids=str)
def test_softmax_backward_by_hand_to_another_dtype(operator, asked):
    grad, out = (torch.rand(2, 3).to(torch.posit16es2).requires_grad_() for _ in range(2))
    result = operator(grad, out, 1, asked)
    result.sum().backward()
    assert result.dtype is asked and grad.grad.dtype is torch.posit16es2 and out.grad.dtype is torch.posit16es2


@pytest.mark.parametrize("dtype", [torch.posit16es2, torch.tf32, torch.posit32es2], ids=str)
def test_a_stock_operand_of_an_in_place_operator_keeps_its_gradient_s_dtype(dtype):
    x, y = torch.ones(3, dtype=dtype), torch.full((3,), 0.5, requires_grad=True)
    x.sub_(y, alpha=2).mul_(y)
    x.sum().backward()
    assert x.dtype is dtype and y.grad.dtype is torch.float32 and y.grad.tolist() == [-1.0, -1.0, -1.0]


def test_cosine_similarity_beside_integers_is_of_the_dtype():
    x, y = torch.ones(3, dtype=torch.e5m5, requires_grad=True), torch.ones(3, 3, dtype=torch.int32)
    found = torch.cosine_similarity(y, x)
    found.sum().backward()
    assert found.dtype is torch.e5m5 and found.tolist() == [1, 1, 1] and x.grad.dtype is torch.e5m5

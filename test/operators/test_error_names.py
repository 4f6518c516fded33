"""Errors about format tensors name the format dtype and not the storage dtype: layers and products
with operands of wrong dtypes and shapes."""

import itertools
import re

import pytest
import torch
from representatives import thin_out
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_modules import module_db
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

import torch_dtypes

NAMES = ("posit16es2", "q43", "posit32es2", "e11m30")
OTHERS = (torch.float32, torch.int64, torch.bool, torch.complex64, torch.q52)
MODULES = {info.name: info for info in module_db if "Lazy" not in info.name}
LAYERS = (
    "mm bmm mv dot vdot inner outer kron matmul addmm addmv addr baddbmm addbmm tensordot einsum "
    "linalg.cross linalg.vecdot linalg.multi_dot bilinear linear cosine_similarity conv1d conv2d "
    "conv3d conv_transpose1d conv_transpose2d conv_transpose3d batch_norm instance_norm "
    "group_norm layer_norm rms_norm embedding_bag prelu grid_sample scaled_dot_product_attention"
).split()
FUNCTIONS = {
    op.full_name: op for op in op_db if op.full_name.removeprefix("nn.functional.") in LAYERS
}

# Storage dtypes by any of PyTorch's names. Those of wide formats are also names of compute dtypes,
# with a word that says so.
CONTAINERS = re.compile(r"BFloat16|Float8|c10::(?!complex)|\bHalf\b|HPU|PrivateUse")
WIDE = re.compile(r"\bFloat(Tensor)?\b|\bDouble(Tensor)?\b|(?<!torch\.)\bfloat\b|\bdouble\b")
# PyTorch's list of accepted dtypes
TAKEN = re.compile("one of the following scalar types: [A-Za-z0-9, ]+;")


def expect_names(call, dtype, operands):
    tensors = [t for t in tree_leaves(operands) if isinstance(t, torch.Tensor)]
    if not any(t.dtype is dtype for t in tensors):
        return 0
    try:
        call()
    except Exception as error:
        message = TAKEN.sub("", str(error))
        assert not CONTAINERS.search(message), message
        assert not WIDE.search(message) or str(dtype) in message, message
        return 1
    return 0


def cast(dtype, cut=False):
    def one(t):
        if not isinstance(t, torch.Tensor) or not t.is_floating_point():
            return t
        t = t.detach().to(dtype)
        return t[..., :-1] if cut and t.dim() else t

    return one


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODULES)
def test_layers(name):
    info = MODULES[name]
    inputs = info.module_inputs_func(
        info, device="cpu", dtype=torch.float32, requires_grad=False, training=True
    )
    for sample, own in itertools.product(itertools.islice(inputs, 1), NAMES):
        dtype, made, given = torch_dtypes.dtype(own), sample.constructor_input, sample.forward_input
        if given is None:
            continue
        try:
            layer = info.module_cls(*made.args, **made.kwargs).to(dtype)
        except (TypeError, NotImplementedError):  # layers of stock dtypes only
            continue
        for change in (*(cast(other) for other in OTHERS), cast(dtype, cut=True)):
            args, kwargs = tree_map(change, (given.args, given.kwargs))
            expect_names(
                lambda a=args, k=kwargs, m=layer: m(*a, **k),
                dtype,
                (args, kwargs, list(layer.parameters()), list(layer.buffers())),
            )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "own"), thin_out(itertools.product(FUNCTIONS, NAMES), 5))
def test_functions(name, own):
    """Take the sample with the most operands. Give one at a time another dtype, or one column
    less."""
    dtype, raised, floating = (
        torch_dtypes.dtype(own),
        0,
        lambda t: isinstance(t, torch.Tensor) and t.is_floating_point(),
    )
    samples = [
        (s.input, s.args, s.kwargs)
        for s in itertools.islice(FUNCTIONS[name].sample_inputs("cpu", torch.float32), 20)
    ]
    flat, spec = tree_flatten(max(samples, key=lambda s: sum(map(floating, tree_leaves(s)))))
    for place, change in itertools.product(
        [i for i, t in enumerate(flat) if floating(t)], (*map(cast, OTHERS), cast(dtype, cut=True))
    ):
        given = [cast(dtype)(t) for t in flat]
        given[place] = change(flat[place])
        x, args, kwargs = tree_unflatten(given, spec)
        raised += expect_names(lambda: FUNCTIONS[name](x, *args, **kwargs), dtype, given)  # noqa: B023
    assert raised


@pytest.mark.parametrize("own", NAMES)
def test_operators_without_a_kernel(own):
    x = torch.ones(2, 2, dtype=torch_dtypes.dtype(own))
    for call in (
        lambda: torch.bitwise_not(x),
        lambda: x << 1,
        lambda: torch.cholesky_solve(x, x.long()),
        lambda: torch.allclose(x, x.long()),
        lambda: torch.gcd(x, x),
        lambda: torch.bincount(x[0]),
        lambda: x.expand(2),
        lambda: torch.tensor_split(x, x[0]),
        lambda: torch.float_power(x, 2, out=x),
        lambda: torch.float_power(2, x, out=x),
        lambda: torch.float_power(x, x, out=x),
    ):
        assert expect_names(call, x.dtype, [x])


@pytest.mark.parametrize("own", NAMES)
def test_integers_promote_in_no_layer(own):
    x, n = torch.ones(2, 2, dtype=torch_dtypes.dtype(own)), torch.ones(2, 2, dtype=torch.int64)
    with pytest.raises(
        RuntimeError, match=f"self torch.{own}, mat2 torch.int64. Convert mat2 with"
    ):
        torch.mm(x, n)
    assert (x * n).dtype is x.dtype

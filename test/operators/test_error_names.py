"""Errors about tensors of ours name their dtype, not the container's: layers and products with operands of wrong dtypes and wrong shapes."""

import itertools
import re
import warnings

import mixed_operand_cases as cases
import pytest
import torch
from torch.testing._internal.common_modules import module_db
from torch.utils._pytree import tree_leaves, tree_map

import torch_dtypes

NAMES = ("posit16es2", "q43", "posit32es2", "e11m30")
OTHERS = (torch.float32, torch.int64, torch.bool, torch.complex64, torch.q52)
MODULES = {info.name: info for info in module_db if "Lazy" not in info.name}

# Containers by any of PyTorch's names; those of wide formats are the names of types that they are computed in, too, with a word of what they
# stand for.
CONTAINERS = re.compile(r"BFloat16|Float8|c10::(?!complex)|\bHalf\b|HPU|PrivateUse")
WIDE = re.compile(r"\bFloat(Tensor)?\b|\bDouble(Tensor)?\b|(?<!torch\.)\bfloat\b|\bdouble\b")
TAKEN = re.compile("one of the following scalar types: [A-Za-z0-9, ]+;")  # stock's list of what an argument may be


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
    inputs = info.module_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=False, training=True)
    for sample, own in itertools.product(itertools.islice(inputs, 1), NAMES):
        dtype, made, given = torch_dtypes.dtype(own), sample.constructor_input, sample.forward_input
        if given is None:
            continue
        try:
            layer = info.module_cls(*made.args, **made.kwargs).to(dtype)
        except (TypeError, NotImplementedError):  # a layer of stock dtypes only
            continue
        for change in (*(cast(other) for other in OTHERS), cast(dtype, cut=True)):
            args, kwargs = tree_map(change, (given.args, given.kwargs))
            expect_names(lambda a=args, k=kwargs, m=layer: m(*a, **k), dtype, (args, kwargs, list(layer.parameters()), list(layer.buffers())))


@pytest.mark.parametrize("own", NAMES)
@pytest.mark.parametrize("name", cases.PRODUCTS | cases.CONVOLUTIONS | cases.NORMALISATION | cases.OTHERS)
def test_functions(name, own):
    call, shapes = cases.ALL[name]
    dtype, raised = torch_dtypes.dtype(own), 0
    for place, other in itertools.product(range(len(shapes)), OTHERS):
        operands = cases.operands(shapes, [dtype] * len(shapes))
        operands[place] = operands[place].to(other)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            raised += expect_names(lambda o=operands: call(*o), dtype, operands)
            cut = [o[..., :-1] if i == place and o.dim() else o for i, o in enumerate(cases.operands(shapes, [dtype] * len(shapes)))]
            expect_names(lambda o=cut: call(*o), dtype, cut)
    assert raised


@pytest.mark.parametrize("own", NAMES)
def test_operators_without_a_kernel(own):
    x = torch.ones(2, 2, dtype=torch_dtypes.dtype(own))
    for call in (lambda: torch.bitwise_not(x), lambda: x << 1, lambda: torch.cholesky_solve(x, x.long()), lambda: torch.allclose(x, x.long()),
                 lambda: torch.gcd(x, x), lambda: torch.bincount(x[0]), lambda: x.expand(2), lambda: torch.tensor_split(x, x[0]),
                 lambda: torch.float_power(x, 2, out=x), lambda: torch.float_power(2, x, out=x), lambda: torch.float_power(x, x, out=x)):  # fmt: skip
        assert expect_names(call, x.dtype, [x])


@pytest.mark.parametrize("own", NAMES)
def test_integers_promote_in_no_layer(own):
    x, n = torch.ones(2, 2, dtype=torch_dtypes.dtype(own)), torch.ones(2, 2, dtype=torch.int64)
    with pytest.raises(RuntimeError, match=f"self torch.{own}, mat2 torch.int64. Convert mat2 with"):
        torch.mm(x, n)
    assert (x * n).dtype is x.dtype

"""Tensors of other kinds, arrays and other objects in place of a dense floating tensor or a number:
each raises one error of this package."""

import copy
import functools
import warnings

import numpy as np
import pytest
import torch
from torch import nn

import torch_dtypes

# Places where a wrong argument is passed: each raises an error of this package before any work, or
# has a result.
PLACES = {
    "chop": lambda x: torch_dtypes.chop(x, "q43"),
    "a scaled format": lambda x: torch_dtypes.target("q43").quantize(x, scale=2.0),
    "integers": lambda x: torch_dtypes.target("int8").quantize(x, scale=0.5),
    "codes of integers": lambda x: torch_dtypes.target("int8").encode(x, scale=0.5),
    "blocks": lambda x: torch_dtypes.target("mxfp4").quantize(x),
    "scales": lambda x: torch_dtypes.target("nvfp4").scales(x),
    "HiF4": lambda x: torch_dtypes.target("hif4").quantize(x),
    "packed": lambda x: torch_dtypes.quantize(x, "nvfp4"),
    "a calibration": lambda x: torch_dtypes.calibration("int8").observe(x),
    "Cast": lambda x: torch_dtypes.Cast("q43", "q52")(x),
    "Cast of integers": lambda x: torch_dtypes.Cast(dict(format="int8", scale="free"))(x),
}
NO_TENSORS = {
    "None": None,
    "a string": "hello",
    "a list": [1.0, 2.0],
    "a class": torch.nn.Linear,
    "a dtype": torch.float32,
}


def other_tensors():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {
            "sparse": torch.eye(4).to_sparse(),
            "compressed": torch.eye(4).to_sparse_csr(),
            "nested": torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
            "complex": torch.ones(4, 32, dtype=torch.complex64),
            "quantised": torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.qint8),
            "integers": torch.ones(4, 32, dtype=torch.int64),
            "ours": torch.ones(4, 32, dtype=torch.posit16es2),
            "bool": torch.ones(4) > 0,
        }


@pytest.mark.parametrize("place", PLACES)
def test_what_is_no_dense_floating_tensor(place):
    for name, x in {**NO_TENSORS, **other_tensors()}.items():
        # test_chop_complex.py, test_chop.py
        if place == "chop" and name in ("complex", "integers", "a list"):
            continue
        with pytest.raises((TypeError, NotImplementedError), match=r"expected .*, but got") as said:
            PLACES[place](x)
        assert len(str(said.value)) < 400, name


@pytest.mark.parametrize("place", PLACES)
def test_tensors_of_every_shape_and_without_numbers(place):
    shapes = {
        "empty": torch.empty(0),
        "empty rows": torch.empty(3, 0),
        "one number": torch.tensor(1.5),
        "transposed": torch.randn(32, 4).t(),
    }
    for x in (*shapes.values(), torch.ones(1, 32).expand(4, 32), torch.ones(4, 32).half()):
        made = PLACES[place](x.clone().requires_grad_() if x.numel() else x)
        assert place == "scales" or made.shape == x.shape
    if "calibration" not in place and "Cast of" not in place:  # the scales of these are numbers
        assert PLACES[place](torch.empty(4, 32, device="meta")).shape[0] == 4


ARGUMENTS = {
    "a posit's bits": lambda x: torch_dtypes.posit_format(x, 1),
    "a float's bits": lambda x: torch_dtypes.float_format(5, x),
    "a takum's bits": lambda x: torch_dtypes.takum_format(x),
    "integers' bits": lambda x: torch_dtypes.integer_format(x),
    "a block's size": lambda x: torch_dtypes.block_format("e2m1", "e8m0", x),
    "a block's scale": lambda x: torch_dtypes.block_format("e2m1", x, 32),
    "a mode": lambda x: torch_dtypes.with_rounding(torch.q43, x),
    "a block's mode": torch_dtypes.rounding,
    "chop's mode": lambda x: torch_dtypes.chop(1.0, "q43", x),
    "a zero point": lambda x: torch_dtypes.target("int8_affine").quantize(
        torch.ones(2), scale=0.5, zero_point=x
    ),
    "codes of integers": lambda x: torch_dtypes.target("int8").decode(x, scale=0.5),
    "a product's dtype": lambda x: torch_dtypes.matmul(
        torch.ones(1, 1).to(torch.q43), torch.ones(1, 1).to(torch.q43), out=x
    ),
    "a table": torch_dtypes.table_format,
}


@pytest.mark.parametrize("place", ARGUMENTS)
def test_tensors_and_arrays_where_something_else_is_expected(place):
    values = [
        torch.full((4, 32), 1.5),
        np.full((4, 32), 1.5),
        torch.ones(4, device="meta"),
        *other_tensors().values(),
    ]
    for x in values:
        if (
            place == "codes of integers"
            and isinstance(x, torch.Tensor)
            and x.dtype in (torch.int64, torch.bool)
        ):
            continue
        with pytest.raises((TypeError, ValueError), match=r"expected .*but got") as said:
            ARGUMENTS[place](x)
        assert len(str(said.value)) < 500


def test_a_table_of_several_dimensions_is_read_row_by_row():
    values = [[0.0, 1.0], [-1.0, 0.25]]
    made = torch_dtypes.table_format([0.0, 1.0, -1.0, 0.25])
    assert (
        torch_dtypes.table_format(np.array(values))
        is made
        is torch_dtypes.table_format(torch.tensor(values))
    )


def test_layers_of_integers_and_of_policies_given_no_floating_tensor():
    layer = torch.nn.Linear(2, 2)
    torch_dtypes.quantize_(
        layer,
        {
            torch.nn.Linear: dict(
                weight="int8", activation=dict(format="int8", when="call"), arithmetic="integer"
            )
        },
    )
    with pytest.raises(
        TypeError,
        match=r"expected a floating tensor as the input of a layer with arithmetic='integer', but "
        r"got torch\.int64",
    ):
        layer(torch.ones(2, 2, dtype=torch.int64))
    for rule in (
        dict(weight="q43", accumulate="exact"),
        dict(weight="int8", activation=dict(format="int8", when="call"), arithmetic="integer"),
    ):
        torch_dtypes.quantize_(layer, {torch.nn.Linear: rule})
        # PyTorch's own error of a linear layer
        with pytest.raises(TypeError, match="must be Tensor, not list"):
            layer([1.0, 2.0])


def test_what_block_tensors_have_none_of():
    made = torch_dtypes.quantize(torch.ones(2, 32), "mxfp4")
    for call in (lambda: made.to(torch.float16), lambda: made.view(64), lambda: made.sum()):
        with pytest.raises(
            AttributeError,
            match=r"expected an attribute of a BlockTensor, but got '.*'; dequantize\(\) gives "
            r"a tensor",
        ):
            call()
    with pytest.raises(AttributeError, match=r"but got 'nothing'$"):
        made.nothing  # noqa: B018
    for call in (lambda: made[0], lambda: list(made)):
        with pytest.raises(TypeError, match=r"expected no index of a BlockTensor, .* but got one"):
            call()
    assert torch.equal(copy.deepcopy(made).dequantize(), made.dequantize())


def test_samples_and_losses_and_files_of_other_things():
    other = other_tensors()
    kinds = [other[name] for name in ("sparse", "nested", "complex", "quantised")]
    for x in (
        None,
        "hello",
        3.5j,
        torch.float32,
        [torch.ones(2), torch.ones(3)],
        [torch.ones(2), None],
        *kinds,
    ):
        with pytest.raises(TypeError, match=r"expected samples as .*, but got"):
            torch_dtypes.significant_digits(x)
    found = [
        torch_dtypes.significant_digits(x).bits
        for x in (torch.eye(3) + 2, list(torch.eye(3) + 2), (np.eye(3) + 2).tolist())
    ]
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], 0.1)
    for loss in (*NO_TENSORS.values(), other["complex"], other["integers"]):
        with pytest.raises(
            TypeError, match=r"expected the loss as a tensor of real numbers, but got"
        ):
            torch_dtypes.optim.LowPrecision(optimizer, grad_scale=2.0).scale(loss)
    with pytest.raises(
        TypeError,
        match=r"expected grad_scale as a number, but got a ndarray of float64 and shape \(4, 32\)",
    ):
        torch_dtypes.optim.LowPrecision(optimizer, grad_scale=np.ones((4, 32)))
    for tensors in (*NO_TENSORS.values(), torch.ones(2)):
        with pytest.raises(
            TypeError,
            match=r"expected a mapping of names to tensors, but got",
        ):
            torch_dtypes.save_safetensors(tensors, "nowhere.safetensors")


@pytest.mark.parametrize("mode", [None, "sum", "mean"])
def test_sparse_gradients(mode):
    make = (
        torch.nn.Embedding if mode is None else functools.partial(torch.nn.EmbeddingBag, mode=mode)
    )
    words = make(4, 3, sparse=True).to(torch.posit16es2)
    with pytest.raises(
        NotImplementedError,
        match=r"embedding.*posit16es2: there are no sparse tensors of number formats; leave out "
        r"sparse=True",
    ):
        words(torch.tensor([[0, 1]])).sum().backward()


@pytest.mark.parametrize("policy", ["format", "exact", "chunked(4)", "block(4)"])
def test_products_across_devices(policy):
    """The kernels of products take pointers."""
    x = torch.ones(2, 3, dtype=torch.posit16es2)
    there = x.to("meta")
    image, kernel = (
        torch.ones(1, 1, 4, 4, dtype=torch.posit16es2),
        torch.ones(1, 1, 2, 2, dtype=torch.posit16es2),
    )
    with torch_dtypes.accumulate(policy):
        for call in (
            lambda: x @ there.T,
            lambda: there @ x.T,
            lambda: torch.addmm(there[:, :2], x, x.T),
            lambda: nn.functional.linear(x, x, there[:, 0]),
            lambda: nn.functional.conv2d(image, kernel.to("meta")),
            lambda: nn.functional.conv2d(image, kernel, there[0, :1]),
        ):
            with pytest.raises(RuntimeError, match="on the same device"):
                call()


def test_results_are_not_written_to_another_device():
    """Stock PyTorch refuses too: otherwise a result would be copied from a GPU to the host
    unnoticed."""
    x = torch.ones(3, dtype=torch.posit16es2)
    for call in (
        torch.add,
        torch.div,
        lambda a, b, out: torch.sqrt(a, out=out),
        lambda a, b, out: torch.addcmul(a, a, b, out=out),
    ):
        with pytest.raises(RuntimeError, match="on the same device"):
            call(x, x, out=torch.empty(3, dtype=x.dtype, device="meta"))


def test_neighbours_across_devices():
    x = torch.ones(2, 3, dtype=torch.posit16es2)
    for call in (
        lambda: x.nextafter(x.to("meta")),
        lambda: x.to("meta").nextafter(x),
        lambda: torch.nextafter(torch.ones(2, 3), x.to("meta")),
    ):
        with pytest.raises(RuntimeError, match=r"on the same device|not on the expected device"):
            call()
    for number in (torch.tensor(2.0, device="cpu"), torch.tensor(2.0, dtype=x.dtype, device="cpu")):
        result = x.to("meta").nextafter(number)
        assert result.device.type == "meta" and result.dtype is x.dtype

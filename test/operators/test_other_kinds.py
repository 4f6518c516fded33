"""Objects other than PyTorch's tensors that define calls by ``__torch_function__``, with a format
dtype among the arguments."""

import numpy
import pytest
import torch
import torch.nn.functional as F
from conftest import parametrize_dtypes

from torch_dtypes.host import install
from torch_dtypes.host.table import Kind


class Wrapped:
    """A holder of a tensor without a tensor's methods."""

    def __init__(self, held):
        self.held = held

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return cls(function(*(x.held if isinstance(x, cls) else x for x in args), **(kwargs or {})))


CALLS = {
    "sum": lambda x, d: torch.sum(x, dtype=d),
    "mean": lambda x, d: torch.mean(x, dtype=d),
    "cumsum": lambda x, d: torch.cumsum(x, 0, dtype=d),
    "softmax": lambda x, d: torch.softmax(x, 0, dtype=d),
    "log_softmax": lambda x, d: F.log_softmax(x, 0, dtype=d),
    "zeros_like": lambda x, d: torch.zeros_like(x, dtype=d),
    "empty_like": lambda x, d: torch.empty_like(x, dtype=d),
    "full_like": lambda x, d: torch.full_like(x, 2.0, dtype=d),
    "rand_like": lambda x, d: torch.rand_like(x, dtype=d),
}


@pytest.mark.parametrize("name", CALLS)
def test_it_is_asked(name):
    x = torch.tensor([1.0, 2.0, 0.5])
    for dtype in (torch.bfloat16, torch.q43, torch.posit16es2):
        torch.manual_seed(0)
        found = CALLS[name](Wrapped(x), dtype)
        assert isinstance(found, Wrapped) and found.held.dtype is dtype
        torch.manual_seed(0)
        if name != "empty_like":
            assert torch.equal(found.held, CALLS[name](x, dtype))


class Answering(torch.Tensor):
    """A tensor that returns the function of a call and computes nothing."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return "asked", function.__name__


def ways_to_call(x, d):
    """Yield arguments, x among them, of the functions for which PyTorch asks classes."""
    for rest in (
        (),
        (2,),
        (0,),
        (x,),
        ((2,), (1,)),
        ((2,),),
        ((2,), 3.0),
        (lambda a: a,),
        (x, lambda a, b: a),
        (x, x, lambda a, b, c: a),
    ):
        yield (x, *rest), {}
        yield (x, *rest), {"dtype": d}
    for args in (
        (2,),
        ((2,),),
        ((2,), (1,)),
        ((2,), (1, 0)),
        (3, (2,)),
        (0.0, 1.0, (2,)),
        (0, 2),
        (0, 1, 3),
        ((2,), 3.0),
    ):
        yield args, {"out": x}
    yield (x, 1, 3), {"dtype": d}
    yield (d,), {}


@pytest.mark.parametrize("own", [True, False], ids=["ours", "float32"])
@pytest.mark.parametrize(
    "row",
    [row for row in install.list_hooks() if row.kind is Kind.ASKING],
    ids=lambda row: row.target,
)
def test_a_class_is_asked_before_anything_is_computed(row, own):
    """Each C++ function that this package implements is called in every possible way."""
    answers = set()
    x = torch.ones(2, dtype=torch.posit16es2 if own else torch.float32).as_subclass(Answering)
    owner, stock = row.find()
    for args, kwargs in ways_to_call(x, torch.posit16es2):
        if isinstance(owner, type) and args[:1] != (x,):
            args = (x, *args)
        try:
            answers.add(stock(*args, **kwargs))
        except TypeError:  # PyTorch's error for arguments that it does not take
            continue
    assert {answer[0] for answer in answers} == {"asked"} and len(
        {answer[1] for answer in answers}
    ) == 1


@parametrize_dtypes("bfloat16 posit16es2 q43")
def test_a_subclass_that_asks_for_nothing_else_gets_its_results(dtype):
    class Plain(torch.Tensor):
        pass

    x = torch.tensor([1.0, 2.0, 0.5]).as_subclass(Plain)
    results = (
        torch.sum(x, dtype=dtype),
        x.softmax(0, dtype=dtype),
        torch.zeros_like(x, dtype=dtype),
        x.new_ones(2, dtype=dtype),
        x.to(x.to(dtype)),
    )
    for made in results:
        assert type(made) is Plain and made.dtype is dtype
    assert x.sum(dtype=dtype).item() == 3.5 and x.to(dtype).tolist() == [1.0, 2.0, 0.5]


@parametrize_dtypes("bfloat16 posit16es2 q43")
def test_result_type_takes_tensors_and_numbers(dtype):
    x = torch.ones(2, dtype=dtype)
    for number in (2, 2.5, True, numpy.float64(2.5), numpy.float32(2.5), numpy.int64(2)):
        assert torch.result_type(x, number) is torch.result_type(number, x) is dtype, repr(number)
    assert torch.result_type(torch.ones(2, dtype=torch.int64), x) is dtype
    for wrong in ((x, "a"), (x, None), (x, [2.5]), (x, dtype), (x, numpy.ones(2)), (x,), (x, x, x)):
        with pytest.raises(TypeError, match="result_type"):
            torch.result_type(*wrong)
    answers = type(
        "Answers",
        (),
        {
            "__torch_function__": classmethod(
                lambda cls, function, types, args=(), kwargs=None: function
            )
        },
    )
    assert torch.result_type(x, answers()) is torch.result_type(answers(), x) is torch.result_type


@parametrize_dtypes("q43 posit32es2")
def test_factories_of_other_kinds_name_the_dtype_that_they_refuse(dtype):
    x = torch.ones(2, dtype=dtype)
    for call in (
        lambda: torch.sparse_csr_tensor([0, 1, 2], [0, 1], x),
        lambda: torch.sparse_coo_tensor([[0, 1]], [1.0, 2.0], dtype=dtype),
        lambda: torch.nested.nested_tensor([x, x]),
        lambda: torch.nested.nested_tensor([[1.0]], dtype=dtype),
    ):
        with pytest.raises(
            NotImplementedError, match=f"got {dtype}, which has no (sparse|nested) tensors"
        ):
            call()

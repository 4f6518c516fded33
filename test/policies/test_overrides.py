"""The context managers rounding() and accumulate() as objects: used again, within themselves, in
threads, as decorators, in recomputation."""

import contextlib
import dataclasses
import inspect
import re
import threading
import typing

import pytest
import torch

import torch_dtypes
from torch_dtypes import accumulate, rounding


def rounded_up():
    return torch.tensor([1.05], dtype=torch.q43).item() > 1


def stops_at_eight():
    """Adding ones to 8 in q52 stops when every sum is rounded."""
    return torch.ones(1, 20, dtype=torch.q52).mm(torch.ones(20, 1, dtype=torch.q52)).item() == 8


# what makes the context manager, whether it holds, one that undoes it
KINDS = {
    "rounding": (lambda: rounding("up"), rounded_up, lambda: rounding("down")),
    "accumulate": (lambda: accumulate("format"), stops_at_eight, lambda: accumulate("machine")),
}
each_kind = pytest.mark.parametrize("make, holds, undo", KINDS.values(), ids=KINDS)


@each_kind
def test_one_object_can_be_used_again_and_within_itself(make, holds, undo):
    block, other = make(), undo()
    for _ in range(3):
        with block as bound:
            assert bound is None and holds()
            with other:
                assert not holds()
                with block, block:
                    assert holds()
                    with contextlib.suppress(KeyError), other:
                        assert not holds()
                        raise KeyError
                    assert holds()
                assert not holds()
            assert holds()
        assert not holds()


@each_kind
@pytest.mark.filterwarnings("ignore:expected (something to be rounded|a sum)")
def test_a_decorator_holds_for_each_call_recursion_included(make, holds, undo):
    block = make()

    @block
    def inside(depth):
        """Its docstring."""
        with undo():
            deeper = inside(depth - 1) if depth else True
        return holds() and deeper

    assert inside(3) and inside(0) and not holds()
    assert inside.__name__ == "inside" and inside.__doc__ == "Its docstring."
    assert block(holds)() and not holds()


@each_kind
def test_a_decorator_refuses_functions_that_run_later(make, holds, undo):
    def generator():
        yield

    async def coroutine():
        pass

    async def both():
        yield

    for function in (generator, coroutine, both):
        with pytest.raises(
            TypeError, match="expected a function that runs when it is called, but got <function"
        ):
            make()(function)


@each_kind
@pytest.mark.filterwarnings("ignore:expected (something to be rounded|a sum)")
def test_one_object_serves_two_threads_at_once(make, holds, undo):
    block, turns, results = make(), threading.Barrier(2, timeout=60), []

    def other_thread():
        results.append(holds())  # the first thread is inside
        with undo():
            turns.wait()
            with block:
                results.append(holds())
                turns.wait()  # the first thread leaves its block
                turns.wait()
                results.append(holds())
            results.append(holds())

    thread = threading.Thread(target=other_thread)
    with block:
        thread.start()
        turns.wait()
        turns.wait()
    results.append(holds())
    turns.wait()
    thread.join()
    assert results == [False, True, False, True, False]


def test_arguments_are_checked_at_the_call():
    with pytest.raises(ValueError, match="expected a rounding mode"):
        rounding("sideways")
    with pytest.raises(ValueError, match="expected an accumulation policy"):
        accumulate("carefully")


@each_kind
def test_an_end_without_a_beginning_on_its_thread_is_an_error(make, holds, undo):
    block, errors = make(), []
    with pytest.raises(
        RuntimeError, match="expected a block to end on the thread on which it began"
    ):
        block.__exit__(None, None, None)

    def other_thread():
        with pytest.raises(RuntimeError, match="end without a beginning") as raised:
            block.__exit__(None, None, None)
        errors.append(raised.value)

    with block:
        thread = threading.Thread(target=other_thread)
        thread.start()
        thread.join()
        assert holds()
    assert len(errors) == 1 and not holds()


def test_an_unknown_option_of_accumulate_is_an_error():
    for policy, value in (("format", 1), (torch_dtypes.Accumulation("exact"), None)):
        with pytest.raises(TypeError, match=r"expected an option among chunk, .* but got wrong="):
            accumulate(policy, wrong=value)


def test_they_are_functions_with_their_parameters_and_docstrings():
    assert (
        str(inspect.signature(rounding)).startswith("(mode: 'str | int') -> ")
        and "Round every result" in rounding.__doc__
    )
    (options,) = typing.get_args(typing.get_type_hints(accumulate)["options"])
    names = [field.name for field in dataclasses.fields(torch_dtypes.Accumulation)]
    assert list(inspect.signature(accumulate).parameters) == ["policy", "options"]
    assert ["policy", *options.__annotations__] == names
    assert names == [
        "policy",
        "chunk",
        "product",
        "accumulator",
        "fused",
        "kahan",
        "rounding",
        "order",
        "outer",
        "terms",
        "extra_bits",
        "register",
        "align",
        "interleave",
        "late",
        "min_exponent",
        "product_limit",
    ]
    assert (
        inspect.isfunction(rounding)
        and inspect.isfunction(accumulate)
        and "Add up dot products" in accumulate.__doc__
    )
    assert torch_dtypes.rounding is rounding and torch_dtypes.accumulate is accumulate


def test_settings_that_are_gone_name_the_other_way():
    for name, way in torch_dtypes._REMOVED.items():
        with pytest.raises(
            AttributeError, match=rf"but got {name}, which 0\.2\.0 removed; {re.escape(way)}"
        ):
            getattr(torch_dtypes, name)
    with pytest.raises(AttributeError, match="module 'torch_dtypes' has no attribute 'no_name'"):
        getattr(torch_dtypes, "no_name")  # noqa: B009

"""A block of rounding() or accumulate() that changes nothing says so, and how to reach what runs in
it."""

from __future__ import annotations

import threading
import warnings

import pytest
import torch
from torch import nn

import torch_dtypes
from torch_dtypes import accumulate, rounding

BLOCKS = {
    "rounding": lambda: rounding("up"),
    "accumulate": lambda: accumulate("format", accumulator="e5m7"),
}
IDLE = (
    r"expected (something to be rounded|a sum of).* in the block of "
    r"(rounding\('up'\)|accumulate\(format\(accumulator=e5m7\)\)), but got none"
)


def products(dtype):
    model, x = nn.Linear(4, 3).to(dtype), torch.ones(2, 4).to(dtype)
    return lambda: model(x).sum().backward()


@pytest.mark.parametrize("block", BLOCKS)
def test_stock_code_in_a_block_is_said_where_it_ends(block):
    run = products(torch.float32)
    with pytest.warns(UserWarning, match=IDLE) as said, BLOCKS[block]():
        run()
    assert len(said) == 1 and said[0].filename == __file__
    for way in ("e8m23", "quantize_", "fuzzy"):
        assert way in str(said[0].message)
    with pytest.warns(UserWarning, match=IDLE) as said:
        BLOCKS[block]()(run)()
    assert said[0].filename == __file__


@pytest.mark.parametrize("block", BLOCKS)
def test_what_obeys_a_block_says_nothing(block):
    backward = products(torch.q43)
    model = nn.Linear(4, 3)
    rounds = (
        {"weight": "int8", "activation": "q43"}
        if block == "rounding"
        else {"weight": "q43", "activation": "q43"}
    )
    torch_dtypes.quantize_(model, {nn.Linear: rounds}, calibrate=[torch.ones(2, 4)])
    ways = [backward, products(torch_dtypes.dtype("e8m23")), lambda: model(torch.ones(2, 4))]
    if block == "rounding":
        ways += [
            lambda: torch_dtypes.chop(torch.ones(2) / 3, "q43"),
            lambda: torch.ones(3).to(torch.q43),
        ]
    ways.append(lambda: [products(torch.float32)(), backward()])
    for run in ways:
        with BLOCKS[block]():
            run()
    loss = nn.Linear(4, 3).to(torch.q43)(torch.ones(2, 4).to(torch.q43)).sum()
    with BLOCKS[block]():  # the backward pass alone
        loss.backward()
    # Uses in the inner block count for the outer one too.
    with BLOCKS[block](), BLOCKS[block]():
        backward()


@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_that_an_exception_leaves_says_nothing(block):
    with pytest.raises(KeyError), BLOCKS[block]():
        raise KeyError
    worker = threading.Thread(target=products(torch.q43))  # a block is its own thread's
    with pytest.warns(UserWarning, match=IDLE), BLOCKS[block]():
        worker.start()
        worker.join()


def test_one_kind_of_block_is_not_the_other():
    with rounding("up"):
        torch.ones(3).to(torch.q43)
        with pytest.warns(UserWarning, match="a sum of a number format"), accumulate("exact"):
            torch.ones(3).to(torch.q43)


def test_this_package_s_own_blocks_say_nothing():
    """Some of them round nothing: a loss scale in float32, what is moved by codes, a fuzzy block's
    operators."""
    model = nn.Linear(4, 3)
    optimizer = torch_dtypes.optim.LowPrecision(
        torch.optim.Adam(model.parameters()), grad_scale=8.0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer.scale(model(torch.ones(2, 4)).sum()).backward()
        optimizer.step()
        with torch_dtypes.fuzzy(model, "stochastic", level="instruction"):
            model(torch.ones(2, 4)).argmax()

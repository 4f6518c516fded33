"""PyTorch's listings of graphs and calls name format dtypes: torch.fx, checkpoint(debug=True),
DebugMode."""

import logging

import pytest
import torch
from conftest import parametrize_dtypes
from torch import fx, nn
from torch.fx.passes.shape_prop import ShapeProp
from torch.utils._debug_mode import DebugMode
from torch.utils.checkpoint import checkpoint

every_dtype = parametrize_dtypes("posit16es2 q43 e5m6")


def name(dtype):
    return str(dtype).removeprefix("torch.")


@pytest.mark.skipif(not hasattr(torch.float16, "abbr"), reason="not in this version of torch")
@every_dtype
def test_short_name(dtype):
    assert dtype.abbr == name(dtype) and torch.float16.abbr == "f16"


@every_dtype
def test_graphs(dtype):
    graph = fx.symbolic_trace(nn.Linear(3, 4).to(dtype))
    ShapeProp(graph).propagate(torch.ones(5, 3).to(dtype))
    assert f'"{name(dtype)}[5, 3]"' in graph.print_readable(print_output=False)
    assert f'"{name(dtype)}[5, 3]"' in graph.graph.python_code("self", verbose=True).src


@every_dtype
def test_checkpoints(dtype, monkeypatch):
    # Its records are none that pytest's handler could format.
    monkeypatch.setattr(logging.getLogger("LoggingTensor"), "propagate", False)
    layer, x = nn.Linear(3, 4).to(dtype), torch.ones(5, 3).to(dtype)
    y = checkpoint(layer, x, use_reentrant=False, debug=True)
    y.sum().backward()
    assert y.dtype is dtype and layer.weight.grad.dtype is dtype


@every_dtype
def test_debug_mode(dtype):
    layer, x = nn.Linear(3, 4).to(dtype), torch.ones(5, 3).to(dtype)
    with DebugMode() as mode:
        layer(x)
    assert f"{name(dtype)}[5, 3]" in mode.debug_string()

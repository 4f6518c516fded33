"""Tensors stay on their device, whatever torch.set_default_device says: code that makes another
tensor names the device.

The default is `meta` here, which holds no numbers. Code that forgot the device raises, or ends
without a number."""

import numpy as np
import pytest
import torch
from torch import nn

import torch_dtypes
from torch_dtypes.host import releases

BLOCKS = [
    "mxfp8_e4m3",
    "mxfp6_e3m2",
    "mxfp6_e2m3",
    "mxfp4",
    "mxint8",
    "nvfp4",
    "hif4",
    "bfp8_dim0",
    "block<e2m1finite,posit8es1,32>",
]
TARGETS = ["q43", "posit8es1", "int8", "takum8_linear", "nf4", "hif8"]


def numbers(*shape):
    return torch.linspace(-3, 3, torch.Size(shape).numel(), device="cpu").reshape(shape)


def train(dtype, make, wrap=lambda optimizer: optimizer):
    torch.manual_seed(0)
    with torch.device("cpu"):
        model = nn.Sequential(nn.Linear(8, 6), nn.LayerNorm(6), nn.GELU(), nn.Linear(6, 3)).to(
            dtype
        )
    optimizer = wrap(make(model.parameters()))
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(numbers(4, 8).to(dtype)).square().mean()
        (optimizer.scale(loss) if hasattr(optimizer, "scale") else loss).backward()
        optimizer.step()
    return [*model.parameters()]


def quantize(rule, **options):
    torch.manual_seed(0)
    with torch.device("cpu"):
        model = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))
    torch_dtypes.quantize_(model, {nn.Linear: rule}, **options)
    y = model(numbers(8, 32))
    y.sum().backward()
    return [y, *(p.grad for p in model.parameters())]


def observe():
    with torch.device("cpu"):
        model = nn.Linear(4, 3).to(torch.q43)
    with torch_dtypes.observe(model) as stats:
        model(numbers(2, 4).to(torch.q43)).sum().backward()
    return str(stats.table())


def fuzz():
    with torch.device("cpu"):
        model = nn.Linear(4, 3)
    with torch_dtypes.fuzzy(model, "stochastic", seed=3):
        return model(numbers(2, 4))


def compile_function():
    torch._dynamo.reset()
    function = torch.compile(lambda t: (torch.tanh(t) * t, t + 1), backend="eager")
    x = numbers(4).to(torch.q43).requires_grad_()
    y, _ = function(x)
    y.backward(y.detach())
    return [y, x.grad]


Q43 = dict(weight="q43", activation="q43", error="q52", grad="q52")
CASES = {
    **{
        f"block {name}": lambda name=name: torch_dtypes.target(name).quantize(numbers(2, 64))
        for name in BLOCKS
    },
    **{
        f"packed {name}": lambda name=name: torch_dtypes.quantize(numbers(2, 64), name).dequantize()
        for name in BLOCKS[:7]
    },
    "packed without elements": lambda: torch_dtypes.quantize(
        numbers(0, 64), "mxfp6_e3m2"
    ).dequantize(),
    **{
        f"target {name}": lambda name=name: torch_dtypes.target(name).quantize(
            numbers(2, 8), scale=0.5
        )
        for name in TARGETS
    },
    "chop of a number": lambda: torch_dtypes.chop(0.3, "q43"),
    "chop of bits": lambda: torch_dtypes.chop(numbers(9), "posit16es2", rounding="up"),
    "values of a table": lambda: np.asarray(numbers(5).to(torch_dtypes.dtype("nf4"))).tolist(),
    "card": lambda: str(torch_dtypes.card("q43")),
    "rules": lambda: quantize(Q43),
    "rules under a policy": lambda: quantize(dict(**Q43, accumulate="format")),
    "integers": lambda: quantize(
        dict(weight="int8", activation="int8"), calibrate=[numbers(8, 32)]
    ),
    "blocks": lambda: quantize(dict(weight="mxfp4", activation="mxfp8_e4m3", grad="hif4")),
    "observe": observe,
    "fuzzy": fuzz,
    "compile": compile_function,
    **{
        f"{name} {options}": lambda make=make, options=options: train(
            torch.q52, lambda p: make(p, lr=0.1, **options)
        )
        for name, make in {
            "Adam": torch.optim.Adam,
            "AdamW": torch.optim.AdamW,
            "SGD": torch.optim.SGD,
        }.items()
        for options in ({"foreach": False}, {"foreach": True}, {"fused": True})
    },
    "masters": lambda: train(
        torch.q52,
        torch.optim.Adam,
        lambda o: torch_dtypes.optim.LowPrecision(o, grad_scale="dynamic"),
    ),
    "states": lambda: train(
        torch.q43,
        lambda p: torch.optim.SGD(p, 0.1, momentum=0.9),
        lambda o: torch_dtypes.optim.LowPrecision(o, state="q52"),
    ),
}


ADAMS = {name for name in CASES if name.startswith("Adam") and "fused" not in name} | {"masters"}


def leaves(found):
    return [
        t.detach() if isinstance(t, torch.Tensor) else t
        for t in (found if isinstance(found, list) else [found])
    ]


@pytest.mark.parametrize("case", CASES)
def test_results_are_the_same(case):
    torch.manual_seed(1)
    # Their loops count steps on the default device. Stock PyTorch raises too.
    if case in ADAMS and releases.RUNNING < (2, 13):
        with (
            torch.device("meta"),
            pytest.raises(
                RuntimeError, match=r"cannot be called on meta tensors|must be on the same device"
            ),
        ):
            CASES[case]()
        return
    with torch.device("meta"):  # first, so that no cached value comes from another device
        found = leaves(CASES[case]())
    torch.manual_seed(1)
    expected = leaves(CASES[case]())
    for a, b in zip(found, expected, strict=True):
        if isinstance(b, torch.Tensor):
            assert a.device.type == "cpu"
            with torch.device("cpu"):
                assert torch.equal(a, b)
        else:
            assert a == b

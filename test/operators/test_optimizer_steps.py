"""Steps of SGD, Adam and AdamW in one pass over memory have the bits of PyTorch's loop of single
operators."""

from __future__ import annotations

import itertools
import sys

import pytest
import torch
from representatives import thin_out
from torch.optim import adam, sgd

import torch_dtypes

# The functions underneath use eps as given.
pytestmark = pytest.mark.usefixtures("eps_as_given")
DTYPES = [
    "posit16es2",
    "q43",
    "posit32es2",
    "e5m7",
    "posit8es0",
    "posit16es1",
    "tf32",
    "fixed8_8",
    "e4m3fnuz",
]
MODES = ["nearest_even", "down", "up", "to_odd", "stochastic", "up_down"]
SETTINGS = {
    "SGD": [
        {},
        {"momentum": 0.9},
        {"momentum": 0.5, "dampening": 0.1, "weight_decay": 0.01, "maximize": True},
        {"momentum": 0.9, "nesterov": True, "weight_decay": 0.5},
    ],
    "Adam": [
        {},
        {"amsgrad": True, "weight_decay": 0.01},
        {"maximize": True, "betas": (0.5, 0.0)},
        {"weight_decay": 0.1, "maximize": True, "eps": 0.01},
    ],
    "AdamW": [{}, {"amsgrad": True, "maximize": True}, {"weight_decay": 0.0, "betas": (0.0, 0.5)}],
}
PLAIN = {
    "weight_decay": 0.0,
    "momentum": 0.0,
    "lr": 0.5,
    "dampening": 0.0,
    "nesterov": False,
    "maximize": False,
    "is_first_step": False,
}
SHAPES = [(40, 33), (1,), (3, 5, 7), (0,), ()]


def loops():
    """Return PyTorch's own functions, without this package's replacements in front of them."""
    found = {"_single_tensor_adam": adam, "_single_tensor_sgd": sgd}
    return {
        name: (module, getattr(getattr(module, name), "__wrapped__", getattr(module, name)))
        for name, module in found.items()
    }


def run(optimizer, dtype, ways, settings, shapes=SHAPES, steps=4, layout=lambda t: t):
    generator = torch.Generator().manual_seed(3)
    torch.manual_seed(11)
    p = [layout(torch.randn(s, generator=generator).to(dtype)).requires_grad_() for s in shapes]
    optim = getattr(torch.optim, optimizer)(p, lr=0.1, **settings, **ways)
    for k in range(steps):
        for i, t in enumerate(p):
            if i != 1 or k > 0:  # one parameter starts later
                t.grad = layout(torch.randn(t.shape, generator=generator).to(dtype))
        optim.step()
    states = [
        x
        for t in p
        for x in optim.state[t].values()
        if isinstance(x, torch.Tensor) and torch_dtypes.is_format_dtype(x.dtype)
    ]
    # The sign of a NaN depends on the processor.
    return [
        torch_dtypes.codes(t.detach()).masked_fill(t.detach().isnan(), 0) for t in (*p, *states)
    ]


def by_loop(monkeypatch, *arguments, **named):
    with monkeypatch.context() as patch:
        for name, (module, function) in loops().items():
            patch.setattr(module, name, function)
        return run(arguments[0], arguments[1], {"foreach": False}, *arguments[2:], **named)


def assert_equal(found, expected):
    assert len(found) == len(expected) > 0
    for a, b in zip(found, expected, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize(("name", "mode"), thin_out(itertools.product(DTYPES, MODES), 5))
def test_the_loops_bits(monkeypatch, name, mode):
    dtype = torch_dtypes.dtype(name)
    with torch_dtypes.rounding(mode):
        for optimizer, many in SETTINGS.items():
            for settings in many:
                expected = by_loop(monkeypatch, optimizer, dtype, settings)
                ways = (
                    [{"foreach": False}]
                    if mode in ("stochastic", "up_down")
                    else [{"foreach": False}, {"foreach": True}, {"fused": True}]
                )
                for way in ways:
                    assert_equal(run(optimizer, dtype, way, settings), expected)


@pytest.mark.parametrize("threads", thin_out([2, 1]))
@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("posit16es2", None),
        ("q43", None),
        ("e5m7", "down"),
        ("posit16es2", "stochastic"),
        ("posit32es2", None),
        ("q52", None),
        ("posit8es0", "up"),
    ],
)
def test_many_elements(monkeypatch, name, mode, threads):
    """With many elements tables are worth their cost, and threads share the work."""
    dtype, before = torch_dtypes.dtype(name), torch.get_num_threads()
    shapes = [(270_001,), (50, 50)]
    torch.set_num_threads(threads)
    try:
        with torch_dtypes.rounding(mode or "nearest_even"):
            for optimizer, many in SETTINGS.items():
                expected = by_loop(monkeypatch, optimizer, dtype, many[1], shapes=shapes, steps=3)
                assert_equal(run(optimizer, dtype, {}, many[1], shapes=shapes, steps=3), expected)
    finally:
        torch.set_num_threads(before)


CAPTURABLE = ["Adam", "AdamW", "Adadelta", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop"]


@pytest.mark.parametrize("name", ["posit16es2", "q43", "e5m5"])
@pytest.mark.parametrize("optimizer", CAPTURABLE)
def test_capturable_steps_have_the_loops_bits(monkeypatch, optimizer, name):
    """For lists, PyTorch's formula of RAdam divides by 0, which a posit turns into NaN."""
    on_cpu, one_pass = torch.empty(()).is_cpu, optimizer in ("Adam", "AdamW")
    if on_cpu and one_pass:
        pytest.skip("runs on a GPU alone")
    if on_cpu:  # stock PyTorch refuses without a reason
        module = sys.modules[getattr(torch.optim, optimizer).__module__]
        monkeypatch.setattr(
            module, "_get_capturable_supported_devices", lambda supports_xla=True: ["cpu"]
        )
    dtype = torch_dtypes.dtype(name)
    for settings in ({"capturable": True}, {"capturable": True, "weight_decay": 0.1}):
        if optimizer == "Rprop":
            settings.pop("weight_decay", None)
        expected = run(optimizer, dtype, {"foreach": False}, settings)
        for way in ({"foreach": True}, {"fused": True})[: 2 if one_pass else 1]:
            assert_equal(run(optimizer, dtype, way, settings), expected)


EVERY = ["q52", "q43", "posit8es0", "posit8es2", "e4m3fnuz", "posit16es2"]


@pytest.mark.parametrize(
    ("name", "mode"), thin_out(itertools.product(EVERY, ["nearest_even", "down", "to_odd"]), 5)
)
def test_tables_of_every_code(name, mode):
    """With many elements, results come from tables by the codes of one or two operands; with few,
    they do not."""
    dtype, generator = torch_dtypes.dtype(name), torch.Generator().manual_seed(5)
    code_type, count, few = (
        (torch.uint8, 256, 1000) if "16" not in name else (torch.int16, 2**16, 10_000)
    )
    # Zeros and the smallest and largest codes, so that these meet.
    often = torch.tensor([0, 1, count // 2 - 1, count // 2, count // 2 + 1, count - 1])
    lists = []
    for _ in range(5):
        drawn = torch.randint(count, (300_000,), generator=generator)
        drawn[::2] = often[torch.randint(len(often), (150_000,), generator=generator)]
        lists.append(drawn[torch.randperm(300_000, generator=generator)].to(code_type))
    sgd_settings = [
        {"momentum": 0.9},
        {
            "momentum": 0.5,
            "dampening": 0.1,
            "weight_decay": 0.01,
            "maximize": True,
            "nesterov": True,
        },
    ]
    adam_settings = {
        "lr": 1e-3,
        "beta1": 0.9,
        "beta2": 0.999,
        "weight_decay": 0.0,
        "eps": 1e-4,
        "amsgrad": False,
        "maximize": False,
    }

    def make_lists():
        return [torch_dtypes.from_codes(t.clone(), dtype) for t in lists]

    def pieces(tensors):
        return zip(*(t.split(few) for t in tensors), strict=True)

    def adam_step(step, w, g, m, v, largest, **settings):
        of_step = [torch.tensor(3.0)]
        step([w], [g], [m], [v], [largest] if settings["amsgrad"] else [], of_step, **settings)

    with torch.no_grad(), torch_dtypes.rounding(mode):
        for change in (
            {},
            {"amsgrad": True, "weight_decay": 0.1},
            {"maximize": True},
            {"lr": 0.5, "beta1": 0.5, "eps": 1e-9},
        ):
            for step in (torch._fused_adam_, torch._fused_adamw_):
                many, expected = make_lists(), make_lists()
                adam_step(step, *many, **{**adam_settings, **change})
                for piece in pieces(expected):
                    adam_step(step, *piece, **{**adam_settings, **change})
                # For zeros of both signs, PyTorch's kernels may return either; averages of squares
                # have none.
                for larger in (many[4], expected[4]):
                    larger[larger == 0] = 0
                assert_equal(
                    *(
                        ([torch_dtypes.codes(t).masked_fill(t.isnan(), 0) for t in x])
                        for x in (many, expected)
                    )
                )
        for change in sgd_settings:
            many, expected = make_lists()[:3], make_lists()[:3]
            torch._fused_sgd_(*([t] for t in many), **{**PLAIN, **change})
            for piece in pieces(expected):
                torch._fused_sgd_(*([t] for t in piece), **{**PLAIN, **change})
            assert_equal(
                *(
                    ([torch_dtypes.codes(t).masked_fill(t.isnan(), 0) for t in x])
                    for x in (many, expected)
                )
            )


@pytest.mark.parametrize(
    "layout",
    [lambda t: torch.stack([t, t], -1)[..., 0], lambda t: t.mT.contiguous().mT],
    ids=["strided", "turned"],
)
def test_layouts(monkeypatch, layout):
    for optimizer in SETTINGS:
        arguments = (optimizer, torch.posit16es2)
        expected = by_loop(monkeypatch, *arguments, {}, shapes=[(40, 33), (6, 4)], layout=layout)
        assert_equal(run(*arguments, {}, {}, shapes=[(40, 33), (6, 4)], layout=layout), expected)


def test_states_of_another_dtype_and_shared_memory():
    """Cases outside the pass run by single operators, with their bits."""
    w, g = (
        torch.tensor([1.0, -2.0, 3.5]).to(torch.q43),
        torch.tensor([0.5, 0.25, -1.0]).to(torch.q43),
    )
    for m in (torch.tensor([0.1, 0.2, 0.3]), g):  # float32, then the gradient itself
        ours, expected, buffer, kept = (
            w.clone(),
            w.clone(),
            m.clone() if m is not g else g.clone(),
            m.clone(),
        )
        gradient = buffer if m is g else g
        torch._fused_sgd_(
            [ours],
            [gradient],
            [buffer],
            **{**PLAIN, "weight_decay": 0.1, "momentum": 0.9, "dampening": 0.25},
        )
        grad = kept if m is g else g
        decayed = grad.add(expected, alpha=0.1)
        kept.mul_(0.9).add_(decayed, alpha=0.75)
        expected.add_(kept, alpha=-0.5)
        assert torch.equal(ours, expected) and torch.equal(buffer, kept) and buffer.dtype is m.dtype


def test_a_shared_parameter_is_stepped_twice():
    def run_steps(lists):
        w, g = torch.tensor([1.0, -2.0]).to(torch.q43), torch.tensor([0.5, 0.25]).to(torch.q43)
        for part in lists:
            torch._fused_sgd_([w] * part, [g] * part, [], **PLAIN)
        return w

    assert torch.equal(run_steps([2]), run_steps([1, 1]))


def test_scaled_gradients():
    p = torch.tensor([1.0, 2.0], dtype=torch.posit16es2, requires_grad=True)
    for found, expected in ((0.0, [0.75, 1.5]), (1.0, [0.75, 1.5])):
        g = torch.tensor([1.0, 2.0], dtype=torch.posit16es2)
        with torch.no_grad():
            torch._fused_sgd_(
                [p], [g], [], **PLAIN, grad_scale=torch.tensor(2.0), found_inf=torch.tensor(found)
            )
        assert p.tolist() == expected


def test_versions_and_wrong_lists():
    p = torch.ones(3, dtype=torch.q43, requires_grad=True)
    p.grad = torch.ones_like(p)
    before = p._version
    torch.optim.Adam([p]).step()
    assert p._version > before
    with (
        pytest.raises(RuntimeError, match="expected lists of 1 tensors, but got 0 gradients"),
        torch.no_grad(),
    ):
        torch._fused_sgd_([p], [], [], **PLAIN)

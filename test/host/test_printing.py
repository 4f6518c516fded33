"""Printing and copying of tensors: exact values, whatever the rounding mode, and no random numbers.
test_conversion.py has the texts by format."""

import contextlib
import copy
import io
import pickle
import warnings

import pytest
import torch

import torch_dtypes

STOCHASTIC = torch_dtypes.with_rounding("q43", "stochastic")
SHAPES = [(), (3,), (2, 3), (40, 50), (1200, 2, 1), (0,), (2, 0)]
OPTIONS = [
    {},
    {"sci_mode": True},
    {"sci_mode": False},
    {"threshold": 3, "edgeitems": 1},
    {"threshold": 3, "edgeitems": 0},
    {"precision": 2, "linewidth": 40},
]


@contextlib.contextmanager
def without_draws():
    before = torch.get_rng_state()
    yield
    assert torch.equal(torch.get_rng_state(), before)


def tensors(dtype):
    """Return tensors of numbers that q43 has, so that no mode changes them."""
    counts = (
        torch.arange(torch.Size(shape).numel(), dtype=torch.float64).reshape(shape) % 37
        for shape in SHAPES
    )
    made = [(n / 8 - 1).to(torch.q43).to(dtype) for n in counts]
    return made + [t.to("meta") for t in made]


def texts(tensors):
    """Return texts without line breaks, whose places depend on the length of the dtype's name."""
    for t in tensors:
        parameter = torch.nn.Parameter(t.mT if t.dim() > 1 else t)
        for text in (
            repr(t),
            str(t),
            f"{t}",
            repr(t.clone().requires_grad_()),
            repr(parameter),
            repr(-t),
        ):
            yield " ".join(text.split())


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_printing_depends_on_no_rounding_mode_and_draws_nothing(options):
    with torch._tensor_str.printoptions(**options):
        plain, drawn = tensors(torch.q43), tensors(STOCHASTIC)
        expected = list(texts(plain))
        with without_draws():
            assert list(texts(drawn)) == [
                text.replace("torch.q43", str(STOCHASTIC)) for text in expected
            ]
        for mode in ("stochastic", "stochastic_equal", "down", "to_odd"):
            with torch_dtypes.rounding(mode), without_draws():
                assert list(texts(plain)) == expected


def test_numbers_are_written_as_those_of_the_exact_values():
    x = torch.tensor([[0.3, -1.1, 0.0], [448.0, 2.0**-9, 17.0]]).to(torch.q43)
    for t in (x, x[:, 0], x[1, 1], x[0], x.repeat(400, 1), x.exp()):
        assert repr(t).replace(", dtype=torch.q43", "") == repr(t.double()).replace(
            ", dtype=torch.float64", ""
        )


def test_the_largest_number_below_an_integer_is_printed_with_its_fraction():
    """The next integer saturates to this number, so that arithmetic in the format finds a whole
    number."""
    largest = torch.tensor([1.0]).to(torch_dtypes.fixed_format(0, 7))
    assert largest.item() == 127 / 128 and repr(largest) == "tensor([0.9922], dtype=torch.fixed0_7)"


def test_tensors_of_transforms_are_printed_without_draws():
    seen = []
    x = torch.tensor([0.5, 1.25]).to(STOCHASTIC)
    with without_draws():
        torch.vmap(lambda t: (seen.append(repr(t)), t)[1])(x)
    assert "[0.5000, 1.2500]" in seen[0]


COPIES = {
    "deepcopy": copy.deepcopy,
    "copy": copy.copy,
    "pickle": lambda x: pickle.loads(pickle.dumps(x)),
    "clone": torch.clone,
    "list": lambda x: torch.tensor(x.tolist(), dtype=torch.float64),
    "items": lambda x: torch.tensor([v.item() for v in x], dtype=torch.float64),
    "numbers": lambda x: torch.tensor([float(v) for v in x], dtype=torch.float64),
    "text": lambda x: torch.tensor([float(f"{v:.20f}") for v in x], dtype=torch.float64),
    "parameter": lambda x: copy.deepcopy(torch.nn.Parameter(x)).detach(),
}


@pytest.mark.parametrize("make", COPIES.values(), ids=COPIES)
@pytest.mark.filterwarnings("ignore:expected something to be rounded")
def test_copies_and_python_numbers_draw_nothing(make):
    for dtype, block in (
        (STOCHASTIC, contextlib.nullcontext()),
        (torch.q43, torch_dtypes.rounding("stochastic")),
    ):
        x = torch.tensor([0.3, 1.1, 5.5]).to(dtype)
        with block, without_draws():
            made = make(x)
            assert hash(x) == id(x)
        assert torch.equal(made.double(), x.double())


def test_files_draw_nothing():
    x, file = torch.tensor([0.3, 1.1, 5.5]).to(STOCHASTIC), io.BytesIO()
    with without_draws():
        torch.save(x, file)
        file.seek(0)
        loaded = torch.load(file)
    assert loaded.dtype is STOCHASTIC and torch.equal(loaded.double(), x.double())


# Modules


def test_a_model_names_its_formats():
    model = torch.nn.Sequential(
        torch.nn.Linear(2, 3),
        torch.nn.Tanh(),
        torch.nn.BatchNorm1d(3),
        torch.nn.MultiheadAttention(4, 2),
    )
    stock = repr(model)
    assert repr(model.to(torch.posit16es2)).splitlines() == [
        "Sequential(",
        "  (0): Linear(in_features=2, out_features=3, bias=True, dtype=posit16es2)",
        "  (1): Tanh()",
        *[line[:-1] + ", dtype=posit16es2)" for line in stock.splitlines() if "BatchNorm" in line],
        "  (3): MultiheadAttention(",
        "    dtype=posit16es2",
        "    (out_proj): NonDynamicallyQuantizableLinear(in_features=4, out_features=4, "
        "bias=True, dtype=posit16es2)",
        "  )",
        ")",
    ]
    model[0].bias = torch.nn.Parameter(torch.zeros(3))
    assert repr(model[0]) == (
        "Linear(in_features=2, out_features=3, bias=True, dtype=(weight: posit16es2, bias: "
        "float32))"
    )
    assert repr(model.float()) == repr(model.half()) == stock  # unchanged for stock models


def test_own_modules_keep_their_words():
    class Lines(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", torch.zeros(2, dtype=torch.q43))

        def extra_repr(self):
            return "one\ntwo"

    assert repr(Lines()) == "Lines(\n  one\n  two\n  dtype=q43\n)"
    listed = repr(torch.nn.ParameterList([torch.nn.Parameter(torch.ones(2, dtype=torch.q43))]))
    assert listed.count("q43") == 1 and "dtype" not in listed
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        scripted = torch.jit.script(torch.nn.Linear(2, 2).to(torch.q43))
    assert repr(scripted) == "RecursiveScriptModule(original_name=Linear, dtype=q43)"


def test_quantised_layers_say_their_rules():
    model = torch_dtypes.quantize_(
        torch.nn.Sequential(torch.nn.Linear(2, 3)),
        {torch.nn.Linear: {"weight": "q43", "error": "q52"}},
    )
    assert (
        repr(model[0]) == "Linear(in_features=2, out_features=3, bias=True, weight=q43, error=q52)"
    )

"""Operators that make infinities from finite operands, in formats without infinities: the
standard's answer, with one warning for an operator and a dtype."""

import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import torch_dtypes

POLES = {
    "log": lambda x: x.log(),
    "log2": lambda x: x.log2(),
    "log10": lambda x: x.log10(),
    "log1p": lambda x: (x - 1).log1p(),
    "rsqrt": lambda x: x.rsqrt(),
    "atanh": lambda x: (x + 1).atanh(),
    "logit": lambda x: x.logit(),
    "lgamma": lambda x: x.lgamma(),
    "pow": lambda x: x**-1.5,
    "xlogy": lambda x: torch.xlogy(x + 1, x),
    "div": lambda x: 1 / x,
    "floor_divide": lambda x: (x + 1) // x,
    "special_ndtri": lambda x: torch.special.ndtri(x),
    "log_": lambda x: x.log_(),
    "div by a number": lambda x: (x + 1) / 0,
    "div by a tensor": lambda x: (x + 1) / x,
    "div_": lambda x: (x + 1).div_(x),
    "reciprocal": lambda x: x.reciprocal(),
    "reciprocal_": lambda x: x.reciprocal_(),
}


def collect_warnings(run):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run()
    return [str(w.message) for w in caught if "has no infinity" in str(w.message)]


def find_infinity(run):
    """Return the first infinity of a run: the names of the operator and the dtype."""
    torch_dtypes._C.forget_infinity()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run()
    return torch_dtypes._C.first_infinity()


@pytest.mark.parametrize("count", [5, 70000])  # by table and computed, on one thread and several
@pytest.mark.parametrize(
    "name", ["posit16es2", "posit8es0", "posit32es2", "e4m3fn", "e4m3fnuz", "takum16_linear"]
)
def test_poles_of_operators(name, count):
    dtype = torch_dtypes.dtype(name)
    x = torch.ones(count).to(dtype)
    x[count // 2] = 0
    for pole, run in POLES.items():
        operator = pole.split(" ")[0].rstrip("_")
        operator = {"reciprocal": "div"}.get(operator, operator)
        for _ in range(2):
            assert find_infinity(lambda run=run: run(x.clone())) == (operator, name), pole
        assert run(x.clone())[count // 2].isnan()  # the standard's answer
        if pole not in ("div by a number", "atanh"):  # these have poles elsewhere, too
            assert (
                find_infinity(lambda run=run: run(torch.full((count,), 0.5).to(dtype))) is None
            ), pole


def test_said_once_for_an_operator_and_a_dtype():
    x = torch.zeros(3).to(torch_dtypes.dtype("posit15es1"))
    (text,) = collect_warnings(lambda: x.log())
    assert "torch.posit15es1 has no infinity: log made one" in text
    assert collect_warnings(lambda: x.log()) == [] and len(collect_warnings(lambda: x.log2())) == 1
    assert len(collect_warnings(lambda: x.to(torch_dtypes.dtype("posit15es2")).log())) == 1


def test_what_is_nan_by_itself_says_nothing():
    x = torch.tensor([0.0, -1.0, float("nan")]).to(torch.posit16es2)
    for run in (
        lambda: x / x,
        lambda: x[1:].log(),
        lambda: (x[1:] * x[1:]).log(),
        lambda: x[1:].sqrt(),
        lambda: x[2:] / 0,
        lambda: x[2:].log(),
    ):
        assert find_infinity(run) is None


@pytest.mark.parametrize(
    "name", ["q43", "e5m5", "posit16es2_saturate", "e4m3fn_saturate", "fixed8_8"]
)
def test_formats_that_have_infinities_or_saturate_say_nothing(name):
    x = torch.tensor([0.0, 1.0]).to(torch_dtypes.dtype(name))
    assert find_infinity(lambda: (x.log(), 1 / x, x**-1.5)) is None


@pytest.mark.parametrize(
    "name, remedy",
    [
        ("posit12es0", 'infinity="saturate"'),
        ("e3m4fn", 'overflow="saturate"'),
        ("takum12_linear", "posit16es2_saturate"),
    ],
)
def test_the_remedy(name, remedy):
    (text,) = collect_warnings(lambda: torch.zeros(2).to(torch_dtypes.dtype(name)).log())
    assert remedy in text and "masks as bool" in text


class LanguageModel(nn.Module):
    """A small version of the transformer in PyTorch's example word_language_model, whose mask is a
    logarithm of zeros and ones."""

    def __init__(self):
        super().__init__()
        self.embedding, self.decoder = nn.Embedding(11, 8), nn.Linear(8, 11)

    def forward(self, tokens):
        x = self.embedding(tokens)
        mask = torch.log(torch.tril(torch.ones(len(tokens), len(tokens))))
        weights = F.softmax(x @ x.t() + mask, -1)
        return self.decoder(weights @ x)


def language_model(dtype):
    torch.manual_seed(0)
    torch.set_default_dtype(dtype)
    try:
        model, tokens = LanguageModel(), torch.tensor([3, 1, 4, 1, 5, 9, 2, 6])
        loss = F.cross_entropy(model(tokens[:-1]), tokens[1:])
        return (
            loss,
            model,
            torch_dtypes.explain_divergence(
                model, forward=lambda: F.cross_entropy(model(tokens[:-1]), tokens[1:])
            ),
        )
    finally:
        torch.set_default_dtype(torch.float32)


def test_a_mask_made_by_a_logarithm():
    runs, dtype = [], torch_dtypes.dtype("posit14es2")
    texts = collect_warnings(lambda: runs.append(language_model(dtype)))
    loss, _, found = runs[0]
    assert (
        loss.isnan()
        and len(texts) == 1
        and "torch.posit14es2 has no infinity: log made one" in texts[0]
    )
    assert (
        "log made an infinity" in found.cause
        and "posit14es2" in found.cause
        and 'infinity="saturate"' in found.advice
        and found.where == "forward"
    )
    loss, _, found = language_model(torch_dtypes.dtype("posit16es2_saturate"))
    assert loss.isfinite() and found is None


def test_a_divergence_of_another_cause_names_no_infinity():
    torch.zeros(2).to(torch.posit16es2).log()  # earlier, and irrelevant
    model = nn.Sequential(nn.Linear(1, 1)).to(torch.q43)
    with torch.no_grad():
        model[0].weight.fill_(2.0)
    found = torch_dtypes.explain_divergence(
        model, forward=lambda: model(torch.full((1, 1), 200.0).to(torch.q43))
    )
    assert found.layer == "0" and "made an infinity" not in found.cause

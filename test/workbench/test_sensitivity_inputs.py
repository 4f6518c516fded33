"""Data, networks and criteria of studies: several inputs, outputs that are dicts and tuples,
numbers, errors; blocks of a rounding mode."""

import dataclasses

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset

import torch_dtypes
from torch_dtypes.workbench.sensitivity.report import sentences
from torch_dtypes.workbench.variability.batches import concatenate, numbers_in

g = torch.Generator().manual_seed(1)
X, Y = torch.randn(20, 4, generator=g), torch.randint(3, (20,), generator=g)


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))


class Returns(nn.Module):
    """Applies ``made`` to the outputs of a network."""

    def __init__(self, made):
        super().__init__()
        self.network, self.made = network(), made

    def forward(self, x):
        return self.made(self.network(x))


@dataclasses.dataclass
class Output:
    logits: torch.Tensor
    index: torch.Tensor


def sensitivity(model, data, **options):
    return torch_dtypes.sensitivity(model, data, ["q43", "int8"], **options)


def variability(model, data, **options):
    return torch_dtypes.variability(model, data, repeats=2, where=False, **options)


KINDS = {
    "dict": (lambda y: {"logits": y, "index": Y}, lambda o: o["logits"]),
    "tuple": (lambda y: (y, [Y]), lambda o: o[0]),
    "data class": (lambda y: Output(y, Y), lambda o: o.logits),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_criterion_takes_what_a_model_returns(kind):
    made, part = KINDS[kind]
    model, plain, data = Returns(made), network(), [(X, Y)]

    def criterion(output, targets):
        return F.cross_entropy(part(output), targets)

    for metric in ("loss", "distance"):
        found, expected = (
            sensitivity(model, data, criterion=criterion, metric=metric),
            sensitivity(plain, data, metric=metric),
        )
        assert found.float32 == expected.float32
        assert {
            name.removeprefix("network."): rises for name, rises in found.rises.items()
        } == expected.rises
    found, expected = variability(model, data, criterion=criterion), variability(plain, data)
    assert (
        [m.name for m in found.metrics] == ["loss"]
        and found.dice is None
        and found.deterministic
        and not found.unseen
    )
    assert (
        found.metrics[0].values == expected.metrics[0].values
        and found.deviation == expected.deviation
    )
    for study in (sensitivity, variability):
        with pytest.raises(
            TypeError,
            match=r"returns one tensor where no criterion= is given, but got an? .*give a function "
            r"of it and the targets",
        ):
            study(model, data)
        with pytest.raises(
            ValueError, match=r"outputs that are no tensor|a metric that the program has"
        ):
            study(model, data, criterion=criterion, metric="accuracy")


def test_numbers_of_outputs():
    both = numbers_in(
        {
            "a": torch.ones(2, 2),
            "b": (torch.zeros(1, dtype=torch.float64), torch.ones(3, dtype=torch.int64), None),
        }
    )
    assert both.tolist() == [1, 1, 1, 1, 0] and both.dtype == torch.float32
    with pytest.raises(
        TypeError, match="floating-point ones in a dict, list or tuple, but got a dict with 'ids'"
    ):
        numbers_in({"ids": torch.ones(3, dtype=torch.int64)})
    assert concatenate([torch.ones(2, 3), torch.ones(1, 3)]).shape == (3, 3)
    assert concatenate([torch.ones(2, 3), torch.ones(2, 4)]).shape == (14,) and concatenate(
        [torch.tensor(1.0)] * 2
    ).shape == (2,)


def test_classes_may_be_elsewhere_for_a_criterion():
    data = [
        (torch.randn(5, length, 4, generator=g), torch.randint(3, (5, length), generator=g))
        for length in (7, 6)
    ]
    found = sensitivity(
        network(), data, criterion=lambda o, t: F.cross_entropy(o.flatten(0, 1), t.flatten())
    )
    assert found.samples == 10 and found.float32 > 0


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.network = network()

    def forward(self, x, more):
        return self.network(x + more)


def test_several_inputs_and_keywords():
    several = [(X - 1, torch.ones_like(X), Y)]
    same = sensitivity(network(), [(X - 1 + torch.ones_like(X), Y)])
    for data in (
        several,
        DataLoader(TensorDataset(*several[0]), 20),
        [({"more": torch.ones_like(X), "x": X - 1}, Y)],
    ):
        found = sensitivity(Two(), data)
        assert list(found.rises.values()) == list(same.rises.values()) and found.samples == 20
        assert found.choose(bits=8).measured == same.choose(bits=8).measured
        assert variability(Two(), data).metrics[0].exact == same.float32
    other = sensitivity(Two(), several, calibrate=[(3 * X, X)])
    assert (
        other.rises["network.0"]["q43"] == same.rises["0"]["q43"]
        and other.rises["network.0"]["int8"] != same.rises["0"]["int8"]
    )


@pytest.mark.filterwarnings("ignore:fuzzy. numpy")
@pytest.mark.parametrize("study", [sensitivity, variability])
def test_numbers_of_criteria(study):
    def values(criterion):
        found = study(network(), [(X, Y)], criterion=criterion)
        return found.rises if study is sensitivity else found.metrics[0].values

    expected = values(None)
    assert (
        values(lambda o, t: F.cross_entropy(o, t).item())
        == values(lambda o, t: F.cross_entropy(o, t).numpy()[()])
        == expected
    )
    for criterion, error, words in (
        (
            nn.CrossEntropyLoss(reduction="none"),
            ValueError,
            r"one number \(a 0-d tensor\) of criterion=, but got shape \(20,\); use "
            r"reduction='mean'",
        ),
        (lambda o, t: None, TypeError, "of criterion=, but got a NoneType"),
        (
            lambda o, t: {"loss": F.cross_entropy(o, t)},
            TypeError,
            "of criterion=, but got a dict with 'loss'",
        ),
        ("mse", TypeError, "criterion= as a function of an output and its targets, but got 'mse'"),
    ):
        with pytest.raises(error, match=words):
            study(network(), [(X, Y)], criterion=criterion)


class Alone(Dataset):
    def __len__(self):
        return 3

    def __getitem__(self, i):
        return X[i], Y[i]


@pytest.mark.parametrize("study", [sensitivity, variability])
@pytest.mark.parametrize(
    "data, options, error, words",
    [
        (
            TensorDataset(X, Y),
            {},
            TypeError,
            r"a DataLoader or a list of \(inputs, targets\).* but got a TensorDataset, which has "
            r"single examples",
        ),
        (Alone(), {}, TypeError, "but got an Alone, which has single examples: DataLoader"),
        (X, {}, TypeError, "but got a tensor of torch.float32"),
        (
            [(x, y) for x, y in zip(X, Y, strict=True)],
            {},
            ValueError,
            "targets that are one 0-d tensor: the list seems to have single examples",
        ),
        (
            (X, Y),
            {},
            ValueError,
            r"shape \(20, 4\) as a batch; a single one is \[\(inputs, targets\)\]",
        ),
        (3, {}, TypeError, "but got an int"),
        ([{"x": X, "y": Y}], {}, ValueError, "but got a dict with 'x', 'y' as a batch"),
        ([], {}, ValueError, "got none"),
        ([(X, None)], {}, ValueError, "but got a tuple of"),
        ([(None, Y)], {}, ValueError, "but got a tuple of"),
        ([(X,)], {}, ValueError, "a tuple of"),
        (
            [(X, Y.float())],
            {},
            ValueError,
            r"shape \(20,\) for an output of shape \(20, 3\); labels of classes are integers: "
            r"targets.long",
        ),
        (
            [(X, Y.float())],
            {"criterion": F.cross_entropy},
            ValueError,
            r"targets that criterion= takes, but got .*integers: targets.long\(\)",
        ),
        (
            [(X, torch.ones(20, 1))],
            {},
            ValueError,
            r"float32 of shape \(20, 1\) .*another loss is given as criterion=",
        ),
        (
            [(X, Y)],
            {"metric": F.cross_entropy},
            TypeError,
            "metric= as a name, but got <function cross_entropy.* is criterion=, metric='loss'",
        ),
    ],
)
def test_errors_of_data_and_metrics(study, data, options, error, words):
    with pytest.raises(error, match=words):
        study(network(), data, **options)


def test_a_block_of_a_rounding_mode_is_refused():
    found = sensitivity(network(), [(X, Y)])
    words = (
        "sensitivity outside of blocks of torch_dtypes.rounding, but got one of 'toward_zero' "
        "around it: .* names, as in 'q43_toward_zero'"
    )
    with torch_dtypes.rounding("toward_zero"):
        with pytest.raises(ValueError, match=words):
            sensitivity(network(), [(X, Y)])
        with pytest.raises(ValueError, match=words):
            found.choose(bits=8)  # the study would measure in the block
        with pytest.raises(
            ValueError,
            match=r"variability outside of blocks .*: mode='toward_zero' rounds all "
            r"operations; a format's own",
        ):
            variability(network(), [(X, Y)])
    assert found.mixtures == [] and found.choose(bits=8).measured
    # As the error advises.
    made = torch_dtypes.sensitivity(network(), [(X, Y)], ["q43_toward_zero", "mxfp4_toward_zero"])
    assert made.rises["0"]["q43_toward_zero"] != found.rises["0"]["q43"]


def test_a_block_s_policy_is_said_and_stays():
    """A block around a later measurement has no effect."""
    torch.manual_seed(0)
    model, data = (
        nn.Sequential(nn.Linear(32, 8), nn.Tanh(), nn.Linear(8, 3)),
        [(torch.randn(16, 32), torch.randint(3, (16,)))],
    )
    with torch_dtypes.accumulate("format", accumulator="e5m2", product="e5m2"):
        narrow = torch_dtypes.sensitivity(model, data, ["q43", "e5m5"])
    plain = torch_dtypes.sensitivity(model, data, ["q43", "e5m5"])
    assert (narrow.settings.accumulate, plain.settings.accumulate) == (
        "format(product=q52, accumulator=q52)",
        None,
    )
    assert (
        "sums of rounded layers by format(product=q52" in "".join(sentences(narrow))
        and narrow.rises != plain.rises
    )
    outside = narrow.choose(bits=11).measured
    with torch_dtypes.accumulate("format", accumulator="e5m2", product="e5m2"):
        inside, other = narrow.choose(bits=11).measured, plain.choose(bits=11).measured
    assert outside == inside != other == plain.choose(bits=11).measured

"""The results of ``observe``, read and written: shares of nonzero numbers, keys by any name of a
format, files of any kind."""

import copy
import csv
import io
import math
import warnings

import pytest
import torch
from torch import nn

import torch_dtypes
from torch_dtypes import RoundingCounts, Statistics


class DeadBehind(nn.Module):
    """A layer whose outputs and gradients are mostly 0."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x):
        return self.b(torch.relu(self.a(x) - 2))


class Call(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function
        self.inner = nn.Identity()

    def forward(self, x):
        return self.function(x)


@pytest.fixture(scope="module")
def dead():
    """Of 8,000 gradients about 20 are not 0, and each of these is lost."""
    torch.manual_seed(0)
    model = DeadBehind()
    with torch_dtypes.observe(
        model, formats=["e3m2finite", torch.bfloat16, "posit<10,1>"]
    ) as stats:
        (1e-3 * model(torch.randn(500, 8))).mean().backward()
    return stats


def test_zeros_do_not_hide_what_becomes_of_the_rest(dead):
    counts = dead["a", "backward", "e3m2finite"]
    assert counts.elements == 8000 and 0 < counts.nonzero == sum(counts.exponents.values()) < 400
    assert [
        counts.share(name) for name in ("underflow", "to_zero", "inexact", "overflow", "zeros")
    ] == [1, 1, 1, 0, 1]
    assert counts.trouble == 1 and next(iter(dead.sorted())).trouble == 1
    row = next(
        r
        for r in dead.rows()
        if (r["layer"], r["pass"], r["format"]) == ("a", "backward", "e3m2finite")
    )
    assert (row["numbers"], row["nonzero"], row["underflow"]) == (
        "8,000",
        str(counts.nonzero),
        "100%",
    )
    drawn = dead.plot("e3m2finite", passes=["backward"]).axes[0].texts
    assert [text.get_text() for text in drawn] == ["100% under", "100% under"]


def test_the_worst_of_numbers_that_all_stay():
    layer = Call(lambda x: x.to(torch.q43))
    with torch_dtypes.observe(layer) as stats:
        layer(torch.ones(5))
    where = "(model), forward: no number left the range of q43"
    assert stats.worst() == f"{where}, and none changed"


def test_a_layer_of_zeros_alone_has_shares_of_0():
    layer = Call(lambda x: x.to(torch.q43))
    with torch_dtypes.observe(layer) as stats:
        layer(torch.zeros(5))
    assert stats.worst() == "(model), forward: no number left the range of q43"
    counts = stats["", "forward", torch.q43]
    assert (
        counts.nonzero,
        counts.trouble,
        counts.share("underflow"),
        counts.share("inexact"),
        counts.share("zeros"),
    ) == (0, 0, 0, 0, 1)
    assert math.isnan(counts.share("unchanged")) and math.isnan(
        RoundingCounts("", "forward", "q43", 0).share("underflow")
    )


def test_what_is_not_finite_is_not_0():
    layer = Call(lambda x: x.to(torch.q43))
    with torch_dtypes.observe(layer) as stats:
        layer(torch.tensor([0.0, -0.0, math.inf, math.nan, 1e9, 1e-9, 1.0]))
    counts = stats["", "forward", "q43"]
    assert (counts.elements, counts.nonzero, counts.zeros) == (7, 5, 3)
    assert [counts.share(name) for name in ("nan_in", "overflow", "underflow")] == [
        0.2,
        0.2,
        0.2,
    ] and counts.share("zeros") == 3 / 7


@pytest.mark.parametrize(
    ("name", "x", "nonzero", "overflow"),
    [("table", [0.0, 0.0, 1.0, 3.0], 4, 0.75), ("unsigned", [0.0, 0.0, -1.0, 1.0], 2, 0.5)],
)
def test_a_zero_that_a_format_cannot_keep_counts_as_others_do(name, x, nonzero, overflow):
    """A table from 1 to 2, which has no zero; and unsigned numbers, where negative ones become
    0."""
    dtype = (
        torch_dtypes.table_format([1.0, 2.0])
        if name == "table"
        else torch_dtypes.fixed_format(4, 4, signed=False)
    )
    layer = Call(lambda t: t.to(dtype))
    with torch_dtypes.observe(layer) as stats:
        layer(torch.tensor(x))
    (counts,) = stats.values()
    assert (counts.nonzero, counts.share("overflow")) == (nonzero, overflow)


def test_a_format_is_found_by_any_of_its_names(dead):
    own = torch_dtypes.card("posit<10,1>").format
    for said, key in (
        (torch.bfloat16, "e8m7"),
        ("bf16", "e8m7"),
        ("posit<10,1>", "posit10es1"),
        (own, "posit10es1"),
    ):
        assert dead["a", "forward", said] is dead["a", "forward", key]
        assert ("a", "forward", said) in dead
    assert dead.get(("a", "forward", torch.q43)) is None and ("a", "forward", 3) not in dead


def test_what_is_not_there_is_answered_by_what_is(dead):
    with pytest.raises(
        KeyError,
        match="passes of a: forward, backward, weights, gradients; formats: e3m2finite, e8m7, "
        "posit10es1",
    ):
        dead["a", "backward", "q43"]
    with pytest.raises(KeyError, match="layers: a, b; formats"):
        dead["nowhere", "backward", "e8m7"]
    with pytest.raises(KeyError, match=r"use stats\['a', 'forward', 'e3m2finite'\]"):
        dead["a"]
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)).to(torch.q43)
    with torch_dtypes.observe(model) as stats:
        model(torch.ones(1, 2).to(torch.q43)).sum().backward()
    assert stats["1", "backward", "q43"].elements > 0
    with pytest.raises(
        KeyError,
        match="passes of 0: forward, weights, gradients; a layer whose input needs no gradient",
    ):
        stats["0", "backward", "q43"]
    with pytest.raises(
        AttributeError, match=r"one of overflow, saturated, underflow, .* but got 'zero'"
    ):
        dead["a", "forward", "e8m7"].share("zero")


def test_files_by_path_and_open(dead, tmp_path):
    dead.to_json(tmp_path / "s.json")
    text = io.StringIO()
    dead.to_json(text)
    assert (tmp_path / "s.json").read_text() == text.getvalue()
    text.seek(0)
    for source in (tmp_path / "s.json", str(tmp_path / "s.json"), text, dead.as_json()):
        assert dict(Statistics.from_json(source)) == dict(dead)
    dead.to_csv(tmp_path / "s.csv")
    text = io.StringIO(newline="")
    dead.to_csv(text)
    assert (tmp_path / "s.csv").read_bytes() == text.getvalue().encode()
    for write in (dead.to_csv, dead.to_json):
        with pytest.raises(FileNotFoundError) as error:
            write(tmp_path / "nowhere" / "x")
        assert error.value.filename == str(tmp_path / "nowhere")
        with pytest.raises(
            TypeError, match="expected a path or an open text file to write into, but got 3"
        ):
            write(3)
    with pytest.raises(
        TypeError,
        match=r"expected the result of as_json\(\), or a file of to_json\(\) .*, but got 3",
    ):
        Statistics.from_json(3)
    with pytest.raises(KeyError, match="'counts', but got only 'rows'"):
        Statistics.from_json({"rows": []})


def test_the_model_itself_has_a_name_in_csv():
    """An empty field is read back as NaN; the column has the name in ``rows``."""
    layer = Call(lambda x: x.to(torch.q43))
    with torch_dtypes.observe(layer) as stats:
        layer(torch.ones(5))
    text = io.StringIO()
    stats.to_csv(text)
    (row,) = csv.DictReader(io.StringIO(text.getvalue()))
    assert (row["layer"], row["pass"], row["format"], row["nonzero"]) == (
        "(model)",
        "forward",
        "q43",
        "5",
    )
    assert stats[row["layer"], row["pass"], row["format"]].elements == 5
    assert set(row) >= set(stats.rows()[0]) & {"layer", "pass", "format", "nonzero"}


def test_another_model_s_numbers_are_said():
    model = nn.Linear(3, 2).to(torch.q43)
    x = torch.randn(4, 3).to(torch.q43)
    with (
        pytest.warns(UserWarning, match=r"no module of the Linear ran .* \(outside\)"),
        torch_dtypes.observe(copy.deepcopy(model)),
    ):
        model(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with torch_dtypes.observe(model):
            model(x)
        with torch_dtypes.observe(model):
            pass

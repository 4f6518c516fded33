"""``torch-dtypes show`` and torch_dtypes.show: the figures of a format against its list of
values."""

import functools
import io
import json
import math
import re

import pytest
import torch
from command_line import command
from representatives import thin_out

import torch_dtypes

Console = pytest.importorskip("rich.console", reason="the command line needs rich").Console
pytest.importorskip("matplotlib", reason="the figures need matplotlib")

SMALL = [
    "posit8es0",           "posit8es2",           "posit16es2",          "posit6es1_underflow",
    "q43",                 "q52",                 "e5m10",               "bf16",
    "e4m3fn",              "e4m3fnuz",            "binary8p3se",         "e2m1finite",
    "e3m2_flush",          "e4m3finite_bias3",    "fixed3_4",            "ufixed2_3_wrap",
    "fixed3_2_symmetric",  "e4m3fn_saturate",     "q43_saturate",        "posit8es1_saturate",
    "float8_e4m3fn",       "posit<7,1>",
]  # fmt: skip


def numbers(card):
    """Return the different finite values that a cast can give, sorted."""
    values = card.values()
    values = values[values.isfinite()]
    return values[torch_dtypes.chop(values, card.format) == values].unique()


@pytest.mark.parametrize("name", SMALL)
def test_a_card_says_what_the_list_of_values_says(name):
    card = torch_dtypes.card(name)
    found, values = numbers(card), card.values()
    assert (card.name, card.format) == (name, torch_dtypes.target(name).format)
    assert (
        card.finite == len(found)
        and card.largest == found.max()
        and card.smallest == found[found > 0].min()
    )
    assert card.infinities == values.isinf().sum() and card.nans == values.isnan().sum()
    assert card.decades == pytest.approx(math.log10(card.largest / card.smallest))
    after_one = found[found > 1]
    assert card.epsilon == after_one.min() - 1
    zeros = values[values == 0]
    assert card.zeros == len({math.copysign(1, zero) for zero in zeros.tolist()})


@pytest.mark.parametrize("name", SMALL)
def test_precision_is_how_densely_numbers_lie(name):
    card = torch_dtypes.card(name)
    found = numbers(card)
    exponents = card.exponents()
    measured = card.precision(exponents).tolist()
    for e, bits in zip(exponents.tolist(), measured, strict=True):
        inside = found[(found >= 2.0**e) & (found < 2.0 ** (e + 1))]
        gaps = (inside[1:] - inside[:-1]).unique()
        # A whole binade of more than one number, evenly spaced.
        if len(gaps) == 1 and inside[0] == 2.0**e:
            assert bits == 1 + e - math.log2(gaps[0])
    assert max(measured) == card.significant_bits
    assert card.precision(torch.tensor([exponents[0] - 1, exponents[-1] + 1])).tolist() == [0, 0]


@pytest.mark.parametrize(("name", "bits"), [("nf4", 3), ("sf4", 2), ("lns3_3", 4), ("hif8", 4)])
def test_tables(name, bits):
    """The digits that write a table's numbers do not tell its precision."""
    card = torch_dtypes.card(name)
    assert card.significant_bits == bits
    values = card.values()
    above = values[(values > 1) & values.isfinite()]
    assert card.epsilon == (above.min().item() - 1 if len(above) else None)


def test_wide_formats_and_stock_dtypes():
    double, single = torch_dtypes.card(torch.float64), torch_dtypes.card("float32")
    for card, info in ((double, torch.finfo(torch.float64)), (single, torch.finfo(torch.float32))):
        assert (card.largest, card.smallest_normal, card.epsilon) == (info.max, info.tiny, info.eps)
        assert card.smallest == info.smallest_normal * info.eps
        assert card.finite == 2 * (2**card.format.exp_bits - 1) * 2**card.format.man_bits - 1
    assert double.precision(torch.tensor([-1074, -1073, -1022, 0, 1023])).tolist() == [
        1,
        2,
        53,
        53,
        53,
    ]
    assert (double.name, double.canonical, single.canonical) == ("float64", "e11m52", "e8m23")
    with pytest.raises(ValueError, match="at most 16 bits to list its values"):
        single.values()


@pytest.mark.parametrize(
    "name",
    [
        "float32",
        "float16",
        "bfloat16",
        "float8_e4m3fn",
        "float8_e5m2",
        "float8_e4m3fnuz",
        "float8_e5m2fnuz",
    ],
)
def test_the_card_of_a_stock_dtype_is_that_of_a_stock_cast(name):
    dtype = getattr(torch, name)
    card = torch_dtypes.card(dtype)
    assert card.name == name and card == torch_dtypes.card(name)
    edge = torch.tensor([card.largest, 8 * card.largest], dtype=torch.float64)
    torch.testing.assert_close(
        torch_dtypes.chop(edge, card.format),
        edge.float().to(dtype).double(),
        rtol=0,
        atol=0,
        equal_nan=True,
    )


def test_showing_takes_no_dtype():
    before = torch_dtypes._C.format_count()
    torch_dtypes.show("e3m9", "posit11es3", torch.float8_e4m3fn)
    assert torch_dtypes._C.format_count() == before


@pytest.mark.parametrize(
    ("formats", "error", "words"),
    [
        ((), ValueError, "at least one"),
        (("e9",), ValueError, "'e9'"),
        (("posit16es",), ValueError, "nearest names are 'posit16es"),
        (("mxfp9",), ValueError, "'mxfp9'"),
        (("int8",), ValueError, "but got int8, whose"),
        ((torch.int8,), TypeError, "torch.int8"),
        ((3,), TypeError, "got 3"),
    ],
)
def test_bad_formats(formats, error, words):
    with pytest.raises(error, match=words):
        torch_dtypes.show(*formats)


@pytest.mark.parametrize(
    ("name", "bits", "largest", "smallest", "element"),
    [
        ("nvfp4", 4.5, 6 * 448, 0.5 * 2.0**-9, "e2m1finite"),
        ("mxfp8_e4m3_axis0", 8.25, 448 * 2.0**127, 2.0**-9 * 2.0**-127, "e4m3fn_saturate"),
        ("hif4", 4.5, 7 * 49152, 0.25 * 2.0**-48, "e1m2finite_bias1"),
        ("bfp8", 8, 127 / 64 * 2.0**127, 2.0**-6 * 2.0**-127, "fixed1_6_symmetric"),
        ("block<posit8es1,e8m0,16x16>", 8 + 8 / 256, 4096 * 2.0**127, 2.0**-139, "posit8es1"),
    ],
)
def test_the_card_of_blocks(name, bits, largest, smallest, element):
    card = torch_dtypes.card(name)
    assert (card.kind, card.bits, card.largest, card.smallest) == ("block", bits, largest, smallest)
    assert card.decades == pytest.approx(math.log10(largest / smallest))
    plain = torch_dtypes.card(element)
    assert (card.values().tolist(), card.element.finite) == (
        pytest.approx(plain.values().tolist(), rel=0, abs=0, nan_ok=True),
        plain.finite,
    )
    assert torch_dtypes.card(card.format) == torch_dtypes.card(card.canonical)
    row = torch_dtypes.show(name, element).table()[0]
    assert (row["bits"], row["elements"]) == (f"{bits:g}", card.format.element)
    assert row["largest element"] == torch_dtypes.show(element).table()[0]["largest"]


def test_the_error_within_a_block():
    """The error follows from the steps of the elements."""
    from torch_dtypes.workbench.cards.figures import measure_errors

    errors = measure_errors(torch_dtypes.card("mxfp4"))
    # E2M1: two binades of 2 significant bits; what is a 16th of 4, or less, becomes 0.
    assert errors.shape == (80,) and (errors[20:] == 1).all()
    assert (errors[:8] < 0.2).all() and errors[:8].mean() > 0.05
    # HiF4 has one bit more, and steps of their own for each four numbers.
    assert measure_errors(torch_dtypes.card("hif4"))[:4].mean() < errors[:4].mean()
    # One step for all numbers: the error doubles with each binade.
    own = measure_errors(torch_dtypes.card("bfp8_size32"))[:20].view(5, 4).mean(1)
    assert ((own[1:] / own[:-1] - 2).abs() < 0.2).all()
    # A plain format has a scale.
    flat = measure_errors(torch_dtypes.card("q43"))[:40]
    assert (flat < 2.0**-4).all() and (flat > 2.0**-6).all()


@pytest.mark.whole
def test_a_page_of_blocks(tmp_path):
    shown = torch_dtypes.show("nvfp4", "q43", out=tmp_path)
    assert set(shown.figures()) == {"precision", "error", "number_line"}
    page = (tmp_path / "formats.html").read_text()
    for text in ("element=e2m1finite, scale=e4m3fn_saturate, size=16", "e4m3fn_saturate and"):
        assert text in page
    data = json.loads((tmp_path / "formats.json").read_text())["formats"][0]
    assert (data["kind"], data["block"], data["element"]["values"][7]) == ("block", "16", 6)
    result = run("nvfp4", "--values")
    assert result.exit_code == 0 and "largest element" in result.output, result.output
    assert "0x8" in result.output and "-1.5" in result.output


@pytest.mark.whole
def test_what_is_written(tmp_path):
    made = torch_dtypes.show("bf16", "q43", out=tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [
            "formats.html",
            "formats.json",
            *(
                f"{figure}.{ending}"
                for figure in ("precision", "number_line")
                for ending in ("png", "svg", "pdf")
            ),
        ]
    )
    page = (tmp_path / "formats.html").read_text()
    for text in ("bf16 (e8m7)", "q43", "man_bits=7", "240", torch.__version__):
        assert text in page
    # The comparison, and q43's values.
    assert page.count("<svg") == 2 and made._repr_html_().count("<table") == 2
    data = json.loads((tmp_path / "formats.json").read_text())["formats"]
    assert [d["name"] for d in data] == ["bf16", "q43"] and "values" not in data[0]
    assert data[1]["values"][:2] == [0.0, 2.0**-9] and data[1]["values"][0x7F] == "nan"
    assert made.table()[0]["largest"] == "3.3895313892515355e+38"


@pytest.mark.parametrize("name", thin_out(["nf4", "q43", "posit8es2"], 3))
def test_values_read_back_exactly(name, tmp_path):
    made = torch_dtypes.show(name, values=True)
    stream = io.StringIO()
    made.print(Console(file=stream, width=100))
    grid = re.findall(r"^0x\w+ +(.*)", stream.getvalue(), re.MULTILINE)
    card = made.cards[0]
    shown = torch.tensor(
        [float(word.replace("NaR", "nan")) for line in grid for word in line.split()],
        dtype=torch.float64,
    )
    torch.testing.assert_close(shown, card.values(), rtol=0, atol=0, equal_nan=True)
    cells = set(re.findall(r"<td[^>]*>([^<]*)</td>", made.html()))
    assert {word for line in grid for word in line.split()} <= cells
    for name in ("largest", "smallest", "epsilon"):
        word = made.table()[0][name]
        assert word == "" or (
            2.0 ** int(word[2:]) if word.startswith("2^") else float(word)
        ) == getattr(card, name)


def test_figures_in_the_width_of_a_column():
    made = torch_dtypes.show("posit16es2", "bf16")
    assert list(made.figures()) == ["precision"]
    assert (
        made.figures("column")["precision"].get_figwidth()
        < made.figures("page")["precision"].get_figwidth()
    )
    with pytest.raises(ValueError, match="'wide'"):
        made.figures("wide")


run = functools.partial(command, "show")


def test_the_command(tmp_path):
    result = run("q43", "e5m2", "posit16es2", "--values", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert "…" not in result.output  # nothing is cut off
    for text in ("57344", "e5m2 (q52)", "0x38", "65,536 codes are too many", "formats.html"):
        assert text in result.output
    assert "torch-dtypes" in (tmp_path / "formats.html").read_text()


def test_the_command_with_a_wrong_name(tmp_path):
    result = run("q43", "posit16")
    assert result.exit_code == 2 and "'posit16'" in result.output and "posit16es2" in result.output
    (tmp_path / "file").write_text("")
    result = run("q43", "--out", tmp_path / "file")
    assert result.exit_code == 2 and "cannot write into" in result.output


@pytest.mark.parametrize(
    "values", thin_out([[-1.0, -2.0, 0.0], [0.0, -1.0], [-4.0, -1.0, math.nan]], 3)
)
def test_a_table_without_a_positive_number(values, tmp_path):
    dtype = torch_dtypes.table_format(values)
    card = torch_dtypes.card(dtype)
    assert (card.largest, card.smallest, card.decades, card.significant_bits) == (
        max(v for v in values if v <= 0),
        None,
        None,
        0,
    )
    assert card.exponents().numel() == 0 and card.precision(torch.tensor([0, 1])).tolist() == [0, 0]
    shown = torch_dtypes.show(dtype, out=tmp_path)
    assert set(shown.figures()) == {"precision", "number_line"}
    assert (shown.table()[0]["smallest"], shown.table()[0]["decades"]) == ("", "")
    with torch_dtypes.observe(torch.nn.Linear(2, 2), formats=dtype) as stats:
        pass
    assert stats.plot(passes=["weights"])
    from torch_dtypes.workbench.vectors.making import Job

    assert Job(str(dtype)[6:], "add", None, None, None, "machine", 16, 0).total == 16


def test_a_width_of_no_files_is_refused():

    done = run("q43", "--width", "column")
    assert done.exit_code == 2 and "expected --width with --out" in done.output

"""observe() against block formats: scales, clipped and flushed numbers, block by block."""

import copy
import csv
import io
import json
import math
import pickle
from collections import Counter

import oracle_blocks
import pytest
import torch
from oracle import binary
from rationals import Fraction
from torch import nn

import torch_dtypes
from torch_dtypes.workbench.observation.blocks import count_blocks

E4M3 = binary(4, 3, specials="fn", overflow="saturate")


class Giver(nn.Module):
    """Its output is a given tensor."""

    def __init__(self, x):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.x = x

    def forward(self):
        return self.x.clone()


def count(x, name):
    model = Giver(x)
    with torch_dtypes.observe(model, formats=name) as stats:
        model()
    return stats["", "forward", name]


def numbers(rows=8, columns=70):
    """Rows of several magnitudes, whose last block is shorter, with zeros and a block of zeros."""
    x = torch.randn(rows, columns, generator=torch.Generator().manual_seed(3))
    x *= torch.exp2(torch.arange(rows) * 3.0 - 9).unsqueeze(1)
    x[:, 5] = 0
    x[1, :32] = 0
    return x


def expect(c, blocks, largest, smallest):
    """Compare with blocks given as (numbers, value of a 1, own scale, results)."""
    clipped, flushed, scales, found = Counter(), Counter(), Counter(), Counter()
    signal = noise = Fraction(0)
    for given, one, own, results in blocks:
        given = [Fraction(v) for v in given]
        nonzero = sum(v != 0 for v in given)
        over = sum(abs(v) > largest * one for v in given)
        gone = sum(v != 0 and r == 0 for v, r in zip(given, results, strict=True))
        small = sum(v != 0 and (abs(v) < smallest * one) for v in given)
        clipped[math.ceil(Fraction(10 * over, max(nonzero, 1)))] += 1
        flushed[math.ceil(Fraction(10 * gone, max(nonzero, 1)))] += 1
        if nonzero:
            scales[oracle_blocks.floor_log2(own)] += 1
        found.update(overflow=over, to_zero=gone, underflow=small)
        found["inexact"] += sum(v != r for v, r in zip(given, results, strict=True))
        signal += sum(v * v for v in given)
        noise += sum((v - Fraction(r)) ** 2 for v, r in zip(given, results, strict=True))
    assert (c.blocks, c.scales) == (len(blocks), dict(scales))
    assert (c.clipped, c.flushed) == (dict(clipped), dict(flushed))
    assert {name: getattr(c, name) for name in found} == dict(found)
    assert c.overflow and c.to_zero and c.saturated == c.overflow and c.nan_made == 0
    assert c.signal == pytest.approx(float(signal)) and c.noise == pytest.approx(float(noise))
    assert c.clipped_blocks == sum(clipped.values()) - clipped[0]
    assert c.share("flushed_blocks") == pytest.approx(1 - flushed[0] / c.blocks)


@pytest.mark.parametrize(("name", "rule"), [("mxfp4", "floor"), ("mxfp6_e2m3_even", "even")])
def test_counts_with_powers_of_two(name, rule):
    x, blocks = numbers(), []
    spec = oracle_blocks.SPECS[name.removesuffix("_even")]
    top = oracle_blocks.largest(spec)
    for row in x.tolist():
        for part in oracle_blocks.runs(row, 32):
            a = max(Fraction(abs(v)) for v in part)
            e = oracle_blocks.scale_exponent(a, spec, rule)
            one = Fraction(2) ** e
            blocks.append((part, one, one, oracle_blocks.block(part, spec, "nearest_even", e)))
    # Rounding to nearest keeps numbers of more than half of the smallest one.
    c = count(x, name)
    expect(c, blocks, top, spec.magnitude(1))
    assert c.elements == x.numel() and c.zeros == int((torch_dtypes.chop(x, name) == 0).sum())
    stochastic = count(x, f"{name}_stochastic")
    assert stochastic.as_json() | {"format": name} == c.as_json()


def test_counts_of_nvfp4():
    """Each step of the scales in float32, as in the paper."""
    x, blocks = numbers(), []
    six, largest = torch.tensor(6.0), x.abs().max()
    encode = torch.tensor(6.0 * 448) / largest
    decode = 1 / encode
    results = torch_dtypes.target("nvfp4").quantize(x)
    for row, rounded in zip(x, results, strict=True):
        for part, of in zip(row.split(16), rounded.split(16), strict=True):
            ratio = (part.abs().max() / six * encode).item()
            own = max(E4M3.decode(E4M3.encode(ratio, "nearest_even")), Fraction(1, 512))
            one = torch.tensor(float(own)) * decode
            # The quotient is a product with a rounded reciprocal.
            exact = [Fraction(v) for v in (part * (1 / one)).tolist()]
            scaled = (exact, Fraction(1), Fraction(own), [Fraction(v) for v in (of / one).tolist()])
            blocks.append(scaled)
    c = count(x, "nvfp4")
    clipped = Counter()
    for exact, *_ in blocks:
        nonzero = max(sum(v != 0 for v in exact), 1)
        clipped[math.ceil(Fraction(10 * sum(abs(v) > 6 for v in exact), nonzero))] += 1
    assert c.clipped == dict(clipped)
    assert c.scales == dict(
        Counter(oracle_blocks.floor_log2(own) for exact, _, own, _ in blocks if any(exact))
    )
    assert c.to_zero == int(((results == 0) & (x != 0)).sum())
    assert c.noise == pytest.approx((x.double() - results.double()).square().sum().item())


def test_blocks_that_are_nan_and_the_sign_of_a_range():
    x = torch.ones(2, 64)
    x[0, 0], x[1, 40] = math.inf, math.nan
    c = count(x, "mxfp4")
    assert (c.blocks, sum(c.scales.values()), c.infinite_in, c.nan_in) == (4, 2, 1, 1)
    assert c.nan_made == 32 + 31 and c.overflow == 31 + 31 and c.clipped == {0: 4}
    assert count(-torch.ones(32), "block<ufixed1_6,e8m0,32>").clipped == {10: 1}
    # -2 is an element, and 2 is not.
    wide = torch.tensor([-2.0, 1.0]), torch.tensor([2.0, 1.0])
    assert [count(x, "block<fixed1_6,e8m0,2>_emax1").overflow for x in wide] == [0, 1]


def extremes():
    """Rows with special values, and rows whose quotients or results leave float32's range."""
    x = numbers(9, 75)
    x[2, 3], x[4, 40], x[5, 70] = math.nan, math.inf, -math.inf
    x[6, :8] = torch.tensor([1e-45, -1e-45, 3e38, -3e38, 1e-38, -0.0, 0.0, 1.0])
    return x, x[:5] * 1e-38, x[7:] * 1e-30, x.view(3, 3, 75), x[0], torch.zeros(3, 40)


@pytest.mark.parametrize(
    "name",
    ["mxfp4", "mxfp6_e2m3_axis0", "nvfp4", "nvfp4_16x16", "hif4", "hif4_axis0", "mxint8",
     "block<ufixed1_6,e8m0,32>", "block<posit8es1_saturate,e8m0,5>", "amdfp4"],
)  # fmt: skip
def test_the_kernel_counts_as_the_stock_operators(name, monkeypatch):
    fmt = torch_dtypes.target(name)
    samples = [x for x in extremes() if fmt.shape.find_missing_axis(x.dim()) is None]
    found = [count_blocks(x, fmt) for x in samples]
    monkeypatch.setattr(type(fmt), "_is_in_kernel", lambda self, x, scale: False)
    for x, of_kernel in zip(samples, found, strict=True):
        expected = count_blocks(x, fmt)
        assert of_kernel.keys() == expected.keys()
        # Squares have 24 bits there.
        sums = {key: (of_kernel.pop(key), expected.pop(key)) for key in ("signal", "noise")}
        assert of_kernel == expected
        for one, other in sums.values():
            assert one == pytest.approx(other, rel=2.0**-21)


def test_other_dtypes_and_empty_tensors():
    x = numbers()
    for dtype in (torch.float16, torch.bfloat16, torch.float64, torch.float8_e5m2):
        c = count(x.to(dtype), "mxfp4")
        assert c.blocks == 8 * 3 and c.elements == x.numel()
    model = Giver(torch.empty(0, 4))
    with torch_dtypes.observe(model, formats="mxfp4") as stats:
        model()
    assert set(stats) == {("", "weights", "mxfp4")}


def test_a_step_of_training_stays_as_it_is(tmp_path):
    def step(formats):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(40, 33), nn.ReLU(), nn.Linear(33, 4))
        optimizer = torch.optim.Adam(model.parameters())
        if formats is None:
            stats = None
            nn.functional.cross_entropy(model(torch.randn(9, 40)), torch.zeros(9).long()).backward()
            optimizer.step()
        else:
            with torch_dtypes.observe(model, formats=formats) as stats:
                loss = nn.functional.cross_entropy(model(torch.randn(9, 40)), torch.zeros(9).long())
                loss.backward()
                optimizer.step()
        return [*model.parameters()], torch.rand(1), stats

    plain, drawn, _ = step(None)
    made, again, stats = step(["nvfp4", "q43", "mxfp4_axis0_stochastic", "hif4"])
    assert all(map(torch.equal, plain, made)) and drawn == again
    assert stats.formats() == ["hif4", "mxfp4_axis0_stochastic", "nvfp4", "q43"]
    places = {(layer, where) for layer, where, name in stats if name == "q43"}
    for name in stats.formats():
        assert {(layer, where) for layer, where, own in stats if own == name} == places
    assert stats["0", "updates", "nvfp4"].compared == 33 * 41
    assert stats["0", "weights", "nvfp4"].blocks == 33 * 3 + 3
    # A block of 32 along the first dimension; the bias has one dimension alone.
    assert stats["0", "weights", "mxfp4_axis0_stochastic"].blocks == 2 * 40 + 2
    data = json.loads(json.dumps(stats.as_json()))
    for other in (
        copy.deepcopy(stats),
        pickle.loads(pickle.dumps(stats)),
        type(stats).from_json(data),
    ):
        assert dict(other) == dict(stats)
    rows = {(row["layer"], row["where"], row["format"]): row for row in data["counts"]}
    assert "scales" not in rows["0", "forward", "q43"]
    text = io.StringIO()
    stats.to_csv(text)
    for row in csv.DictReader(io.StringIO(text.getvalue())):
        c = stats[row["layer"], row["pass"], row["format"]]
        assert row["scales"] == " ".join(f"{e}:{n}" for e, n in sorted(c.scales.items()))
    from torch_dtypes.workbench.observation.statistics import merge_statistics

    both = merge_statistics(stats, stats)
    one, two = (s["0", "forward", "nvfp4"] for s in (stats, both))
    assert two.blocks == 2 * one.blocks and two.scales == {e: 2 * n for e, n in one.scales.items()}
    assert sum(two.flushed.values()) == two.blocks


def test_what_is_shown():
    pytest.importorskip("matplotlib", reason="the figures need matplotlib")
    from rich.console import Console

    x = numbers()
    model = Giver(x)
    with torch_dtypes.observe(model, formats=["nvfp4", "q43"]) as stats:
        model()
    text = io.StringIO()
    stats.table(console=Console(file=text, width=240))
    for words in ("clipped blocks", "flushed blocks", "scales", "2^-"):
        assert words in text.getvalue()
        assert words in stats._repr_html_()
    drawn = stats.plot_scales("nvfp4", passes=["forward"])
    assert any(
        "% flush, " in t.get_text() and "% clip" in t.get_text() for t in drawn.axes[0].texts
    )
    assert stats.plot_scales(width="column").get_figwidth() < drawn.get_figwidth()
    assert stats.plot("nvfp4").get_supxlabel().endswith("whose range differs by block")
    with pytest.raises(ValueError, match="expected a format that was counted, nvfp4, but got"):
        stats.plot_scales("q43")
    with torch_dtypes.observe(model, formats="q43") as plain:
        model()
    with pytest.raises(ValueError, match="expected counts of a block format"):
        plain.plot_scales()
    assert "blocks" not in plain.rows()[0] and math.isnan(
        plain["", "forward", "q43"].share("clipped_blocks")
    )


@pytest.mark.parametrize(("name", "words"), [("nvfp9", "'nvfp9'"), ("int8", "got int8, whose")])
def test_bad_formats(name, words):
    with pytest.raises(ValueError, match=words):
        torch_dtypes.observe(nn.Linear(2, 2), formats=name)


def test_blocks_of_a_convolution_lie_along_its_channels():
    torch.manual_seed(5)
    x = torch.randn(2, 40, 6, 7, requires_grad=True)

    def observe(layer):
        optimizer = torch.optim.SGD(layer.parameters(), 0.1)
        with torch_dtypes.observe(layer, formats=["mxfp4", "mxfp4_axis1"]) as stats:
            layer(x[:, : layer.in_channels]).square().sum().backward()
            optimizer.step()
        return stats

    stats = observe(nn.Conv2d(40, 36, 3, bias=False))
    for where in ("forward", "backward", "weights", "updates"):
        last, channels = (stats["", where, name] for name in ("mxfp4", "mxfp4_axis1"))
        assert (last.scales, last.blocks) == (channels.scales, channels.blocks) and last.inexact
        assert last.noise == pytest.approx(channels.noise, rel=1e-9)
        assert last.unchanged == channels.unchanged
    assert stats["", "gradients", "mxfp4"].blocks == 36 * 40 * 3
    assert stats["", "forward", "mxfp4"].blocks == 2 * 2 * 4 * 5
    assert observe(nn.Conv2d(4, 4, 3, groups=4))["", "forward", "mxfp4"].blocks == 2 * 4 * 4

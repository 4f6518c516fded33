"""Vectors of ``torch-dtypes vectors``, parsed by an independent reader, against exact rationals and
the flags of IEEE 754-2019, section 7."""

import math

import pytest
import torch
from oracle import MODES, binary, posit
from oracle_fixed import Fixed
from oracle_vectors import FLAGS, exact, find_expected, flags_of
from rationals import Fraction
from read_vectors import make_file, read, run
from representatives import thin_out
from spec_formats import name_of, p3109

import torch_dtypes
from torch_dtypes import _C
from torch_dtypes.workbench.vectors.making import Job

SPECS = [
    posit(8, 1),
    posit(8, 2, underflow="zero"),
    posit(16, 2),
    posit(32, 2),
    binary(4, 3),
    binary(5, 10),
    binary(4, 3, specials="fn"),
    binary(4, 3, specials="fn", overflow="saturate"),
    binary(2, 1, specials="none"),
    binary(5, 2, specials="fnuz"),
    binary(3, 0, specials="fn"),
    binary(4, 3, subnormals=False),
    p3109(8, 3),
    p3109(8, 1),
    binary(8, 23),
    Fixed(3, 4),
    Fixed(3, 4, overflow="wrap"),
    Fixed(4, 4, False),
    Fixed(2, 3, symmetric=True),
    posit(2, 0),
    posit(28, 3, underflow="zero"),
    posit(8, 1, infinity="saturate"),
    p3109(3, 1),
    Fixed(0, 1, False),
    binary(1, 2, specials="none"),
    binary(11, 20, subnormals=False),
    binary(11, 49),
    binary(5, 2, overflow="saturate"),
    Fixed(20, 11, overflow="wrap"),
    Fixed(-3, 10),
    Fixed(8, -1),
]


def check(rows, op, source, target, mode):
    wrong = []
    for *codes, code, flags in rows:
        right = find_expected(op, source, target, codes, mode)
        # The definition leaves open the sign of NaN after a cast.
        same = code == right[0] or (
            isinstance(d := target.decode(code), float)
            and math.isnan(d)
            and code & ~target_sign(target) == right[0]
        )
        if op == "cast" and isinstance(n := source.decode(codes[0]), float) and math.isnan(n):
            same = same or code == target.special(-math.nan)
        if not same or flags != right[1]:
            wrong.append(([hex(c) for c in codes], hex(code), flags, hex(right[0]), right[1]))
    assert not wrong, f"{op} {name_of(source)} {mode}: {len(wrong)} of {len(rows)}: {wrong[:4]}"


def target_sign(spec):
    return 0 if isinstance(spec, Fixed) else spec.sign_code


@pytest.mark.parametrize("spec", thin_out(SPECS, 4), ids=name_of)
def test_directed_vectors(spec, tmp_path):
    for i, op in enumerate(("add", "sub", "mul", "div", "sqrt", "fma")):
        for mode in (MODES[i % 8], MODES[(5 * i + 7) % 8]):
            kind = ("hex", "json", "readmemh")[i % 3]
            text = make_file(
                tmp_path / "file",
                name_of(spec),
                "--op",
                op,
                "--mode",
                mode,
                "--count",
                300,
                "--as",
                kind,
                "--seed",
                i,
            )
            header, columns, rows = read(text)
            canonical = torch_dtypes.card(name_of(spec)).canonical
            named = (
                name_of(spec) if canonical == name_of(spec) else f"{name_of(spec)} ({canonical})"
            )
            assert (header["format"], header["operation"], header["rounding"]) == (named, op, mode)
            assert [name for name, _ in columns] == [
                *"abc"[: {"sqrt": 1, "fma": 3}.get(op, 2)],
                "result",
                "flags",
            ]
            assert len(rows) == 300 == int(header["vectors"])
            check(rows, op, spec, spec, mode)


@pytest.mark.parametrize(
    "spec", [posit(5, 1), binary(3, 2), binary(2, 2, specials="none"), Fixed(2, 3)], ids=name_of
)
@pytest.mark.parametrize("op", ["add", "mul", "div"])
def test_all_vectors(spec, op, tmp_path):
    _, _, rows = read(make_file(tmp_path / "file", name_of(spec), "--op", op, "--all"))
    assert [row[:2] for row in rows] == [
        [a, b] for a in range(1 << spec.bits) for b in range(1 << spec.bits)
    ]
    check(rows, op, spec, spec, "nearest_even")


def test_modes_are_read_as_chop_reads_them(tmp_path):
    named, numbered = (
        make_file(tmp_path / "file", "q43", "--op", "mul", "--count", 20, "--mode", mode)
        for mode in ("down", 3)
    )
    assert named == numbered and torch_dtypes.chop(-1.01, "q43", rounding=3) == -1.125
    with pytest.raises(ValueError, match="Pychop's number from 1 to 9, but got 99") as error:
        torch_dtypes.chop(1.0, "q43", rounding=99)
    assert (
        str(error.value)
        in run("q43", "--op", "mul", "--mode", 99, "--out", tmp_path / "file").output
    )


@pytest.mark.parametrize("mode", thin_out(MODES, 3))
def test_casts(mode, tmp_path):
    pairs = [(SPECS[i], SPECS[(5 * i + 3) % len(SPECS)]) for i in range(len(SPECS))]
    for source, target in pairs:
        arguments = ("--op", "cast", "--to", name_of(target), "--mode", mode)
        _, columns, rows = read(
            make_file(tmp_path / "file", name_of(source), *arguments, "--count", 150)
        )
        assert columns == [("a", source.bits), ("result", target.bits), ("flags", 5)]
        check(rows, "cast", source, target, mode)


@pytest.mark.parametrize("spec", [posit(8, 1), binary(5, 5), binary(4, 3)], ids=name_of)
@pytest.mark.parametrize("policy", ["exact", "format", "format(accumulator=e8m9)"])
def test_dots(spec, policy, tmp_path):
    arguments = ("--op", "dot", "--terms", 5, "--accumulate", policy, "--count", 400)
    header, columns, rows = read(make_file(tmp_path / "file", name_of(spec), *arguments))
    assert (header["terms"], header["accumulate"], len(columns)) == ("5", policy, 12)
    finite, accumulator = 0, binary(8, 9) if "(" in policy else spec
    for *codes, code, flags in rows:
        x = [spec.decode(c) for c in codes]
        if any(isinstance(v, float) and not math.isfinite(v) for v in x):
            assert not flags & ~FLAGS["invalid"]
            continue
        finite += 1
        products = [Fraction(a) * Fraction(b) for a, b in zip(x[:5], x[5:], strict=True)]
        total = sum(products)
        if policy == "exact":
            assert code == spec.encode(total) and flags == (
                flags_of(spec, total, spec.decode(code), "nearest_even") if total else 0
            )
            continue
        found = Fraction(0)
        for p in products:
            p = spec.decode(spec.encode(p))
            finite_so_far = all(map(math.isfinite, (found, p)))
            found = (
                accumulator.decode(accumulator.encode(Fraction(found) + Fraction(p)))
                if finite_so_far
                else math.nan
            )
        found = spec.decode(spec.encode(found)) if math.isfinite(found) else math.nan
        delivered = spec.decode(code)
        assert delivered == found or not math.isfinite(found)
        assert bool(flags & FLAGS["inexact"]) == (delivered != total)
        assert bool(flags & FLAGS["overflow"]) >= (
            isinstance(delivered, float) and not math.isfinite(delivered)
        )
    assert finite > 200


def test_hard_cases_are_there(tmp_path):
    """Among 4,000 vectors in 16 bits there are hard cases, of which random vectors have nearly
    none."""
    for spec in (posit(16, 2), binary(5, 10)):
        least = spec.magnitude(1) if spec.posit else spec.magnitude(1 << spec.man_bits)
        for op in ("add", "mul", "fma", "cast"):
            arguments = ("--to", "e4m3" if spec.posit else "posit8es1") if op == "cast" else ()
            other = binary(4, 3) if spec.posit else posit(8, 1)
            target = other if op == "cast" else spec
            _, _, rows = read(
                make_file(tmp_path / "file", name_of(spec), "--op", op, "--count", 4000, *arguments)
            )
            values = [
                (
                    exact(op, spec, [spec.decode(c) for c in codes])[0],
                    [spec.decode(c) for c in codes],
                )
                for *codes, _, _ in rows
            ]
            numbers = [(v, x) for v, x in values if isinstance(v, Fraction)]
            ties = sum(target.locate(abs(v))[1] == 0 for v, _ in numbers)
            assert ties > 80, (name_of(spec), op, ties)
            # Sums of a format's numbers do not underflow: they are numbers of the format, or in the
            # normal range.
            seen = [
                sum(bool(row[-1] & bit) for row in rows)
                for bit in ((1, 4) if op == "add" else (1, 2, 4))
            ]
            assert min(seen) > 20, (name_of(spec), op, seen)
            if op == "add":
                assert sum(abs(v) * 64 < max(map(abs, x)) for v, x in numbers) > 200
            if op != "cast":
                assert (
                    sum(
                        any(0 < abs(y) <= least for y in x if isinstance(y, Fraction))
                        for _, x in values
                    )
                    > 20
                )


def test_both_ways_of_exact_arithmetic_agree():
    from torch_dtypes.workbench.vectors import exact
    from torch_dtypes.workbench.vectors.making import Job

    for name in ("q43", "posit16es2", "e5m10", "e6m20", "fixed10_12"):
        for op in ("add", "sub", "mul", "div", "sqrt", "fma"):
            columns = next(Job(name, op, count=3000).batches())[:-2]
            values = [_C.decode_exact(torch_dtypes.format_of(name), c) for c in columns]
            usable = torch.stack([v.isfinite() for v in values]).all(0)
            if op == "sqrt":
                usable &= values[0] > 0
            elif op == "div":
                usable &= values[0] * values[1] != 0
            values = [v[usable] for v in values]
            found, right = exact.by_tensors(op, values), exact.by_rationals(op, values)
            # Round to fewer than 53 bits, with an odd last bit: these round alike in every mode.
            if op in ("div", "sqrt"):
                fmt = torch_dtypes.format_of(name)
                for mode in MODES:
                    fmt.rounding = getattr(_C.Rounding, mode)
                    a, b = _C.encode_exact(fmt, found), _C.encode_exact(fmt, right)
                    assert torch.equal(a, b)
                    assert torch.equal(
                        _C.decode_exact(fmt, a) == found, _C.decode_exact(fmt, b) == right
                    )
            else:
                assert torch.equal(found, right), (name, op)


def test_operators_give_the_same_codes():
    from torch_dtypes.workbench.vectors.making import Job

    for name in ("q52", "posit8es1", "e4m3fn_saturate"):
        for op, mode in (("add", "nearest_even"), ("div", "down"), ("mul", "to_odd")):
            a, b, codes, _ = next(Job(name, op, mode, count=10_000).batches())
            a, b = (torch_dtypes.from_codes(c.to(torch.uint8), name) for c in (a, b))
            with torch_dtypes.rounding(mode):
                result = getattr(torch, op)(a, b)
            same = torch_dtypes.codes(result) == codes
            assert bool((same | result.isnan()).all())


@pytest.mark.parametrize("part", ["accumulator", "product"])
def test_dots_round_each_step_as_its_format_says(part):
    """The steps may round differently from the results."""

    def results(policy):
        return torch.cat(
            [
                batch[-2]
                for batch in Job("q43", "dot", terms=24, count=300, accumulate=policy).batches()
            ]
        )

    up = results(f"format({part}=e5m2_up)")
    assert not torch.equal(up, results(f"format({part}=e5m2)"))
    a, b = (
        torch.stack(next(Job("q43", "dot", terms=24, count=300).batches())[i : i + 24], 1)
        for i in (0, 24)
    )
    with torch_dtypes.accumulate("format", **{part: "e5m2_up"}):
        made = torch.bmm(
            *(
                torch_dtypes.from_codes(x.to(torch.uint8), torch.q43).unsqueeze(d)
                for x, d in ((a, 1), (b, 2))
            )
        ).flatten()
    numbers = ~made.isnan()
    assert torch.equal(torch_dtypes.codes(made).long()[numbers], up[numbers])

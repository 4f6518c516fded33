"""``torch-dtypes vectors``: its files, read by a reader of their own, against exact rationals and IEEE 754-2019, section 7, in rationals."""

import itertools
import json
import math
import re
from fractions import Fraction

import pytest
import torch
from oracle import MODES, binary, posit
from oracle_fixed import Fixed
from oracle_tables import of_definition
from spec_formats import name_of, p3109

import torch_dtypes
from torch_dtypes import _C, cli
from torch_dtypes.tables import making
from torch_dtypes.tables.floats import TabledFloat
from torch_dtypes.workbench.vectors.making import Job

pytestmark = pytest.mark.own_process

click_testing = pytest.importorskip("click.testing", reason="the command line needs click")
FLAGS = {"inexact": 1, "underflow": 2, "overflow": 4, "divide_by_zero": 8, "invalid": 16}
SPECS = [
    posit(8, 1), posit(8, 2, underflow="zero"), posit(16, 2), posit(32, 2), binary(4, 3), binary(5, 10), binary(4, 3, specials="fn"),
    binary(4, 3, specials="fn", overflow="saturate"), binary(2, 1, specials="none"), binary(5, 2, specials="fnuz"), binary(3, 0, specials="fn"),
    binary(4, 3, subnormals=False), p3109(8, 3), p3109(8, 1), binary(8, 23), Fixed(3, 4), Fixed(3, 4, overflow="wrap"), Fixed(4, 4, False),
    Fixed(2, 3, symmetric=True), posit(2, 0), posit(28, 3, underflow="zero"), posit(8, 1, infinity="saturate"), p3109(3, 1), Fixed(0, 1, False),
    binary(1, 2, specials="none"), binary(11, 20, subnormals=False), binary(11, 49),
    binary(5, 2, overflow="saturate"), Fixed(20, 11, overflow="wrap"),
]  # fmt: skip


def run(*arguments):
    return click_testing.CliRunner().invoke(cli.group(), ["vectors", *map(str, arguments)])


def made(path, *arguments):
    result = run(*arguments, "--out", path)
    assert result.exit_code == 0, result.output
    return path.read_text()


def read(text):
    """Header, columns and vectors of a file of any of the three kinds."""
    if text.startswith("{"):
        data = json.loads(text)
        return data["header"], [(c["name"], c["bits"]) for c in data["header"]["columns"]], data["vectors"]
    lines = text.splitlines()
    mark = lines[0].split()[0]
    header = dict(line[len(mark) + 1 :].split(": ", 1) for line in lines if line.startswith(mark) and ": " in line)
    columns = [(name, int(bits)) for name, bits in (item.split(":") for item in header["columns"].split())]
    assert {k: int(v) for k, v in (item.split("=") for item in header["flags"].split())} == FLAGS
    body = [line for line in lines if not line.startswith(mark)]
    if mark == "#":
        return header, columns, [[int(word, 16) for word in line.split()] for line in body]
    places = [tuple(map(int, re.fullmatch(r"\w+\[(\d+):(\d+)\]", item).groups())) for item in header["word"].split()]
    words = [int(line.replace("_", ""), 16) for line in body]
    return header, columns, [[(word >> low) & (1 << high - low + 1) - 1 for high, low in places] for word in words]


# ---- what is right, in rationals ----


def sign_of(x):
    if isinstance(x, Fraction) and x:
        return 1.0 if x > 0 else -1.0
    return math.copysign(1, x)


def root_of(x):
    """A root with 1,200 bits behind the point, odd where it is inexact."""
    scaled = x * (1 << 2400)
    root = math.isqrt(math.floor(scaled))
    return Fraction(2 * root + (Fraction(root * root) != scaled), 1 << 1201)


def exact(op, spec, x):
    """The exact result: a Fraction; or an infinity, NaN or a signed zero as a float. And whether it is undefined, or a division by 0."""
    if any(isinstance(v, float) and math.isnan(v) for v in x):
        return math.nan, False, False
    numbers = [float(v) if v == 0 or isinstance(v, float) else float(sign_of(v)) for v in x]  # signs, zeros and infinities are what counts
    if op == "cast":
        return x[0], False, False
    if op == "sqrt":
        if x[0] < 0:
            return math.nan, True, False
        return (x[0], False, False) if x[0] == 0 or x[0] == math.inf else (root_of(x[0]), False, False)
    if op == "div":
        if numbers[1] == 0 or math.isinf(numbers[0]):
            undefined = numbers[0] == 0 or (math.isinf(numbers[0]) and math.isinf(numbers[1]))
            if undefined:
                return math.nan, True, False
            return sign_of(numbers[0]) * sign_of(numbers[1]) * math.inf, False, not math.isinf(numbers[0])
        if numbers[0] == 0 or math.isinf(numbers[1]):
            return sign_of(numbers[0]) * sign_of(numbers[1]) * 0.0, False, False
        return Fraction(x[0]) / Fraction(x[1]), False, False
    if op in ("mul", "fma"):
        if any(map(math.isinf, numbers[:2])) and 0 in numbers[:2]:
            return math.nan, True, False
        product = numbers[0] * numbers[1]
        if product != 0 and not math.isinf(product):
            product = Fraction(x[0]) * Fraction(x[1])
        return (product, False, False) if op == "mul" else (*add(product, x[2]), False)
    return (*add(x[0], x[1] if op == "add" else -x[1] if x[1] != 0 or isinstance(x[1], float) else -0.0), False)


def add(a, b):
    """A sum, and whether it is undefined; None: an exact zero of terms with unlike signs, whose sign is the mode's."""
    if any(isinstance(v, float) and math.isinf(v) for v in (a, b)):
        total = (a if isinstance(a, float) else 0.0) + (b if isinstance(b, float) else 0.0)
        return (math.nan, True) if math.isnan(total) else (total, False)
    if a == 0 and b == 0:
        return (float(a), False) if sign_of(float(a)) == sign_of(float(b)) else (None, False)
    total = Fraction(a) + Fraction(b)
    return (None if total == 0 else total), False


def rounded(v, quantum, mode, ties_away=False, parity=lambda n: n % 2):
    """v as a multiple of a quantum."""
    n, rest = divmod(abs(v) / quantum, 1)
    n = int(n)
    up = {
        "nearest_even": rest > Fraction(1, 2) or (rest == Fraction(1, 2) and (ties_away or parity(n) == 1)), "nearest_zero": rest > Fraction(1, 2),
        "nearest_away": rest >= Fraction(1, 2), "up": v > 0, "down": v < 0, "toward_zero": False, "to_odd": parity(n) == 0 and not ties_away,
    }[mode]  # fmt: skip
    return (n + (up and rest != 0)) * quantum


def flags_of(spec, v, delivered, mode):
    """Overflow, underflow and inexact of a finite result v other than 0, from the definitions."""
    m = abs(v)
    if isinstance(spec, Fixed):
        n = rounded(v, Fraction(1, 1 << spec.frac_bits), mode) * (1 << spec.frac_bits) * (1 if v > 0 else -1)
        overflow, tiny = not spec.lowest <= n <= spec.highest, False
    elif spec.posit:
        overflow, tiny = m > spec.magnitude(spec.largest), m < spec.magnitude(1)
    else:
        exponent = max(m.numerator.bit_length() - m.denominator.bit_length() - 1, -10_000)
        while Fraction(2) ** (exponent + 1) <= m:
            exponent += 1
        quantum = Fraction(2) ** (exponent - spec.man_bits)
        # With one digit the last bit of what would be the code counts where the format goes by codes: that of the exponent.
        parity = (lambda n: (exponent + spec.bias + n - 1) % 2) if spec.man_bits == 0 and spec.one_zero else (lambda n: n % 2)
        unbounded = rounded(v, quantum, mode, spec._one_digit, parity)
        overflow = unbounded > spec.magnitude(spec.largest)
        tiny = unbounded < Fraction(2) ** (1 - spec.bias)
    inexact = overflow or delivered != v
    return FLAGS["inexact"] * inexact + FLAGS["overflow"] * overflow + FLAGS["underflow"] * (tiny and inexact)


def expected(op, source, target, codes, mode):
    """The code and the flags of one vector."""
    x = [source.decode(c) for c in codes]
    v, undefined, by_zero = exact(op, source, x)
    if v is None:
        v = -0.0 if mode == "down" else 0.0
    if v == 0 or isinstance(v, float):
        v = float(v)
        code = target.special(v)
        delivered = target.decode(code)
        if op == "cast" and not math.isfinite(v):
            kept = math.isnan(delivered) if math.isnan(v) else isinstance(delivered, float) and math.isinf(delivered)
            undefined = not kept
        return code, FLAGS["invalid"] * undefined + FLAGS["divide_by_zero"] * by_zero
    code = target.encode(v, mode)
    delivered = target.decode(code)
    return code, flags_of(target, v, delivered, mode)


def check(rows, op, source, target, mode):
    wrong = []
    for *codes, code, flags in rows:
        right = expected(op, source, target, codes, mode)
        # A cast of NaN keeps a sign that the definition leaves open.
        same = code == right[0] or (isinstance(d := target.decode(code), float) and math.isnan(d) and code & ~target_sign(target) == right[0])
        if op == "cast" and isinstance(n := source.decode(codes[0]), float) and math.isnan(n):
            same = same or code == target.special(-math.nan)
        if not same or flags != right[1]:
            wrong.append(([hex(c) for c in codes], hex(code), flags, hex(right[0]), right[1]))
    assert not wrong, f"{op} {name_of(source)} {mode}: {len(wrong)} of {len(rows)}: {wrong[:4]}"


def target_sign(spec):
    return 0 if isinstance(spec, Fixed) else spec.sign_code


# ---- files ----


@pytest.mark.parametrize("spec", SPECS, ids=name_of)
def test_directed_vectors(spec, tmp_path):
    for i, op in enumerate(("add", "sub", "mul", "div", "sqrt", "fma")):
        for mode in (MODES[i % 7], MODES[(3 * i + 4) % 7]):
            kind = ("hex", "json", "readmemh")[i % 3]
            text = made(tmp_path / "file", name_of(spec), "--op", op, "--mode", mode, "--count", 300, "--as", kind, "--seed", i)
            header, columns, rows = read(text)
            canonical = torch_dtypes.card(name_of(spec)).canonical
            named = name_of(spec) if canonical == name_of(spec) else f"{name_of(spec)} ({canonical})"
            assert (header["format"], header["operation"], header["rounding"]) == (named, op, mode)
            assert [name for name, _ in columns] == [*"abc"[: {"sqrt": 1, "fma": 3}.get(op, 2)], "result", "flags"]
            assert len(rows) == 300 == int(header["vectors"])
            check(rows, op, spec, spec, mode)


@pytest.mark.parametrize("spec", [posit(5, 1), binary(3, 2), binary(2, 2, specials="none"), Fixed(2, 3)], ids=name_of)
@pytest.mark.parametrize("op", ["add", "mul", "div"])
def test_all_vectors(spec, op, tmp_path):
    _, _, rows = read(made(tmp_path / "file", name_of(spec), "--op", op, "--all"))
    assert [row[:2] for row in rows] == [[a, b] for a in range(1 << spec.bits) for b in range(1 << spec.bits)]
    check(rows, op, spec, spec, "nearest_even")


def test_modes_are_read_as_chop_reads_them(tmp_path):
    named, numbered = (made(tmp_path / "file", "q43", "--op", "mul", "--count", 20, "--mode", mode) for mode in ("down", 3))
    assert named == numbered and torch_dtypes.chop(-1.01, "q43", rounding=3) == -1.125
    with pytest.raises(ValueError, match="Pychop's number from 1 to 9, but got 99") as error:
        torch_dtypes.chop(1.0, "q43", rounding=99)
    assert str(error.value) in run("q43", "--op", "mul", "--mode", 99, "--out", tmp_path / "file").output


@pytest.mark.parametrize("mode", MODES)
def test_casts(mode, tmp_path):
    pairs = [(SPECS[i], SPECS[(5 * i + 3) % len(SPECS)]) for i in range(len(SPECS))]
    for source, target in pairs:
        arguments = ("--op", "cast", "--to", name_of(target), "--mode", mode)
        _, columns, rows = read(made(tmp_path / "file", name_of(source), *arguments, "--count", 150))
        assert columns == [("a", source.bits), ("result", target.bits), ("flags", 5)]
        check(rows, "cast", source, target, mode)


@pytest.mark.parametrize("spec", [posit(8, 1), binary(5, 5), binary(4, 3)], ids=name_of)
@pytest.mark.parametrize("policy", ["exact", "format", "format(accumulator=e8m9)"])
def test_dots(spec, policy, tmp_path):
    arguments = ("--op", "dot", "--terms", 5, "--accumulate", policy, "--count", 400)
    header, columns, rows = read(made(tmp_path / "file", name_of(spec), *arguments))
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
            assert code == spec.encode(total) and flags == (flags_of(spec, total, spec.decode(code), "nearest_even") if total else 0)
            continue
        found = Fraction(0)
        for p in products:
            p = spec.decode(spec.encode(p))
            finite_so_far = all(map(math.isfinite, (found, p)))
            found = accumulator.decode(accumulator.encode(Fraction(found) + Fraction(p))) if finite_so_far else math.nan
        found = spec.decode(spec.encode(found)) if math.isfinite(found) else math.nan
        delivered = spec.decode(code)
        assert delivered == found or not math.isfinite(found)
        assert bool(flags & FLAGS["inexact"]) == (delivered != total)
        assert bool(flags & FLAGS["overflow"]) >= (isinstance(delivered, float) and not math.isfinite(delivered))
    assert finite > 200


# ---- tables of values ----

TABLES = {
    "nf4": None, "hif8": None, "e8m0": None, "takum8_linear": None, "takum8_log": None, "lns3_3": None, "posit8es2_regime3": None,
    "ue4m3p3109": TabledFloat(4, 3, 8, False, True, "p3109", "ieee").definition(),
    "ue3m2fn_saturate": TabledFloat(3, 2, 3, False, True, "fn", "saturate").definition(),
    "e4m3fn_normal": TabledFloat(4, 3, 7, True, "normal", "fn", "ieee").definition(),
}  # fmt: skip


def table_oracle(name):
    found = TABLES[name]
    if found is None:
        found = next(d(*(int(g) if g.isdecimal() else g for g in m.groups())) for p, d in making._named.values() if (m := p.fullmatch(name)))
    return of_definition(found)


def value_in_table(oracle, code):
    v = oracle.values[code] if code < len(oracle.values) else math.nan
    return Fraction(v) if math.isfinite(v) and v != 0 else v


def expected_in_table(op, source, target, codes, mode):
    """The code and the flags of one vector: overflow beyond the numbers of a sign, underflow between 0 and the smallest of them."""
    v, undefined, by_zero = exact(op, None, [value_in_table(source, c) for c in codes])
    if v is None:
        v = -0.0 if mode == "down" else 0.0
    code = target.encode(float(v) if v == 0 or isinstance(v, float) else v, mode)
    delivered = value_in_table(target, code)
    if isinstance(v, float) and not math.isfinite(v):
        if op == "cast":
            undefined = not (math.isnan(delivered) if math.isnan(v) else isinstance(delivered, float) and math.isinf(delivered))
        return code, FLAGS["invalid"] * undefined + FLAGS["divide_by_zero"] * by_zero
    own = [abs(x) for x in target.ordered if x * (1 if v > 0 else -1) > 0] if v != 0 else []
    overflow = v != 0 and (not own or abs(v) > max(own))
    inexact = overflow or delivered != v
    tiny = v != 0 and bool(own) and abs(v) < min(own)
    return code, FLAGS["inexact"] * inexact + FLAGS["overflow"] * overflow + FLAGS["underflow"] * (tiny and inexact)


def check_in_tables(rows, op, source, target, mode):
    right = [expected_in_table(op, source, target, codes, mode) for *codes, _, _ in rows]
    wrong = [(row, r) for row, r in zip(rows, right, strict=True) if tuple(row[-2:]) != r]
    assert not wrong, f"{op} {mode}: {len(wrong)} of {len(rows)}: {wrong[:4]}"


def test_tables(tmp_path):
    for i, (name, op) in enumerate(itertools.product(TABLES, ("add", "sub", "mul", "div", "sqrt", "fma"))):
        oracle = table_oracle(name)
        for mode in (MODES[i % 7], MODES[(3 * i + 4) % 7]):
            header, columns, rows = read(made(tmp_path / "file", name, "--op", op, "--mode", mode, "--count", 200, "--seed", i))
            assert header["format"] == name and columns[-2] == ("result", torch_dtypes.format_of(name).bits) and len(rows) == 200
            check_in_tables(rows, op, oracle, oracle, mode)


def test_casts_between_tables(tmp_path):
    names = list(TABLES)
    for i, mode in enumerate((*MODES, *MODES[:3])):
        source, target = names[i], names[(3 * i + 1) % len(names)]
        _, _, rows = read(made(tmp_path / "file", source, "--op", "cast", "--to", target, "--mode", mode, "--count", 200))
        check_in_tables(rows, "cast", table_oracle(source), table_oracle(target), mode)


def test_hard_cases_of_tables_are_there(tmp_path):
    """Ties, and both ends of the range."""
    for name, flags in (("hif8", (1, 2, 4)), ("takum8_linear", (1, 2, 4)), ("nf4", (1, 2)), ("ue4m3p3109", (1, 2, 4))):
        oracle = table_oracle(name)
        _, _, rows = read(made(tmp_path / "file", name, "--op", "mul", "--count", 3000))
        x = [exact("mul", None, [value_in_table(oracle, c) for c in codes])[0] for *codes, _, _ in rows]
        ties = sum(v in set(oracle.boundaries) for v in x if isinstance(v, Fraction))
        assert ties > 20 or name == "nf4", (name, ties)
        seen = [sum(bool(row[-1] & bit) for row in rows) for bit in flags]
        assert min(seen) > 20, (name, seen)


def test_hard_cases_are_there(tmp_path):
    """Of 4,000 vectors in 16 bits, where random ones have nearly none of them."""
    for spec in (posit(16, 2), binary(5, 10)):
        least = spec.magnitude(1) if spec.posit else spec.magnitude(1 << spec.man_bits)
        for op in ("add", "mul", "fma", "cast"):
            arguments = ("--to", "e4m3" if spec.posit else "posit8es1") if op == "cast" else ()
            target = (binary(4, 3) if spec.posit else posit(8, 1)) if op == "cast" else spec
            _, _, rows = read(made(tmp_path / "file", name_of(spec), "--op", op, "--count", 4000, *arguments))
            values = [(exact(op, spec, [spec.decode(c) for c in codes])[0], [spec.decode(c) for c in codes]) for *codes, _, _ in rows]
            numbers = [(v, x) for v, x in values if isinstance(v, Fraction)]
            ties = sum(target.locate(abs(v))[1] == 0 for v, _ in numbers)
            assert ties > 80, (name_of(spec), op, ties)
            # Sums of numbers of a format do not underflow: they are numbers of it, or in the normal range.
            seen = [sum(bool(row[-1] & bit) for row in rows) for bit in ((1, 4) if op == "add" else (1, 2, 4))]
            assert min(seen) > 20, (name_of(spec), op, seen)
            if op == "add":
                assert sum(abs(v) * 64 < max(map(abs, x)) for v, x in numbers) > 200
            if op != "cast":
                assert sum(any(0 < abs(y) <= least for y in x if isinstance(y, Fraction)) for _, x in values) > 20


def test_a_seed_draws_the_same_and_a_smaller_count_its_beginning(tmp_path):
    def rows(*arguments):
        return read(made(tmp_path / "file", "q43", "--op", "fma", *arguments))[2]

    first = rows("--count", 20_000)
    assert first == rows("--count", 20_000) and first[:500] == rows("--count", 500)
    assert first[:500] != rows("--count", 500, "--seed", 1)


def test_both_ways_of_exact_arithmetic_agree():
    from torch_dtypes.workbench.vectors import exact
    from torch_dtypes.workbench.vectors.making import Job

    for name in ("q43", "posit16es2", "e5m10", "e6m20", "fixed10_12"):
        for op in ("add", "sub", "mul", "div", "sqrt", "fma"):
            columns = next(Job(name, op, count=3000).batches())[:-2]
            values = [_C.decode_exact(torch_dtypes.format_of(name), c) for c in columns]
            usable = torch.stack([v.isfinite() for v in values]).all(0)
            usable &= (values[0] > 0) if op == "sqrt" else (values[0] * values[1] != 0) if op == "div" else True
            values = [v[usable] for v in values]
            found, right = exact.by_tensors(op, values), exact.by_rationals(op, values)
            if op in ("div", "sqrt"):  # to fewer bits than 53, odd in the last: they round alike in every mode
                fmt = torch_dtypes.format_of(name)
                for mode in MODES:
                    fmt.rounding = getattr(_C.Rounding, mode)
                    a, b = _C.encode_exact(fmt, found), _C.encode_exact(fmt, right)
                    assert torch.equal(a, b)
                    assert torch.equal(_C.decode_exact(fmt, a) == found, _C.decode_exact(fmt, b) == right)
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


@pytest.mark.parametrize(
    "arguments, words",
    [
        (("q44", "--op", "add"), "but got 'q44'"),
        (("int8", "--op", "add"), "expected a format without scales, but got int8"),
        (("q43", "--op", "cast", "--to", "mxfp4"), "expected a format without scales, but got mxfp4: name that of its elements, 'e2m1finite'"),
        (("q43", "--op", "cast"), "expected the format of the results (--to) with cast and only there, but got none with cast"),
        (("q43", "--op", "add", "--to", "q52"), "expected the format of the results"),
        (("q43", "--op", "dot"), "expected the number of terms (--terms) with dot and only there, but got none with dot"),
        (("q43", "--op", "dot", "--terms", 0), "expected 1 to 65536 terms"),
        (("q43", "--op", "dot", "--terms", 2, "--accumulate", "fast"), "'fast'"),
        (("q43", "--op", "add", "--accumulate", "exact"), "with dot only"),
        (("posit16es2", "--op", "add", "--all"), "2^32: ask for a count"),
        (("q43", "--op", "add", "--count", 0), "expected a count of at least 1"),
        (("q43", "--op", "add", "--count", 5, "--all"), "--count or --all, but got both"),
        (("q43", "--op", "sqrt", "--seed", 4, "--all"), "--seed or --all, but got both"),
        (("q43", "--op", "dot", "--terms", 2, "--accumulate", "format(rounding=stochastic)"), "format(rounding=stochastic) has stochastic: what"),
        (("q43", "--op", "dot", "--terms", 2, "--accumulate", "format(accumulator=e5m7_up_down)"), "has up_down: what it gives depends on random"),
        (("q43", "--op", "dot", "--terms", 2, "--accumulate", "block(terms=4, extra_bits=1, rounding=stochastic)"), "has stochastic: what it gives"),
        (("q43", "--op", "dot", "--terms", 2, "--accumulate", "nvidia-v100"), "expected operands of formats that nvidia-v100 multiplies"),
        (("q43", "--op", "add", "--mode", "stochastic"), "expected a deterministic rounding mode, but got stochastic"),
        (("q43", "--op", "add", "--mode", "nearest"), "expected a rounding mode"),
        (("fp64", "--op", "add"), "expected a format of at most 51 significant bits"),
    ],
)  # fmt: skip
def test_bad_input(arguments, words, tmp_path):
    result = run(*arguments, "--out", tmp_path / "file")
    assert result.exit_code == 2 and words in " ".join(result.output.replace("│", " ").split()), result.output
    assert not list(tmp_path.iterdir())


def test_standard_output(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = run("q43", "--op", "add", "--count", 20, "--out", "-")
    assert shown.exit_code == 0 and not list(tmp_path.iterdir()), "no file of that name"
    assert "written: -, 20 vectors" in shown.stderr
    run("q43", "--op", "add", "--count", 20, "--out", tmp_path / "file")
    assert shown.stdout == (tmp_path / "file").read_text()


@pytest.mark.parametrize("part", ["accumulator", "product"])
def test_dots_round_each_step_as_its_format_says(part):
    """And not as the results do."""

    def results(policy):
        return torch.cat([batch[-2] for batch in Job("q43", "dot", terms=24, count=300, accumulate=policy).batches()])

    up = results(f"format({part}=e5m2_up)")
    assert not torch.equal(up, results(f"format({part}=e5m2)"))
    a, b = (torch.stack(next(Job("q43", "dot", terms=24, count=300).batches())[i : i + 24], 1) for i in (0, 24))
    with torch_dtypes.accumulate("format", **{part: "e5m2_up"}):
        made = torch.bmm(*(torch_dtypes.from_codes(x.to(torch.uint8), torch.q43).unsqueeze(d) for x, d in ((a, 1), (b, 2)))).flatten()
    numbers = ~made.isnan()
    assert torch.equal(torch_dtypes.codes(made).long()[numbers], up[numbers])


def test_a_file_that_cannot_be_written(tmp_path):
    result = run("q43", "--op", "add", "--out", tmp_path / "none" / "file")
    assert result.exit_code == 2 and "cannot write" in result.output
    assert "is a folder" in run("q43", "--op", "add", "--out", tmp_path).output
    full = run("posit32es2", "--op", "dot", "--terms", 2, "--accumulate", "float32", "--out", tmp_path / "file")
    assert full.exit_code == 2 and "float32" in full.output  # the operator's own error, and nothing is left of the file
    assert not list(tmp_path.iterdir())

"""``torch-dtypes vectors`` of formats that are tables of values, and casts between them, against
exact rationals."""

import itertools
import math

import numpy as np
from oracle import MODES
from oracle_logarithms import of_name
from oracle_tables import of_definition
from oracle_vectors import FLAGS, exact
from rationals import Fraction
from read_vectors import make_file, read

import torch_dtypes
from torch_dtypes.formats.tables import making
from torch_dtypes.formats.tables.floats import TabledFloat

TABLES = {
    "nf4": None,
    "hif8": None,
    "e8m0": None,
    "takum8_linear": None,
    "takum8_log": None,
    "lns3_3": None,
    "posit8es2_regime3": None,
    "ue4m3p3109": TabledFloat(4, 3, 8, False, True, "p3109", "ieee").definition(),
    "ue3m2fn_saturate": TabledFloat(3, 2, 3, False, True, "fn", "saturate").definition(),
    "e4m3fn_normal": TabledFloat(4, 3, 7, True, "normal", "fn", "ieee").definition(),
}


def table_oracle(name):
    found = TABLES[name]
    if found is None:
        found = next(
            d(*(int(g) if g.isdecimal() else g for g in m.groups()))
            for p, d in making._named.values()
            if (m := p.fullmatch(name))
        )
    return of_definition(found)


def value_in_table(oracle, code):
    v = oracle.values[code] if code < len(oracle.values) else math.nan
    return Fraction(v) if math.isfinite(v) and v != 0 else v


def expected_in_table(op, source, target, codes, mode):
    """Return the code and the flags of one vector: overflow beyond the numbers of a sign, underflow
    between 0 and the smallest of them."""
    v, undefined, by_zero = exact(op, None, [value_in_table(source, c) for c in codes])
    if v is None:
        v = -0.0 if mode == "down" else 0.0
    code = target.encode(float(v) if v == 0 or isinstance(v, float) else v, mode)
    delivered = value_in_table(target, code)
    if isinstance(v, float) and not math.isfinite(v):
        if op == "cast":
            undefined = not (
                math.isnan(delivered)
                if math.isnan(v)
                else isinstance(delivered, float) and math.isinf(delivered)
            )
        return code, FLAGS["invalid"] * undefined + FLAGS["divide_by_zero"] * by_zero
    own = [abs(x) for x in target.ordered if x * (1 if v > 0 else -1) > 0] if v != 0 else []
    overflow = v != 0 and (not own or abs(v) > max(own))
    inexact = overflow or delivered != v
    tiny = v != 0 and bool(own) and abs(v) < min(own)
    return code, FLAGS["inexact"] * inexact + FLAGS["overflow"] * overflow + FLAGS["underflow"] * (
        tiny and inexact
    )


def expected_on_logarithms(name, op, codes, mode):
    """Return the code and the flags of a product, a quotient or a root of logarithmic numbers, and
    None for others."""
    if not name.startswith("lns") and not name.endswith("_log"):
        return None
    f = of_name(name)
    signs, logs = ([int(x[c]) for c in codes] for x in f.of_codes)
    if op not in ("mul", "div", "sqrt") or 0 in signs or (op == "sqrt" and signs[0] < 0):
        return None
    log = logs[0] // 2 if op == "sqrt" else logs[0] + logs[1] * (1 if op == "mul" else -1)
    code = f.encode(np.array([math.prod(signs)]), np.array([log]), mode).item()
    inexact, overflow, tiny = log not in f.logs, log > f.logs[-1], log < f.logs[0]
    return code, int(
        FLAGS["inexact"] * inexact + FLAGS["overflow"] * overflow + FLAGS["underflow"] * tiny
    )


def check_in_tables(rows, op, source, target, mode, name=""):
    right = [
        expected_on_logarithms(name, op, codes, mode)
        or expected_in_table(op, source, target, codes, mode)
        for *codes, _, _ in rows
    ]
    wrong = [(row, r) for row, r in zip(rows, right, strict=True) if tuple(row[-2:]) != r]
    assert not wrong, f"{op} {mode}: {len(wrong)} of {len(rows)}: {wrong[:4]}"


def test_tables(tmp_path):
    for i, (name, op) in enumerate(
        itertools.product(TABLES, ("add", "sub", "mul", "div", "sqrt", "fma"))
    ):
        oracle = table_oracle(name)
        for mode in (MODES[i % 7], MODES[(3 * i + 4) % 7]):
            header, columns, rows = read(
                make_file(
                    tmp_path / "file", name, "--op", op, "--mode", mode, "--count", 200, "--seed", i
                )
            )
            assert (
                header["format"] == name
                and columns[-2] == ("result", torch_dtypes.format_of(name).bits)
                and len(rows) == 200
            )
            check_in_tables(rows, op, oracle, oracle, mode, name)


def test_casts_between_tables(tmp_path):
    names = list(TABLES)
    for i, mode in enumerate((*MODES, *MODES[:3])):
        source, target = names[i % len(names)], names[(3 * i + 1) % len(names)]
        _, _, rows = read(
            make_file(
                tmp_path / "file",
                source,
                "--op",
                "cast",
                "--to",
                target,
                "--mode",
                mode,
                "--count",
                200,
            )
        )
        check_in_tables(rows, "cast", table_oracle(source), table_oracle(target), mode)


def test_hard_cases_of_tables_are_there(tmp_path):
    """The vectors contain ties, and both ends of the range."""
    for name, flags in (
        ("hif8", (1, 2, 4)),
        ("takum8_linear", (1, 2, 4)),
        ("nf4", (1, 2)),
        ("ue4m3p3109", (1, 2, 4)),
    ):
        oracle = table_oracle(name)
        _, _, rows = read(make_file(tmp_path / "file", name, "--op", "mul", "--count", 3000))
        x = [
            exact("mul", None, [value_in_table(oracle, c) for c in codes])[0]
            for *codes, _, _ in rows
        ]
        ties = sum(v in set(oracle.boundaries) for v in x if isinstance(v, Fraction))
        assert ties > 20 or name == "nf4", (name, ties)
        seen = [sum(bool(row[-1] & bit) for row in rows) for bit in flags]
        assert min(seen) > 20, (name, seen)

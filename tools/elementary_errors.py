#!/usr/bin/env python3
"""Measures every elementary function on all numbers of formats, and writes docs/elementary.md.

The exact values are mpmath's.

python tools/elementary_errors.py                # the formats of the document; minutes python
tools/elementary_errors.py --dtype q43 --function exp --out -
"""

import argparse
import math
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [
    str(ROOT / "test"),
    str(ROOT / "test" / "support"),
    str(ROOT / "test" / "operators"),
]

import numpy as np  # noqa: E402
import oracle_elementary as elementary  # noqa: E402
import torch  # noqa: E402
from conftest import codes_of, from_codes  # noqa: E402
from oracle import table  # noqa: E402
from prose import wrap_prose  # noqa: E402
from test_elementary import AS_STOCK, COMPOSED, FORMATS, LOSSES, dtype_of  # noqa: E402

DTYPES = (
    "posit8es0",
    "posit8es1",
    "posit8es2",
    "q43",
    "q52",
    "e5m5",
    "e8m4",
    "e5m10",
    "posit16es2",
)


@dataclass
class Row:
    inputs: int = 0
    misrounded: int = 0
    beyond: int = 0  # among these: 0 or NaR where float64 ends
    # Among these: other zeros, infinities and NaN than the exact result's.
    specials: int = 0
    steps: float = 0.0  # largest error of a misrounded number, and where
    worst: float = math.nan
    ulps: float = 0.0  # largest error
    zero_signs: int = 0


def places(t, m: np.ndarray) -> np.ndarray:
    """Map magnitudes to a scale on which a format's numbers are 0, 1, 2 ...

    The boundaries between them are 0.5, 1.5 ... The scale is linear in between, so that correctly
    rounded results err by 0.5 at most. Magnitudes beyond the largest number have that number's
    place.
    """
    at = np.clip(np.searchsorted(t.values, m, side="right") - 1, 0, len(t.values) - 2)
    low, b, high = t.values[at], t.boundaries[at], t.values[at + 1]
    with np.errstate(invalid="ignore", divide="ignore"):
        above = 0.5 + 0.5 * (m - b) / (high - b)
        return at + np.where(
            m == low, 0, np.clip(np.where(m < b, 0.5 * (m - low) / (b - low), above), 0, 1)
        )


def measure(name: str, format_name: str) -> Row:
    """Measure a function's errors in a format.

    Exact results become float64 numbers for the size of an error, not for its existence.
    """
    function, spec = elementary.FUNCTIONS[name], FORMATS[format_name]
    t = table(spec)
    operands = from_codes(torch.arange(1 << spec.bits), dtype_of(format_name))
    x = operands.double().numpy()
    result = function.torch(operands)
    actual, y = codes_of(result).numpy(), result.double().numpy()
    right = elementary.expected_codes(function, spec, x)
    exact = [elementary.exact(function, v) for v in x.tolist()]
    e, due = np.array([elementary.as_float(v) for v in exact]), t.decode()[right]
    wrong = ~elementary.same_codes(spec, actual, right)
    signs = wrong & (y == 0) & (due == 0)
    wrong &= ~signs
    beyond = (
        wrong
        & np.array([not isinstance(v, float) for v in exact])
        & ((abs(e) < 1e-300) | (abs(e) > 1e300))
        & spec.posit
    )
    numbers = np.isfinite(y) & np.isfinite(due) & ~beyond
    row = Row(
        len(x),
        int(wrong.sum()),
        int(beyond.sum()),
        int((wrong & ~beyond & ~numbers).sum()),
        zero_signs=int(signs.sum()),
    )
    if numbers.any():
        x, y, e, wrong = (v[numbers] for v in (x, y, e, wrong))
        steps = abs(np.copysign(places(t, abs(y)), y) - np.copysign(places(t, abs(e)), e))
        at = np.clip(np.searchsorted(t.values, abs(e), side="right") - 1, 0, len(t.values) - 2)
        ulps = abs(y - e) / (t.values[at + 1] - t.values[at])
        row.ulps = float(ulps[abs(e) <= t.values[-1]].max())
        if wrong.any():
            worst = np.argmax(np.where(wrong, steps, -1.0))
            row.steps, row.worst = float(steps[worst]), float(x[worst])
    return row


def cell(row: Row) -> str:
    if not row.misrounded:
        return f"0; {row.ulps:.3g}"
    parts = [
        f"{row.beyond} beyond float64" if row.beyond else "",
        f"{row.specials} specials" if row.specials else "",
    ]
    rest = row.misrounded - row.beyond - row.specials
    if rest:
        parts.append(f"{rest} up to {row.steps:.6g} steps at {row.worst:.6g}")
    return f"{row.misrounded}: " + ", ".join(p for p in parts if p) + f"; {row.ulps:.3g}"


def document(rows: dict, dtypes: list[str]) -> str:
    inputs = {d: next(row[d] for row in rows.values()).inputs for d in dtypes}
    clean = [n for n, by in rows.items() if not any(r.misrounded for r in by.values())]
    reasons = {
        n: f"{LOSSES[n][1]}: an absolute error of float64's size" for n in LOSSES if n in rows
    }
    reasons |= {n: "several operators, each of which rounds" for n in COMPOSED if n in rows}
    signs = sorted(n for n, by in rows.items() if any(r.zero_signs for r in by.values()))
    table_rows = [
        f"| `{n}` | " + " | ".join(cell(by[d]) for d in dtypes) + " |" for n, by in rows.items()
    ]
    exact = ", ".join(f"`{n}`" for n in clean)
    as_stock = ", ".join(
        f"`{n}` at {', '.join(map(str, at))}" for n, at in AS_STOCK.items() if n in rows
    )
    return wrap_prose(f"""# Elementary functions

Each function on every number of a format against the exact function, computed by
mpmath with 200 bits (1,200 where they do not decide) and rounded once, by

    python tools/elementary_errors.py

A cell: how many results are misrounded and how; then the largest error in ulps, which
are distances between neighbouring numbers. Of a correctly rounded result that is 0.5 at
most in a float, up to 1 in a posit, whose boundaries are not half-way where the exponent
is cut. A step goes from number to number and is cut in two by the boundary between them,
so that correctly rounded results err by 0.5 steps at most in every format. *Beyond
float64*: a posit should be its largest or smallest number there, but the function is
infinite (NaR) or 0 in float64. *Specials*: a zero, an infinity or NaN of stock PyTorch's
function where the exact one has another value.

{len(clean)} of {len(rows)} functions are correctly rounded for every input of these
formats: {exact}.

| function | {" | ".join(f"{d} ({inputs[d]:,} inputs)" for d in dtypes)} |
|---|{"---|" * len(dtypes)}
{chr(10).join(table_rows)}

## Why

{chr(10).join(f"- `{n}`: {why}." for n, why in reasons.items())}
- Special values as stock PyTorch's: {as_stock}.
- Signs of zeros as stock PyTorch's formulas give them, not counted above:
  {", ".join(f"`{n}`" for n in signs)}.
""")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--dtype",
        action="append",
        choices=[n for n, s in FORMATS.items() if s.bits <= 16],
        help="may be repeated",
    )
    parser.add_argument(
        "--function", action="append", choices=list(elementary.FUNCTIONS), help="may be repeated"
    )
    parser.add_argument(
        "--out",
        default=str(ROOT / "docs" / "elementary.md"),
        help="where to write, - for the terminal (default: %(default)s)",
    )
    options = parser.parse_args()
    dtypes = options.dtype or list(DTYPES)
    torch.set_num_threads(1)
    rows = {}
    for name in options.function or list(elementary.FUNCTIONS):
        rows[name] = {d: measure(name, d) for d in dtypes}
        elementary._exact.cache_clear()
        print(
            name,
            {d: r.misrounded for d, r in rows[name].items() if r.misrounded},
            file=sys.stderr,
            flush=True,
        )
    text = document(rows, dtypes)
    if options.out == "-":
        print(text)
    else:
        Path(options.out).write_text(text)


if __name__ == "__main__":
    main()

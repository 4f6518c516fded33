"""Rows of the built-in formats for PyTorch's lists, made from c10/formats/BuiltinFormats.h.

That file has names in small letters, as dtypes have. Enumerators begin with a capital, which the
preprocessor cannot make.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Row:
    name: str
    bits: int
    digits: int  # the most significant bits of a value
    posit: bool

    @property
    def enumerator(self) -> str:
        return self.name.capitalize()

    @property
    def code_type(self) -> str:
        return f"uint{next(bits for bits in (8, 16, 32) if self.bits <= bits)}_t"


def builtin_rows(root: Path) -> list[Row]:
    """Return the built-in formats in their order: posits, then floats.

    ScalarTypes.cpp checks widths and digits against the formats.
    """
    text = (root / "c10" / "formats" / "BuiltinFormats.h").read_text()
    rows = []
    for macro, posit in (("AT_FORALL_POSIT_TYPES", True), ("AT_FORALL_CUSTOM_FLOAT_TYPES", False)):
        macro_rows = re.search(rf"#define {macro}\(_\)((?:.*\\\n)+.*)", text)[1]
        for name, first, second in re.findall(r"_\((\w+), (\d+), (\d+)\)", macro_rows):
            a, b = int(first), int(second)
            rows.append(
                Row(name, a, max(a - 2 - b, 1), True)
                if posit
                else Row(name, 1 + a + b, b + 1, False)
            )
    return rows


def header(rows: list[Row]) -> str:
    """Return the text of c10/formats/intree/ScalarTypeRows.h."""
    aliases = "\n".join(
        f"using {row.name} = formats::Element<{number}, {row.code_type}>;"
        for number, row in enumerate(rows)
    )
    list_rows = " \\\n".join(f"  _(c10::{row.name}, {row.enumerator})" for row in rows)
    types = ", ".join(f"c10::ScalarType::{row.enumerator}" for row in rows)
    names = ", ".join(f'"{row.name}"' for row in rows)
    digits = ", ".join(str(row.digits) for row in rows)
    return f"""// The built-in formats as rows of PyTorch's lists of types.
// Made by tools/intree from c10/formats/BuiltinFormats.h.
#pragma once
#include <cstdint>

namespace c10 {{
namespace formats {{
template <int Row, typename Code>
struct Element;
inline constexpr int kElementDigits[] = {{{digits}}};
}} // namespace formats

{aliases}
}} // namespace c10

// Rows _(C++ type, enumerator), and for AT_DISPATCH_V2 the types alone.
#define AT_FORALL_FORMAT_SCALAR_TYPES(_) \\
{list_rows}

#define AT_FORMAT_SCALAR_TYPES {types}
#define TD_FIRST_FORMAT {rows[0].enumerator}
#define TD_LAST_FORMAT {rows[-1].enumerator}
#define TD_POSIT_ROWS {sum(row.posit for row in rows)}
#define TD_DTYPE_NAMES {names}
"""

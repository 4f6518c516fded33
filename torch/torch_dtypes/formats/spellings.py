"""Other tools' names of formats: this package's name for each, with its source, and the names that
two tools use for two formats."""

from __future__ import annotations

_PYCHOP = "Pychop 0.6, table 1"
_IEEE = "IEEE 754-2019, table 3.5"
_OCP = "OCP Microscaling Formats 1.0, section 5.3, as gfloat 0.5 spells it"
_ML_DTYPES = "ml_dtypes 0.6"
_MLIR = "MLIR's built-in types, as XLA and StableHLO have them"
_ONNX = "ONNX 1.19, TensorProto"
_MX = "microxcaling 1.1, ElemFormat"

_ROWS = (
    (
        _PYCHOP,
        {
            "h": "e5m10",
            "half": "e5m10",
            "fp16": "e5m10",
            "b": "e8m7",
            "bf16": "e8m7",
            "t": "tf32",
            "s": "e8m23",
            "single": "e8m23",
            "fp32": "e8m23",
            "d": "e11m52",
            "double": "e11m52",
            "fp64": "e11m52",
            "fp8-e5m2": "q52",
        },
    ),
    (_IEEE, {"binary16": "e5m10", "binary32": "e8m23", "binary64": "e11m52"}),
    (
        _OCP,
        {
            "ocp_e4m3": "e4m3fn",
            "ocp_e5m2": "q52",
            "ocp_e3m2": "e3m2finite",
            "ocp_e2m3": "e2m3finite",
            "ocp_e2m1": "e2m1finite",
        },
    ),
    ("Agrawal et al., ARITH 2019", {"dlfloat16": "e6m9fn_normal"}),
    (
        _ML_DTYPES,
        {
            "float8_e3m4": "e3m4",
            "float8_e4m3": "q43",
            "float8_e4m3b11fnuz": "e4m3fnuz_bias11",
            "float6_e2m3fn": "e2m3finite",
            "float6_e3m2fn": "e3m2finite",
            "float4_e2m1fn": "e2m1finite",
        },
    ),
    (
        _MLIR,
        {
            "f8e3m4": "e3m4",
            "f8e5m2": "q52",
            "f8e4m3fn": "e4m3fn",
            "f8e4m3fnuz": "e4m3fnuz",
            "f8e5m2fnuz": "e5m2fnuz",
            "f8e4m3b11fnuz": "e4m3fnuz_bias11",
            "f6e2m3fn": "e2m3finite",
            "f6e3m2fn": "e3m2finite",
            "f4e2m1fn": "e2m1finite",
        },
    ),
    (
        _ONNX,
        {
            "float8e4m3fn": "e4m3fn",
            "float8e4m3fnuz": "e4m3fnuz",
            "float8e5m2": "q52",
            "float8e5m2fnuz": "e5m2fnuz",
            "float4e2m1": "e2m1finite",
        },
    ),
    (
        _MX,
        {
            "fp8_e5m2": "q52",
            "fp6_e3m2": "e3m2finite",
            "fp6_e2m3": "e2m3finite",
            "fp4_e2m1": "e2m1finite",
        },
    ),
    (
        "safetensors 0.7, Dtype",
        {"f8_e5m2": "q52", "f6_e3m2": "e3m2finite", "f6_e2m3": "e2m3finite"},
    ),
    (
        "SoftPosit 0.4",
        {"posit8_t": "posit8es0", "posit16_t": "posit16es1", "posit32_t": "posit32es2"},
    ),
    ("SoftPosit 0.4 and the Posit Standard (2022)", {"posit32": "posit32es2"}),
)

SPELLINGS = {name: (here, source) for source, names in _ROWS for name, here in names.items()}
"""Other tools' names, in lower case, with this package's name for the same values, and the
source."""

ALIASES = {name: here for name, (here, _) in SPELLINGS.items()}

_E4M3 = (
    ("q43", "with infinities and the largest number 240"),
    ("e4m3fn", "OCP's, without infinities and with 448"),
)
_BY_TWO = {
    "fp8-e4m3": (
        ("q43", "Pychop's, with 240"),
        ("e4m3fn", "OCP's with 448, which vLLM and microxcaling write fp8_e4m3"),
    ),
    "f8e4m3": (
        ("q43", "MLIR's, with 240"),
        ("e4m3fn", "OCP's with 448, which safetensors writes F8_E4M3"),
    ),
    "fp4": (
        ("e2m1finite", "OCP's e2m1, as in microxcaling"),
        ("table_format(values)", "of bitsandbytes' own 16 values"),
    ),
    "posit8": (("posit8es0", "SoftPosit's"), ("posit8es2", "the Posit Standard's of 2022")),
    "posit16": (("posit16es1", "SoftPosit's"), ("posit16es2", "the Posit Standard's of 2022")),
}

AMBIGUOUS = {
    **_BY_TWO,
    "fp8_e4m3": _BY_TWO["fp8-e4m3"],
    "fp8e4m3": _BY_TWO["fp8-e4m3"],
    "f8_e4m3": _BY_TWO["f8e4m3"],
    "E4M3": _E4M3,
    "E3M2": (("e3m2", "with infinities and NaN"), ("e3m2finite", "OCP's, of finite numbers alone")),
    "E2M3": (("e2m3", "with infinities and NaN"), ("e2m3finite", "OCP's, of finite numbers alone")),
    "E2M1": (("e2m1", "with infinities and NaN"), ("e2m1finite", "OCP's, of finite numbers alone")),
}
"""Names that two tools use for two formats: both formats, each with its tool. Capitals are OCP's
spelling."""


def refuse_ambiguous(head: str, name: str) -> None:
    """Raise ValueError if a name without its options means two formats."""
    if head in AMBIGUOUS:
        (first, one_tool), (second, other_tool) = AMBIGUOUS[head]
        raise ValueError(
            f"expected the name of one format, but got {name!r}, which means {first!r} "
            f"({one_tool}) or {second!r} ({other_tool}); write one of these"
        )


def build_markdown() -> str:
    """Build the table of docs/reference/spellings.md."""
    rows = [f"| `{name}` | `{here}` | {source} |" for name, (here, source) in SPELLINGS.items()]
    both = [
        f"| `{name}` | " + " | ".join(f"`{here}`, {tool}" for here, tool in AMBIGUOUS[name]) + " |"
        for name in AMBIGUOUS
    ]
    head = (
        ["| name | here | source |", "|---|---|---|"],
        ["| name | either | or |", "|---|---|---|"],
    )
    return (
        "\n".join(
            [
                *head[0],
                *rows,
                "",
                "Names that two tools give to two formats are errors that show both:",
                "",
                *head[1],
                *both,
            ]
        )
        + "\n"
    )

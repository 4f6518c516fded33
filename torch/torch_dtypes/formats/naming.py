"""Names of formats: from a format to its name, and back. The docstring of formats.dtype() has the
grammar."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection

from .. import _C
from .patterns import name_pattern
from .spellings import ALIASES, refuse_ambiguous

ROUNDING_MODES = tuple(name for name, _, _ in _C.ROUNDING_MODES)
# Modes that draw random words.
DRAWING_MODES = frozenset(name for name, _, draws in _C.ROUNDING_MODES if draws)

# Pychop's numbers. Other libraries number differently, so names are the interface.
PYCHOP_MODES = {number: name for name, number, _ in _C.ROUNDING_MODES if number}

_TEMPLATE = name_pattern(r"(posit|float|fixed|ufixed)<(-?\d+), ?(-?\d+)>(.*)")
_POSIT = name_pattern(r"posit(\d+)es(\d+)(?:_regime(\d+))?(_underflow)?(_saturate)?")
_TAKUM = name_pattern(r"takum(\d+)_(linear|log)")
_FLOAT = name_pattern(
    r"(u)?e(\d+)m(\d+)(fnuz|fn|finite|p3109)?(?:_bias(minus)?(\d+))?(_flush|_normal)?(_saturate|"
    r"_propagate)?"
)
_FIXED = name_pattern(r"(u)?fixed((?:minus)?\d+)_((?:minus)?\d+)(_symmetric|_wrap)?")
_P3109 = name_pattern(r"binary(\d+)p(\d+)([su])([ef])")
_OPTIONS = name_pattern(
    r"(?s)(.+?)((?:_bias(?:minus)?\d+)?(?:_flush|_normal)?(?:_saturate|_propagate)?)"
)
_OPTION_NAMES = ("flush", "normal", "saturate", "propagate", "underflow", "symmetric", "wrap")
_SPECIALS = ("finite", "fn", "fnuz", "p3109")
_OTHER_SPECIALS = name_pattern(r"(u?e\d+m\d+)_?([a-zA-Z]+[0-9]*)(.*)")
_FEW_BITS = name_pattern(r"(.+)_(stochastic_[abc]\d+)")
_IN_CAPITALS = re.compile(r"(?:.*[<,] ?)?(E4M3|E3M2|E2M3|E2M1)(?:[_,>].*)?")

# Options that may follow a name, in their canonical order. A name has at most one of each line.
_ORDER = (
    r"regime\d+",
    r"size(?:all|\d+)(?:x(?:all|\d+))*",
    r"affine|symmetric|wrap",
    "narrow",
    r"axis[minusx0-9]+|dim(?:minus)?\d+|tensor",
    r"emax(?:minus)?\d+",
    "floor|ceil|even|rceil|nearest",
    "scaled",
    "nopad",
    r"bias(?:minus)?\d+",
    "flush|normal",
    "underflow",
    "saturate|propagate",
    "|".join((*ROUNDING_MODES, r"stochastic_[abc]\d+")),
)
_LAST_OPTION = name_pattern(rf"(?s)(.+?)_({'|'.join(f'(?:{kind})' for kind in _ORDER)})")
_OPTIONS_OF_A_KIND = tuple(name_pattern(kind) for kind in _ORDER)


# Patterns of names that mean no format of this package, or several, each with its remedy.
_HINTS = (
    (
        name_pattern(r"takum(\d+)"),
        r"give 'takum\1_linear' or 'takum\1_log': libraries mean one or the other by the bare name",
    ),
    (
        re.compile(r"(?i:aether[_-]?float[_-]?8).*"),
        "AetherFloat-8 has no name here, since its paper (arXiv 2603.08741) leaves open its bias, "
        "zero, NaN, infinities and rounding; if you know these, use table_format(values, ...)",
    ),
    (
        re.compile(r"((?:mx(?:fp|int)[0-9]|nvfp4|nvint4|amdfp4|hif4|msfp[0-9]|bfp[0-9]|block<).*)"),
        r"blocks are no dtype, since an element needs its block's scale; pack them with "
        r"torch_dtypes.quantize(x, '\1'), or round to them with torch_dtypes.chop(x, '\1')",
    ),
    (
        name_pattern(r"(u?int\d+(?:_group\d+)?)"),
        r"round to \1 with a scale by torch_dtypes.chop(x, '\1'); integers of k bits without a "
        r"scale are the format 'fixed<k-1>_0'",
    ),
    (name_pattern(r"posit_?(\d+)(?:[_,]+(?:es?)?|es?)_?(\d+)"), r"did you mean 'posit\1es\2'?"),
    (
        name_pattern(r"posit_?(\d+)"),
        r"add the number of exponent bits, as in 'posit\1es2'",
    ),
    (
        re.compile(r"b?float(?:16|32|64)"),
        "that is a stock dtype; 'bf16', 'fp16', 'fp32' and 'fp64' are formats of the same values",
    ),
    (
        re.compile(r"float8_(e[0-9]m[0-9](?:fn|fnuz)?)"),
        r"that is a stock dtype; '\1' is the format of the same values",
    ),
)


def hint(name: str) -> str:
    """Return advice about a name of no format, after a semicolon, or an empty text."""
    matches = ((pattern.fullmatch(name), what) for pattern, what in _HINTS)
    if advice := next((f"; {match.expand(what)}" for match, what in matches if match), ""):
        return advice
    if match := _OTHER_SPECIALS.fullmatch(name):
        float_name, word, options = match.groups()
        near = (
            ["finite"]
            if word.lower() in ("none", "noinf", "nonan")
            else difflib.get_close_matches(word, _SPECIALS, 1, 0.5)
        )
        if near and near[0] != word:
            return f"; did you mean '{float_name}{near[0]}{options}'?"
    return ""


def nearest_names(name: str, names: Collection[str]) -> str:
    """Return the names most like ``name`` as the end of a sentence, or an empty text."""
    near = difflib.get_close_matches(name, names, n=4, cutoff=0.5)
    return f"; the nearest names are {', '.join(map(repr, near))}" if near else ""


def close_option(head: str, rest: str) -> str:
    """Return a sentence that proposes a similar name, or an empty text."""
    close = difflib.get_close_matches(rest, (*ROUNDING_MODES, *_OPTION_NAMES), 1)
    return f" Did you mean '{head}_{close[0]}'?" if close and close[0] != rest else ""


def standard_bias(fmt: _C.Format) -> int:
    """Return IEEE 754's bias, or P3109's for formats with one zero."""
    return 2 ** (fmt.exp_bits - 1) - (fmt.specials not in (_C.Specials.fnuz, _C.Specials.p3109))


def _base_name(fmt: _C.Format) -> str:
    if fmt.kind == _C.Kind.table:
        return fmt.table_name
    if fmt.kind == _C.Kind.posit:
        name = f"posit{fmt.bits}es{fmt.es}" + (
            "_underflow" if fmt.underflow == _C.Underflow.zero else ""
        )
        return name + ("_saturate" if fmt.infinity == _C.Infinity.saturate else "")
    if fmt.kind == _C.Kind.takum:
        return f"takum{fmt.bits}_linear"
    if fmt.kind == _C.Kind.fixed:
        name = f"{'' if fmt.is_signed else 'u'}fixed{fmt.int_bits}_{fmt.frac_bits}".replace(
            "-", "minus"
        )
        if fmt.overflow == _C.Overflow.wrap:
            return f"{name}_wrap"
        return f"{name}_symmetric" if fmt.symmetric else name
    specials = {_C.Specials.ieee: "", _C.Specials.none: "finite"}.get(
        fmt.specials, fmt.specials.name
    )
    bias = None if fmt.bias == standard_bias(fmt) else fmt.bias
    saturates = fmt.overflow == _C.Overflow.saturate and fmt.specials != _C.Specials.none
    options = ("_flush" if fmt.subnormals == _C.Subnormals.flush else "") + (
        "_saturate" if saturates else ""
    )
    return f"e{fmt.exp_bits}m{fmt.man_bits}{specials}{bias_name(bias)}{options}"


def bias_name(bias: int | None) -> str:
    """Return the text of a bias in names of floats; None is the standard bias, without a text."""
    return "" if bias is None else f"_bias{bias}".replace("-", "minus")


def mode_of_format(fmt: _C.Format) -> str:
    """Return the name of a format's mode, with its number of random bits: ``stochastic_a4``."""
    few = fmt.random_bits and fmt.rounding == _C.Rounding.stochastic  # other modes ignore the bits
    return f"stochastic_{fmt.few_bits.name}{fmt.random_bits}" if few else fmt.rounding.name


def to_nearest(fmt: _C.Format) -> _C.Format:
    """Return the format of the same values with the mode nearest_even, which names leave out."""
    plain = _C.Format(fmt)
    plain.rounding, plain.random_bits, plain.few_bits = _C.Rounding.nearest_even, 0, _C.FewBits.a
    return plain


def name_of_format(fmt: _C.Format) -> str:
    """Return the canonical name: a built-in format's own (q43, not e4m3) if there is one."""
    mode = mode_of_format(fmt)
    base = _C.builtin_name(to_nearest(fmt)) or _base_name(fmt)
    return base if mode == "nearest_even" else f"{base}_{mode}"


def split_rounding(name: str) -> tuple[str, str]:
    """Split a name into the part before the rounding mode, and the mode with its random bits."""
    if match := _FEW_BITS.fullmatch(name):
        return match[1], match[2]
    for mode in sorted(ROUNDING_MODES, key=len, reverse=True):  # up_down before down
        if name.endswith("_" + mode):
            return name[: -len(mode) - 1], mode
    return name, "nearest_even"


def split_options(name: str) -> tuple[str, list[str]]:
    """Split a name into its head and its options, in canonical order."""
    options: list[str] = []
    while match := _LAST_OPTION.fullmatch(name):
        name = match[1]
        options.insert(0, match[2])
    return name, sorted(
        options,
        key=lambda option: next(
            i for i, kind in enumerate(_OPTIONS_OF_A_KIND) if kind.fullmatch(option)
        ),
    )


def spell(name: str) -> str:
    """Convert a name to this package's spelling: lower case, no brackets (``posit<16,1>``), options
    in canonical order.

    Raises:
        ValueError: a name that two tools use for two formats.
    """
    if not name.isascii() or ":" in name:  # no name of a format, or one with a table's values
        return name
    if match := _IN_CAPITALS.fullmatch(name):
        refuse_ambiguous(match[1], name)
    plain = name.lower()
    if match := _TEMPLATE.fullmatch(plain):
        kind, first, second, rest = match.groups()
        plain = {"posit": f"posit{first}es{second}", "float": f"e{first}m{second}"}.get(
            kind, f"{kind}{first}_{second}"
        )
        plain = plain.replace("-", "minus") + rest
    head, options = split_options(plain)
    refuse_ambiguous(head, name)
    return "_".join((head, *options))


def by_parameters(name: str) -> str:
    """Replace other tools' names (``fp16_saturate``), and built-in names with options
    (``q43_flush``), by names of parameters."""
    head, options = _OPTIONS.fullmatch(name).groups() if name else ("", "")
    head = ALIASES.get(head, head)
    if not options:
        return head
    for builtin in _C.builtin_dtypes():
        if _C.name_of(builtin) == head and _C.format_of(builtin).kind == _C.Kind.float:
            head = _base_name(_C.format_of(builtin))
    if _P3109.fullmatch(head) and parse(head):
        _, (exp_bits, man_bits), fields = parse(head)
        bias = (
            bias_name(fields["bias"])
            if fields["bias"] != 2 ** (exp_bits - 1) or fields["specials"] == "fn"
            else ""
        )
        head = f"{'' if fields['signed'] else 'u'}e{exp_bits}m{man_bits}{fields['specials']}"
        if bias and not options.startswith("_bias"):
            head += bias
    return head + options


def parse(name: str) -> tuple[str, tuple, dict] | None:
    """Parse a name without rounding mode: the kind of format, and its constructor's arguments. None
    if it is no such name."""
    if match := _POSIT.fullmatch(name):
        options = {
            "underflow": "zero" if match[4] else "minpos",
            "infinity": "saturate" if match[5] else "nan",
        }
        options["regime_max"] = None if match[3] is None else int(match[3])
        return "posit", (int(match[1]), int(match[2])), options
    if match := _TAKUM.fullmatch(name):
        return "takum", (int(match[1]),), {"linear": match[2] == "linear"}
    if match := _FLOAT.fullmatch(name):
        unsigned, exp_bits, man_bits, specials, minus, bias, lowest, beyond = match.groups()
        options = {
            "bias": None if bias is None else int(bias) * (-1 if minus else 1),
            "subnormals": {None: True, "_flush": False, "_normal": "normal"}[lowest],
            "specials": {None: "ieee", "finite": "none"}.get(specials, specials),
            "overflow": beyond[1:] if beyond else "ieee",
            "signed": not unsigned,
        }
        return "float", (int(exp_bits), int(man_bits)), options
    if match := _FIXED.fullmatch(name):
        options = {
            "signed": not match[1],
            "overflow": "wrap" if match[4] == "_wrap" else "saturate",
            "symmetric": match[4] == "_symmetric",
        }
        return (
            "fixed",
            tuple(int(bits.replace("minus", "-")) for bits in (match[2], match[3])),
            options,
        )
    if match := _P3109.fullmatch(name):
        width, precision, signed, extended = (
            int(match[1]),
            int(match[2]),
            match[3] == "s",
            match[4] == "e",
        )
        if not (3 <= width <= 16 and 1 <= precision < width + (not signed)):
            most = "K - 1" if signed else "K"
            raise ValueError(
                f"expected binary<K>p<P> with K from 3 to 16 and P from 1 to {most}, but got "
                f"{name!r}"
            )
        exp_bits = width - precision + (not signed)
        finite = "fnuz" if signed else "fn"
        specials = "p3109" if extended else finite
        return (
            "float",
            (exp_bits, precision - 1),
            {"specials": specials, "signed": signed, "bias": 2 ** (exp_bits - 1)},
        )
    return None

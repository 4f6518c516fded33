"""Options of accumulation policies: their names, their text form, and the checks of both."""

from __future__ import annotations

import re

import torch

from .. import _C
from ..formats import naming
from ..formats.arguments import few_bits, rounding_mode
from ..formats.dtypes import dtype as dtype_of_name
from ..formats.dtypes import format_of
from ..formats.patterns import name_pattern

PLAIN = ("machine", "float32", "float64", "exact")
STEPS = ("format", "chunked")
PRESETS = tuple(name for name, _source, _rows in _C.block_presets())
# The options of each policy, in the order of Accumulation's fields.
OPTIONS = {
    "format": ("product", "accumulator", "fused", "kahan", "rounding", "order"),
    "chunked": ("chunk", "product", "accumulator", "fused", "kahan", "rounding", "outer"),
    "block": (
        "terms",
        "extra_bits",
        "register",
        "rounding",
        "align",
        "interleave",
        "late",
        "min_exponent",
        "product_limit",
    ),
}
BLOCK_DEFAULTS = {
    "extra_bits": 0,
    "register": "float32",
    "rounding": "toward_zero",
    "align": "toward_zero",
    "interleave": 1,
    "product_limit": False,
}
FLAGS = ("fused", "kahan", "product_limit")
INTEGERS = {
    "chunk": (1, 2**63 - 1),
    "terms": (1, 2**31 - 1),
    "extra_bits": (0, 52),
    "interleave": (1, 64),
    "late": (0, 60),
    "min_exponent": (-2000, 2000),
}
LANES = (1, 4096)

# A policy with its options as a text: format(accumulator=e5m7, order=lanes(8)), chunked(32,
# rounding=down), block(terms=16, extra_bits=2).
_VALUE = r"(?:[^,=()<>]|<[^=()<>]*>)*(?:\(\w*\))?\s*"
_WRITTEN = re.compile(
    rf"(format|chunked|block)\((?:([0-9]{{1,99}})(?=[,)]))?,?\s*((?:\w+\s*={_VALUE}(?:,\s*(?=\w))?)"
    r"*)\)"
)
_NUMBER = name_pattern(r"-?\d+")
_ORDER = name_pattern(r"(sequential|pairwise|tree)|lanes\((\d+)\)")


def parse_policy(policy: str) -> tuple[str, dict] | None:
    """Parse a policy with options, as ``"chunked(32, accumulator=e5m7)"``; None for another
    text."""
    match = _WRITTEN.fullmatch(policy)
    if not match or not (match[2] or match[3]):
        return None
    kind, known = (
        match[1],
        tuple(
            dict.fromkeys(
                name for policy in ("chunked", "format", "block") for name in OPTIONS[policy]
            )
        ),
    )
    values = {} if match[2] is None else {"terms" if kind == "block" else "chunk": int(match[2])}
    for item in filter(None, map(str.strip, re.split(r",(?![^<]*>)", match[3]))):
        name, value = map(str.strip, item.split("="))
        if name not in known or name in values:
            raise ValueError(
                f"expected options of {policy!r} once each, out of {', '.join(known)}, but got "
                f"{item!r}"
            )
        if name in FLAGS and value not in ("True", "False"):
            raise ValueError(
                f"expected {name}=True or {name}=False in {policy!r}, but got {item!r}"
            )
        if name in INTEGERS and not _NUMBER.fullmatch(value):
            raise ValueError(f"expected {name} as an integer in {policy!r}, but got {item!r}")
        number = name in INTEGERS or (name in ("rounding", "align") and value.isdecimal())
        if name in FLAGS:
            values[name] = value == "True"
        else:
            values[name] = int(value) if number else value
    return kind, values


def check_policy(policy: object) -> None:
    if not isinstance(policy, str) or policy not in (*PLAIN, *OPTIONS, *PRESETS):
        names = ", ".join(map(repr, (*PLAIN, "format", "block", *PRESETS)))
        raise ValueError(
            f"expected an accumulation policy, one of {names} or 'chunked(<terms>)', but got "
            f"{policy!r}"
        )


def check_options(policy: str, given: dict) -> None:
    """Check that the options belong to the policy, are in range, and do not contradict each other.

    Args:
        policy: the policy's name.
        given: the options that are neither None nor False.
    """
    chunk = given.get("chunk")
    if policy == "chunked" and chunk is None:
        raise ValueError(
            "expected the number of terms that are added in the format with 'chunked', as in "
            "'chunked(32)' or chunk=32, but got none"
        )
    if policy != "chunked" and chunk is not None:
        raise ValueError(
            f"expected chunk= with 'chunked' only, but got {policy!r} with chunk={chunk}; leave it "
            "out"
        )
    for name, value in given.items():
        if name in INTEGERS:
            low, high = INTEGERS[name]
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
                raise ValueError(
                    f"expected {name} from {low} to {'2^63 - 1' if high == 2**63 - 1 else high}, "
                    f"but got {value!r}"
                )
    foreign = [name for name in given if name not in OPTIONS.get(policy, ())]
    if foreign:
        homes = [
            kind for kind, names in OPTIONS.items() if all(name in names for name in foreign)
        ] or list(OPTIONS)
        where = (
            f"the policies {' and '.join(map(repr, homes))}"
            if len(homes) > 1
            else f"the policy {homes[0]!r}"
        )
        raise ValueError(f"expected {', '.join(foreign)} with {where} only, but got {policy!r}")
    if given.get("fused") and ("kahan" in given or "product" in given):
        raise ValueError(
            "expected fused=True without kahan= and product=, but got both; leave one out, since a "
            "fused multiply-add does not round its product"
        )


def check_chunks_of_chip(given: dict) -> None:
    """Check that chunks of a chip have no option of steps, which the chip replaces."""
    if others := [name for name in given if name not in ("chunk", "accumulator")]:
        raise ValueError(
            f"expected chunks of a chip without other options, but got {', '.join(others)} with "
            f"accumulator={given['accumulator']!r}; leave it out"
        )


def check_order(order: object, given: dict) -> tuple[str, int]:
    """Return the order's name, and its number of lanes (1 in other orders)."""
    match = _ORDER.fullmatch(order) if isinstance(order, str) else None
    lanes = int(match[2]) if match and match[2] else 1
    if not match or not LANES[0] <= lanes <= LANES[1]:
        raise ValueError(
            f"expected order as 'sequential', 'pairwise', 'tree' or 'lanes(<1 to {LANES[1]}>)', "
            f"but got {order!r}"
        )
    if match[1] in ("pairwise", "tree") and (given.get("fused") or given.get("kahan")):
        raise ValueError(
            "expected fused and kahan with order 'sequential' or 'lanes(<k>)', which have a "
            f"running sum, but got {order!r}"
        )
    return match[1] or "lanes", lanes


def format_dtype(value: torch.dtype | str | None) -> torch.dtype | None:
    return None if value is None else dtype_of_name(value)


def mode_of_steps(name: str, mode: str | int) -> str:
    """Return the name of a policy's mode. It has no number of random bits; formats have one."""
    if few_bits(mode)[0]:
        raise ValueError(
            f"expected {name} without a number of random bits, but got {mode!r}; give that number "
            f"to a format, as accumulator='e5m7_{mode}' without rounding=, or with 'block' "
            f"register='e5m7_{mode}' and rounding='stochastic'"
        )
    return rounding_mode(mode).name


def block_options(given: dict) -> dict:
    """Return all options of ``block`` with defaults filled in, and the register as a format dtype
    or ``"float32"``."""
    if "terms" not in given:
        raise ValueError(
            "expected terms= with 'block', the number of products added at once, but got none"
        )
    options = {**BLOCK_DEFAULTS, "late": None, "min_exponent": None, **given}
    for name in ("rounding", "align"):
        options[name] = mode_of_steps(name, options[name])
    if options["align"] in naming.DRAWING_MODES:
        raise ValueError(
            f"expected a mode without random words as align, but got {options['align']!r}"
        )
    plain = options["register"] in ("float32", torch.float32)
    options["register"] = "float32" if plain else format_dtype(options["register"])
    fmt = None if plain else format_of(options["register"])
    if fmt is not None and (fmt.kind != _C.Kind.float or fmt.overflow == _C.Overflow.wrap):
        raise ValueError(
            f"expected a float as the register of block sums, but got {options['register']}"
        )
    terms, late, extra = options["terms"], options["late"], options["extra_bits"]
    if options["interleave"] > terms:
        raise ValueError(
            f"expected interleave of at most terms={terms}, but got {options['interleave']}"
        )
    if late is not None and late < extra:
        raise ValueError(f"expected late of at least extra_bits={extra}, but got {late}")
    own = 23 if plain else fmt.man_bits
    widest = own + max(extra, late or 0)
    if own + extra > 52 or widest + 2 + (terms + 1).bit_length() > 62:
        raise ValueError(
            "expected sums of at most 62 bits (2 before the point, "
            f"{(terms + 1).bit_length()} for {terms} terms, and after it those of the register and "
            f"extra_bits, at most 52), but got {widest} after it; take fewer extra bits or terms"
        )
    return options

"""Keys of an observation: (layer, pass, format), by any of a format's names."""

from __future__ import annotations

from collections.abc import Mapping

from .blocks import find_format
from .counts import PASSES
from .rows import name_layer


def find_key(key: object, counts: Mapping) -> tuple[str, str, str]:
    """Return the key with counts that a user's key means.

    Raises:
        KeyError: no such counts.
    """
    if key in counts:
        return key
    if isinstance(key, tuple) and len(key) == 3:
        layer, where, name = key
        there = any(name == counted for _, _, counted in counts)
        same = _read_layer(layer), where, name if there else _find_name(name)
        if same in counts:
            return same
    raise KeyError(_explain_missing_key(key, counts))


def _read_layer(layer: str) -> str:
    return "" if layer == name_layer("") else layer


def _find_name(name: object) -> str | None:
    """Return the name under which a format is counted; None for a name of no format."""
    try:
        return find_format(name)[0]
    except (TypeError, ValueError):
        return None


def _explain_missing_key(key: object, counts: Mapping) -> str:
    """Build the error text for a missing key, with the keys that exist."""
    text = f"expected (layer, pass, format) with counts, but got {key!r}"
    if not counts:
        return f"{text}: nothing was counted"
    if not (isinstance(key, tuple) and len(key) == 3):
        return f"{text}; use stats[{', '.join(map(repr, next(iter(counts))))}], for instance"
    formats = f"formats: {', '.join(sorted({name for _, _, name in counts}))}"
    layer = _read_layer(key[0])
    there = {where for name, where, _ in counts if name == layer}
    if not there:
        layers = list(dict.fromkeys(name_layer(name) for name, _, _ in counts))
        more = f" and {len(layers) - 20} more" if len(layers) > 20 else ""
        return f"{text}; layers: {', '.join(layers[:20])}{more}; {formats}"
    none = (
        ""
        if key[1] != "backward" or "backward" in there
        else "; a layer whose input needs no gradient, such as the first, has none"
    )
    return (
        f"{text}; passes of {name_layer(layer)}: "
        f"{', '.join(where for where in PASSES if where in there)}{none}; {formats}"
    )

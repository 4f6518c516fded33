"""microxcaling's specs: a dictionary that says how every operator rounds."""

from __future__ import annotations

import argparse
import collections
import json
import os
from collections.abc import Mapping

__all__ = [
    "MxSpecs",
    "add_mx_args",
    "apply_mx_specs",
    "finalize_mx_specs",
    "get_backwards_mx_specs",
    "get_default_mx_specs",
    "get_mx_specs",
    "mx_assert_test",
]

# The formats, without which nothing is rounded; and what a specs dictionary holds by default.
_ELEMENTS = (
    "w_elem_format",
    "a_elem_format",
    "w_elem_format_bp",
    "a_elem_format_bp",
    "a_elem_format_bp_ex",
    "a_elem_format_bp_os",
)
_ROUNDINGS = (
    "round",
    "round_m",
    "round_weight",
    "round_output",
    "round_grad_weight",
    "round_grad_input",
    "round_mx_output",
    "round_mx_input_grad_input",
    "round_mx_weight_grad_input",
    "round_mx_grad_output_grad_input",
    "round_mx_input_grad_weight",
    "round_mx_grad_output_grad_weight",
)
_DEFAULTS = {
    "scale_bits": 0,
    **dict.fromkeys(_ELEMENTS),
    "mx_flush_fp32_subnorms": False,
    "shared_exp_method": "max",
    "block_size": 0,
    "bfloat": 0,
    "fp": 0,
    "bfloat_subnorms": True,
    "quantize_backprop": True,
    **dict.fromkeys(_ROUNDINGS, "nearest"),
    "softmax_exp2": False,
    "vec_use_exp2": False,
    "vec_use_recip": False,
    "custom_cuda": False,
}
# A key that is not given takes the value of another key, in this order.
_INHERITED = (
    ("w_elem_format_bp", "w_elem_format"),
    ("a_elem_format_bp", "a_elem_format"),
    ("a_elem_format_bp_os", "a_elem_format"),
    ("a_elem_format_bp_ex", "a_elem_format"),
    ("round_m", "round"),
    ("round_output", "round"),
    ("round_grad_weight", "round"),
    ("round_grad_input", "round"),
    ("round_weight", "round"),
    ("round_mx_output", "round"),
    *((name, "round_grad_input") for name in _ROUNDINGS[-5:]),
)


class MxSpecs(collections.UserDict):
    """A dictionary of all options, with defaults for those that are not given.

    Raises:
        AssertionError: an unknown option.
    """

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        if unknown := [key for key in self.data if key not in _DEFAULTS]:
            raise AssertionError(f"expected options of mx specs, but got {unknown}")
        self.data = {**self.data, **{k: v for k, v in _DEFAULTS.items() if k not in self.data}}

    def safe_json(self, indent: int | None = None) -> str:
        return json.dumps(self.data, indent=indent, default=repr)

    def __str__(self) -> str:
        return self.safe_json(indent=4)


def get_default_mx_specs() -> MxSpecs:
    """Return specs that round nothing."""
    return MxSpecs()


def get_backwards_mx_specs(specs: MxSpecs) -> MxSpecs:
    """Return the specs of the backward pass, which round nothing if quantize_backprop is False."""
    specs = specs.copy()
    if not specs["quantize_backprop"]:
        specs.update(dict.fromkeys(_ELEMENTS), block_size=0, bfloat=0, fp=0)
    return specs


def apply_mx_specs(mx_specs: Mapping | None, default_mx_specs: MxSpecs | None = None) -> MxSpecs:
    """Return specs with the options of ``mx_specs`` that are not None, and defaults for the others.

    Raises:
        KeyError: an unknown option.
    """
    specs = default_mx_specs or get_default_mx_specs()
    for key, value in (mx_specs or {}).items():
        if value is not None:
            if key not in specs:
                raise KeyError(f"expected an option of mx specs, but got {key!r}")
            specs[key] = value
    return specs


def add_mx_args(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Add an argument ``--key`` for each option to a parser (``--no_key`` where True is the
    default)."""
    group = parser.add_argument_group("mx", "MX specs")
    group.add_argument("--mx_dir", help="ignored: there is no other mx library")
    for key, value in _DEFAULTS.items():
        if isinstance(value, bool):
            group.add_argument(f"--no_{key}" if value else f"--{key}", action="store_true")
        else:
            group.add_argument(f"--{key}", type=str if value is None else type(value))
    group.add_argument(
        "--skip_early_exit", action="store_true", help="return specs even if they round nothing"
    )
    return parser


def finalize_mx_specs(specs: dict, early_exit: bool = True) -> MxSpecs | None:
    """Fill in the options that follow from others. Return None if nothing is rounded.

    ``custom_cuda`` changes nothing here: one kernel serves every device.

    Raises:
        KeyError: an unknown option.
    """
    if early_exit and not any(specs.get(key) for key in (*_ELEMENTS, "bfloat", "fp")):
        return None
    for key, other in _INHERITED:
        if specs.get(key) is None and other in specs:
            specs[key] = specs[other]
    return apply_mx_specs(specs)


def get_mx_specs(parsed_args: argparse.Namespace) -> MxSpecs | None:
    """Return the specs of the arguments that ``add_mx_args`` added."""
    specs = {}
    for key, value in _DEFAULTS.items():
        name = f"no_{key}" if value is True else key
        if hasattr(parsed_args, name):
            given = getattr(parsed_args, name)
            specs[key] = not given if value is True else given
    return finalize_mx_specs(specs, not getattr(parsed_args, "skip_early_exit", False))


def mx_assert_test(mx_specs: Mapping | None) -> None:
    """Raise ValueError for missing specs if the variable MX_ASSERT is "True"."""
    if mx_specs is None and os.environ.get("MX_ASSERT") == "True":
        raise ValueError("expected mx_specs under MX_ASSERT=True, but got None")

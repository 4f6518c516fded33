"""The doors of ``torch_dtypes.compat`` beside the originals and beside ``chop``."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable
from types import ModuleType

import torch

from ...compat import mx as mx_door
from ...compat import pychop as pychop_door
from ...compat.qtorch import quant as qtorch_door
from .measuring import SPEED_UP, Group, NotMeasuredError, Row, Sizes


def module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except (ImportError, RuntimeError, OSError, AttributeError) as error:
        # qtorch compiles C++ at import.
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise NotMeasuredError(f"{name}: installed, but it cannot be imported: {reason}") from error


def compare_door(
    work: str, peer: str, code: str, chop: str, spaces: Callable[[], tuple[dict, dict]]
) -> Group:
    """Compare a door with the original, by the same line over its own names, and with the ``chop``
    behind it. ``spaces`` makes the variables of the door and those of the original."""

    def namespaces():
        door, original = spaces()
        return {"door": door, peer: original, "chop": door}

    rows = [Row(work, "door", peer, 3, SPEED_UP), Row(work, "door", "chop", 1.2)]
    codes = {"door": code, peer: code, "chop": chop}
    return Group(codes, namespaces, rows, rounds=10, quick_rounds=2)


def compare_qtorch(sizes: Sizes) -> list[Group]:
    def spaces():
        x = torch.randn(sizes.peer_elements)
        return {"x": x, **vars(qtorch_door)}, {"x": x, **vars(module("qtorch.quant"))}

    calls = (
        ("float_quantize(x, 5, 2, rounding='{}')", "e5m2finite", "nearest_away"),
        ("fixed_point_quantize(x, 8, 4, rounding='{}')", "fixed3_4", "nearest_even"),
        (
            "fixed_point_quantize(x, 8, 4, False, rounding='{}')",
            "e9m23_biasminus18",
            "nearest_even",
        ),
        ("block_quantize(x, 8, rounding='{}')", "bfp8", "nearest_up"),
    )
    return [
        compare_door(
            f"{call.partition('(')[0]}{', clamp=False' * ('False' in call)}, {theirs}",
            "qtorch",
            call.format(theirs),
            f"torch_dtypes.chop(x, '{name}', '{mode}')",
            spaces,
        )
        for call, name, nearest in calls
        for theirs, mode in (("nearest", nearest), ("stochastic", "stochastic"))
    ]


def compare_mx(sizes: Sizes) -> list[Group]:
    side = max(32, int(sizes.peer_elements**0.5))

    def spaces():
        x = torch.randn(side, side)
        specs = mx_door.MxSpecs(block_size=32, bfloat=16)
        return tuple(
            {
                "x": x,
                "specs": specs,
                "quantize_mx_op": ops.quantize_mx_op,
                "quantize_elemwise_op": floats.quantize_elemwise_op,
            }
            for ops, floats in (
                (mx_door.mx_ops, mx_door.elemwise_ops),
                (module("mx.mx_ops"), module("mx.elemwise_ops")),
            )
        )

    calls = [
        (f"quantize_mx_op(x, specs, '{theirs}', axes=[{axis}])", f"{ours}_axis{axis}")
        for theirs, ours in (("fp8_e4m3", "mxfp8_e4m3"), ("fp4_e2m1", "mxfp4"), ("int8", "mxint8"))
        for axis in (0, 1)
    ]
    return [
        compare_door(call, "mx", call, f"torch_dtypes.chop(x, '{name}', 'nearest_away')", spaces)
        for call, name in (*calls, ("quantize_elemwise_op(x, specs)", "bfloat16"))
    ]


def compare_pychop(sizes: Sizes) -> list[Group]:
    side = max(32, int(sizes.peer_elements**0.5))
    ways = {"torch": torch.from_numpy, "numpy": lambda values: values}
    calls = [(f"Chop(5, 10, rmode={mode})", "e5m10", mode) for mode in range(1, 10)]
    calls += [(f"FaultChop('h', rmode={mode})", "e5m10", mode) for mode in range(1, 7)]
    calls += [("FaultChop('h', explim=0)", "e11m10", 1)]
    calls += [(f"Chopf(4, 4, {mode})", "fixed3_4", mode) for mode in (1, 5)]
    groups = []
    for (code, name, mode), (kind, convert) in itertools.product(calls, ways.items()):

        def spaces(code=code, convert=convert):
            x = convert(torch.randn(side, side).numpy())
            return tuple(
                {"x": x, "call": eval(code, dict(vars(p)))} for p in (pychop_door, module("pychop"))
            )

        chop = f"torch_dtypes.chop(x, '{name}', {mode})"
        groups.append(compare_door(f"{code}, {kind}", "pychop", "call(x)", chop, spaces))
    for call, name in (
        ("mx_quantize(x)", "mxfp8_e4m3"),
        ("bfp_quantize(x)", "block<fixed0_7,e8m0,32>_rceil"),
    ):

        def block_spaces():
            x = torch.randn(side // 4, side // 4)  # Pychop takes 10 s for a million numbers
            return tuple({**vars(p), "x": x} for p in (pychop_door, module("pychop")))

        chop = f"torch_dtypes.chop(x.view(-1), '{name}')"
        groups.append(compare_door(call, "pychop", call, chop, block_spaces))
    return groups

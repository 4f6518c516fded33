"""The suite ``peers``: the same work in other libraries that simulate number formats, where they
are installed.

Rounded float arrays are compared with ``chop`` and with casts, arrays of codes with casts, and
scalars (per element) with tensors.
"""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Callable, Sequence

import torch
from torch import nn

import torch_dtypes

from ..training.models import LeNet5
from ..training.recipes import build_optimizer
from ..training.records import Config
from .doors import compare_mx, compare_pychop, compare_qtorch, module
from .measuring import SPEED_UP, Group, Row, Sizes, name_of
from .training import STEP, namespace

SUMMARY = (
    "The same work in other libraries: how many times as fast ours is. Scalar libraries are "
    "compared per element."
)


def _pair(
    work: str,
    ours: str,
    code: str,
    peer: str,
    peer_code: str,
    space: Callable[[], dict],
    limit: float | None,
    **options,
) -> Group:
    """Compare a line of this package with a line of the other library over the same variables."""

    def spaces():
        shared = space()
        return {ours: shared, peer: shared}

    rows = [Row(work, ours, peer, limit, SPEED_UP)]
    return Group(
        {ours: code, peer: peer_code},
        spaces,
        rows,
        rounds=options.pop("rounds", 10),
        quick_rounds=2,
        **options,
    )


def _roundings(
    what: str,
    format_name: str,
    mode: str,
    peer: str,
    peer_code: str,
    space: Callable[[], dict],
    limit: float | None,
) -> list[Group]:
    """Compare the other library's rounding of floats with ``chop``, and with a cast to the codes of
    a dtype."""
    dtype = name_of(torch_dtypes.with_rounding(format_name, mode))
    ours = (
        f"torch_dtypes.chop(x, '{format_name}'"
        + ("" if mode == "nearest_even" else f", '{mode}'")
        + ")"
    )
    return [
        _pair(
            f"round floats to {what}, {mode}",
            f"chop to {format_name}",
            ours,
            peer,
            peer_code,
            space,
            limit,
        ),
        _pair(
            f"round floats to {what}, {mode}",
            dtype,
            f"x.to(torch.{dtype})",
            peer,
            peer_code,
            space,
            limit,
        ),
    ]


def _qtorch(sizes: Sizes) -> list[Group]:
    def values():
        return {"x": torch.randn(sizes.peer_elements), **vars(module("qtorch.quant"))}

    groups = []
    for mode, theirs, limit in (
        ("nearest_even", "nearest", 20),
        ("stochastic", "stochastic", None),
    ):
        groups += _roundings(
            "e5m2",
            "q52",
            mode,
            "qtorch",
            f"float_quantize(x, exp=5, man=2, rounding='{theirs}')",
            values,
            limit,
        )
    peer = "fixed_point_quantize(x, wl=16, fl=8, rounding='nearest')"
    groups += _roundings("fixed7_8", "fixed7_8", "nearest_even", "qtorch", peer, values, 20)
    groups += compare_qtorch(sizes)

    def networks():
        return {
            "q52": namespace("lenet5", sizes.peer_batch, torch.q52),
            "qtorch": _low_precision_lenet(sizes.peer_batch),
        }

    rows = [Row(f"LeNet-5 step, Adam, batch {sizes.peer_batch}", "q52", "qtorch", 2, SPEED_UP)]
    return [*groups, Group({"q52": STEP, "qtorch": STEP}, networks, rows, rounds=20)]


def _low_precision_lenet(batch_size: int) -> dict:
    """Build a step as in qtorch's documentation: a quantizer after each layer, and its optimizer
    around Adam; e5m2 everywhere."""
    quant, optim, number = (
        module("qtorch.quant"),
        module("qtorch.optim"),
        module("qtorch").FloatingPoint(exp=5, man=2),
    )

    def quantizer():
        return quant.Quantizer(number, number, "nearest", "nearest")

    space = namespace("lenet5", batch_size, torch.float32)
    network = LeNet5()
    layers = [layer for layer in (*network.features, *network.classifier)]
    model = nn.Sequential(*(part for layer in layers for part in (layer, quantizer())))

    def round_e5m2(x):
        return quant.float_quantize(x, exp=5, man=2, rounding="nearest")

    inner = build_optimizer(Config(), model.parameters())
    outer = optim.OptimLP(
        inner,
        weight_quant=round_e5m2,
        grad_quant=round_e5m2,
        momentum_quant=round_e5m2,
        acc_quant=round_e5m2,
    )
    return space | {"model": model, "optimizer": outer}


def _pychop(sizes: Sizes) -> list[Group]:
    modes = {1: "nearest_even", 3: "down", 4: "toward_zero", 5: "stochastic"}
    groups = []
    for number, mode in modes.items():

        def values(number=number):
            chop = module("pychop").Chop(exp_bits=5, sig_bits=2, rmode=number)
            return {"x": torch.randn(sizes.peer_elements), "chop": chop}

        groups += _roundings("e5m2", "q52", mode, "pychop", "chop(x)", values, 100)
    return groups + compare_pychop(sizes)


def _ml_dtypes(sizes: Sizes) -> list[Group]:
    groups = []
    for dtype, theirs in (("q52", "float8_e5m2"), ("q43", "float8_e4m3")):

        def values(dtype=dtype, theirs=theirs):
            scalar = getattr(module("ml_dtypes"), theirs)
            x = torch.randn(sizes.peer_elements)
            codes = x.to(getattr(torch, dtype))
            array = x.numpy()
            return {
                "x": x,
                "codes": codes,
                "array": array,
                theirs: scalar,
                "narrow": array.astype(scalar),
            }

        groups.append(
            _pair(
                "encode float32",
                dtype,
                f"x.to(torch.{dtype})",
                "ml_dtypes",
                f"array.astype({theirs})",
                values,
                None,
            )
        )
        groups.append(
            _pair(
                "decode to float32",
                dtype,
                "codes.to(torch.float32)",
                "ml_dtypes",
                "narrow.astype('float32')",
                values,
                None,
            )
        )
        groups.append(
            _pair("add", dtype, "codes + codes", "ml_dtypes", "narrow + narrow", values, None)
        )
    return groups


def _gfloat(sizes: Sizes) -> list[Group]:
    groups = []
    for name in ("ocp_e5m2", "ocp_e4m3"):

        def values(name=name):
            info = getattr(module("gfloat.formats"), f"format_info_{name}")
            x = torch.randn(sizes.peer_elements)
            return {
                "x": x,
                "array": x.numpy(),
                "info": info,
                "round_ndarray": module("gfloat").round_ndarray,
            }

        groups += _roundings(
            name, name, "nearest_even", "gfloat", "round_ndarray(info, array)", values, None
        )
    return groups


def _softposit(sizes: Sizes) -> list[Group]:
    groups = []
    for dtype, theirs in (("posit16es1", "posit16"), ("posit8es0", "posit8")):

        def values(dtype=dtype, theirs=theirs):
            make = getattr(module("softposit"), theirs)
            x = torch.randn(sizes.peer_elements)
            numbers = x[: sizes.scalars].tolist()
            posits = [make(number) for number in numbers]
            return {
                "x": x,
                "codes": x.to(getattr(torch, dtype)),
                theirs: make,
                "numbers": numbers,
                "posits": posits,
            }

        elements = {
            dtype: sizes.peer_elements,
            "softposit": min(sizes.scalars, sizes.peer_elements),
        }
        encode = f"[{theirs}(number) for number in numbers]"
        groups.append(
            _pair(
                "encode, per element",
                dtype,
                f"x.to(torch.{dtype})",
                "softposit",
                encode,
                values,
                1000,
                elements=elements,
            )
        )
        add = "[posit + posit for posit in posits]"
        groups.append(
            _pair(
                "add, per element",
                dtype,
                "codes + codes",
                "softposit",
                add,
                values,
                1000,
                elements=elements,
            )
        )
    return groups


def _mptorch(sizes: Sizes) -> list[Group]:
    """Compare matrix products that round each product and each sum: mptorch's, and the policy
    ``format`` here. The results are the same, bit for bit."""
    n = sizes.peer_matmul

    def values():
        a, b = torch.randn(n, n), torch.randn(n, n)
        rounded = {"f": a.to(torch.q52).float(), "g": b.to(torch.q52).float()}
        return {
            "a": a.to(torch.q52),
            "b": b.to(torch.q52),
            "float_mm": module("mptorch.quant").float_mm,
            **rounded,
        }

    ours = "with torch_dtypes.accumulate('format'): a @ b"
    theirs = "float_mm(f, g, exp_add=5, man_add=2, exp_mul=5, man_mul=2, fma=False, saturate=False)"
    return [
        _pair(f"matmul {n}^3, every step rounded", "q52", ours, "mptorch", theirs, values, None)
    ]


PEERS: dict[str, Callable[[Sizes], list[Group]]] = {
    "qtorch": _qtorch,
    "mx": compare_mx,
    "pychop": _pychop,
    "ml_dtypes": _ml_dtypes,
    "gfloat": _gfloat,
    "softposit": _softposit,
    "mptorch": _mptorch,
}
# Libraries that are on no registry.
_FROM = {
    "mx": "clone the repository microsoft/microxcaling and put it on PYTHONPATH",
    "mptorch": (
        "clone the repository mptorch/mptorch and put it on PYTHONPATH; it needs unfoldNd and ninja"
    ),
}


def is_installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def groups(sizes: Sizes, dtypes: Sequence[torch.dtype] | None) -> list[Group]:
    """Build the groups of the installed libraries. Each library has its own dtypes, so ``dtypes``
    changes nothing."""
    built = [group for name, make in PEERS.items() if is_installed(name) for group in make(sizes)]
    return [dataclasses.replace(group, least_seconds=sizes.peer_seconds) for group in built]


def notes(sizes: Sizes) -> list[str]:
    return [
        f"{name}: not installed: {_FROM.get(name, f'pip install {name}')}"
        for name in PEERS
        if not is_installed(name)
    ]

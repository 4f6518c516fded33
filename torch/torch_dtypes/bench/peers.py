"""The suite ``peers``: the same work in other libraries that simulate number formats, each only where it is installed.

Float arrays in and out are compared with ``chop``, arrays of codes with casts, and scalars (per element) with tensors.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Sequence
from types import ModuleType

import torch
from torch import nn

from ..training.loop import Config, build_optimizer
from ..training.models import LeNet5
from .measuring import SPEED_UP, Group, NotMeasuredError, Row, Sizes
from .training import STEP, namespace

SUMMARY = "The same work in other libraries: how many times as fast ours is. Scalar libraries are compared per element."


def _module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except (ImportError, RuntimeError, OSError, AttributeError) as error:  # qtorch compiles C++ when it is imported
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise NotMeasuredError(f"{name}: installed, but it cannot be imported: {reason}") from error


def _pair(work: str, ours: str, code: str, peer: str, peer_code: str, space: Callable[[], dict], limit: float | None, **options) -> Group:
    """One line of ours and one of the other library over the same names."""

    def spaces():
        shared = space()
        return {ours: shared, peer: shared}

    rows = [Row(work, ours, peer, limit, SPEED_UP)]
    return Group({ours: code, peer: peer_code}, spaces, rows, rounds=options.pop("rounds", 10), quick_rounds=2, **options)


def _qtorch(sizes: Sizes) -> list[Group]:
    def values():
        return {"x": torch.randn(sizes.peer_elements), **vars(_module("qtorch.quant"))}

    groups = []
    for mode, limit in (("nearest", 20), ("stochastic", None)):
        ours = "torch_dtypes.chop(x, 'e5m2')" if mode == "nearest" else "torch_dtypes.chop(x, 'e5m2', 'stochastic')"
        peer = f"float_quantize(x, exp=5, man=2, rounding='{mode}')"
        groups.append(_pair(f"round floats to e5m2, {mode}", "e5m2", ours, "qtorch", peer, values, limit))
    peer = "fixed_point_quantize(x, wl=16, fl=8, rounding='nearest')"
    groups.append(_pair("round floats to fixed7_8, nearest", "fixed7_8", "torch_dtypes.chop(x, 'fixed7_8')", "qtorch", peer, values, 20))

    def networks():
        return {"q52": namespace("lenet5", sizes.peer_batch, torch.q52), "qtorch": _low_precision_lenet(sizes.peer_batch)}

    rows = [Row(f"LeNet-5 step, Adam, batch {sizes.peer_batch}", "q52", "qtorch", 2, SPEED_UP)]
    return [*groups, Group({"q52": STEP, "qtorch": STEP}, networks, rows, rounds=20)]


def _low_precision_lenet(batch_size: int) -> dict:
    """A step as qtorch's documentation writes it: a quantizer behind each layer, and its optimizer around Adam; e5m2 everywhere."""
    quant, optim, number = _module("qtorch.quant"), _module("qtorch.optim"), _module("qtorch").FloatingPoint(exp=5, man=2)

    def quantizer():
        return quant.Quantizer(number, number, "nearest", "nearest")

    space = namespace("lenet5", batch_size, torch.float32)
    network = LeNet5()
    layers = [layer for layer in (*network.features, *network.classifier)]
    model = nn.Sequential(*(part for layer in layers for part in (layer, quantizer())))

    def rounded(x):
        return quant.float_quantize(x, exp=5, man=2, rounding="nearest")

    inner = build_optimizer(Config(), model.parameters())
    outer = optim.OptimLP(inner, weight_quant=rounded, grad_quant=rounded, momentum_quant=rounded, acc_quant=rounded)
    return space | {"model": model, "optimizer": outer}


def _pychop(sizes: Sizes) -> list[Group]:
    modes = {1: "nearest_even", 3: "down", 4: "toward_zero", 5: "stochastic"}
    groups = []
    for number, mode in modes.items():

        def values(number=number):
            chop = _module("pychop").Chop(exp_bits=5, sig_bits=2, rmode=number)
            return {"x": torch.randn(sizes.peer_elements), "chop": chop}

        ours = f"torch_dtypes.chop(x, 'e5m2', rounding={number})"
        groups.append(_pair(f"round floats to e5m2, {mode}", "e5m2", ours, "pychop", "chop(x)", values, 100, rounds=5))
    return groups


def _ml_dtypes(sizes: Sizes) -> list[Group]:
    groups = []
    for dtype, theirs in (("q52", "float8_e5m2"), ("q43", "float8_e4m3")):

        def values(dtype=dtype, theirs=theirs):
            scalar = getattr(_module("ml_dtypes"), theirs)
            x = torch.randn(sizes.peer_elements)
            codes = x.to(getattr(torch, dtype))
            array = x.numpy()
            return {"x": x, "codes": codes, "array": array, theirs: scalar, "narrow": array.astype(scalar)}

        groups.append(_pair("encode float32", dtype, f"x.to(torch.{dtype})", "ml_dtypes", f"array.astype({theirs})", values, None))
        groups.append(_pair("decode to float32", dtype, "codes.to(torch.float32)", "ml_dtypes", "narrow.astype('float32')", values, None))
        groups.append(_pair("add", dtype, "codes + codes", "ml_dtypes", "narrow + narrow", values, None))
    return groups


def _gfloat(sizes: Sizes) -> list[Group]:
    groups = []
    for name in ("ocp_e5m2", "ocp_e4m3"):

        def values(name=name):
            info = getattr(_module("gfloat.formats"), f"format_info_{name}")
            x = torch.randn(sizes.peer_elements)
            return {"x": x, "array": x.numpy(), "info": info, "round_ndarray": _module("gfloat").round_ndarray}

        ours = f"torch_dtypes.chop(x, '{name}')"
        groups.append(_pair("round floats, nearest", name, ours, "gfloat", "round_ndarray(info, array)", values, None, rounds=5))
    return groups


def _softposit(sizes: Sizes) -> list[Group]:
    groups = []
    for dtype, theirs in (("posit16es1", "posit16"), ("posit8es0", "posit8")):

        def values(dtype=dtype, theirs=theirs):
            make = getattr(_module("softposit"), theirs)
            x = torch.randn(sizes.peer_elements)
            numbers = x[: sizes.scalars].tolist()
            posits = [make(number) for number in numbers]
            return {"x": x, "codes": x.to(getattr(torch, dtype)), theirs: make, "numbers": numbers, "posits": posits}

        elements = {dtype: sizes.peer_elements, "softposit": min(sizes.scalars, sizes.peer_elements)}
        encode = f"[{theirs}(number) for number in numbers]"
        groups.append(_pair("encode, per element", dtype, f"x.to(torch.{dtype})", "softposit", encode, values, 1000, elements=elements))
        add = "[posit + posit for posit in posits]"
        groups.append(_pair("add, per element", dtype, "codes + codes", "softposit", add, values, 1000, elements=elements))
    return groups


PEERS: dict[str, Callable[[Sizes], list[Group]]] = {
    "qtorch": _qtorch, "pychop": _pychop, "ml_dtypes": _ml_dtypes, "gfloat": _gfloat, "softposit": _softposit,
}  # fmt: skip


def _installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def groups(sizes: Sizes, dtypes: Sequence[torch.dtype] | None) -> list[Group]:
    """The dtypes are those that a library has, so ``dtypes`` changes nothing."""
    return [group for name, make in PEERS.items() if _installed(name) for group in make(sizes)]


def notes(sizes: Sizes) -> list[str]:
    return [f"{name}: not installed: pip install {name}" for name in PEERS if not _installed(name)]

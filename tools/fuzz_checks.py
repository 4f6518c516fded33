"""A call of tools/fuzz.py: how it is made, and what must hold after it."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from fuzz_arguments import CONTAINER, STOCK_FLOATS, Arguments
from torch.utils._pytree import tree_leaves

import torch_dtypes
from torch_dtypes import _C

# docs/limits.md.
KNOWN = {
    (
        "message",
        "batch_norm",
    ): "stock code looks up the accumulation type of the container for batches of no elements",
    ("message", "slow_conv_transpose2d"): "-2^63 as a size is PyTorch's mark of a symbolic one",
    (
        "message",
        "where",
    ): (
        "the gradient of where beside a complex tensor without dimensions, which stock PyTorch "
        "refuses too"
    ),
    ("container", "_fused_rms_norm"): "called by hand: stock's statistics are float32 or float64",
}
# What an exception must not say unless stock PyTorch says it too: our own checks come first.
BLAME = (
    "INTERNAL ASSERT",
    "Unsupported TypeMeta",
    "UNKNOWN_SCALAR",
    "please report",
    "nullptr",
    "without setting an exception",
    "std::bad_alloc",
)
# Operators that are named for the container float32 or float64 of a wide format, or ask for it:
# there the name means the format.
ASKS_BY_NAME = ("autocast", "bfloat16")


@dataclass
class Call:
    name: str
    run: Callable
    args: tuple = ()
    kwargs: dict = field(default_factory=dict)
    written: tuple = ()  # operands that the schema says are written to

    def __str__(self) -> str:
        given = [
            *map(shown, self.args),
            *(f"{name}={shown(value)}" for name, value in self.kwargs.items()),
        ]
        return f"{self.name}({', '.join(given)})"


def shown(value: object) -> str:
    if isinstance(value, torch.Tensor):
        text = f"{value.dtype}{list(value.shape)}".removeprefix("torch.")
        if value.layout is torch.strided and not value.is_contiguous():
            text += f" strides {list(value.stride())}"
        if value.device.type != "cpu":
            text += f" {value.device}"
        elif value.layout is not torch.strided:
            text += f" {value.layout}"
        return text + (" requires_grad" if value.requires_grad else "")
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(shown, value))}]"
    if isinstance(value, torch.UntypedStorage):
        return "storage"
    return f"{value}" if isinstance(value, torch.dtype) else repr(value)[:80]


def tensors(value: object) -> list[torch.Tensor]:
    return [t for t in tree_leaves(value) if isinstance(t, torch.Tensor)]


def gradients(results: list[torch.Tensor], again: bool) -> None:
    """Runs backward from the results; what comes back must have the dtype and sizes of what it is a
    gradient of."""
    outputs = [t for t in results if t.requires_grad and t.grad_fn is not None]
    if outputs:
        torch.autograd.backward(outputs, [torch.ones_like(t) for t in outputs], create_graph=again)


def blamed(call: Call, text: str) -> list[str]:
    """An error that blames PyTorch. Internal functions and operators called by hand may come upon
    PyTorch's own assertions: docs/limits.md; upon ours nothing may."""
    by_hand = call.name.startswith(("aten.", "torch _"))
    words = ('ASSERT FAILED at "../../aten/src/ATen/',) if by_hand else BLAME
    return [f"message: {text[:200]}"] if any(word in text for word in words) else []


def whole(t: torch.Tensor) -> bool:
    """False for what stock factories called by hand make of a number of ours: a tensor without a
    dtype."""
    try:
        return t.dtype is not None
    except RuntimeError:
        return False


def run(call: Call, arguments: Arguments, seed: int) -> tuple[str, list[str], list | None]:
    """What came of it ("returned", or "raised" and the text), what is wrong, and for each result
    whether it is ours."""
    torch.default_generator.manual_seed(seed)
    torch.set_grad_enabled(True)
    before = [t.dtype for t in call.written]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = call.run(*call.args, **call.kwargs)
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        return f"raised {text[:300]}", blamed(call, text), None
    wrong = []
    results = [t for t in tensors(result) if whole(t)]
    if len(results) < len(tensors(result)) and not call.name.startswith(("aten.", "torch _")):
        wrong.append("object: a tensor without a dtype")
    for t, dtype in zip(call.written, before, strict=True):
        if t.dtype is not dtype and "set_data" not in call.name:
            wrong.append(f"dtype of a written operand: expected {dtype}, but got {t.dtype}")
    given = (
        {t.dtype for t in tensors((call.args, call.kwargs))}
        | {t.dtype for t in arguments.operands}
        | set(arguments.asked)
    )
    ours = {d for d in given if isinstance(d, torch.dtype) and torch_dtypes.is_format_dtype(d)}
    numbers = any(isinstance(d, int) for d in given) or any(
        word in call.name for word in ASKS_BY_NAME
    )
    for t in results:
        if (
            not numbers
            and t.dtype not in given
            and t.dtype in {CONTAINER[d.itemsize] for d in ours if d.itemsize < 4}
        ):
            wrong.append(f"container: a result has dtype {t.dtype}")
        wrong += unsound(t)
    if not wrong:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                gradients(results, seed % 8 == 0)
        except Exception as error:
            wrong += blamed(call, f"backward: {type(error).__name__}: {error}")
        for t in tensors((call.args, call.kwargs)):
            if (
                t.is_leaf
                and t.grad is not None
                and (t.grad.dtype is not t.dtype or t.grad.shape != t.shape)
            ):
                wrong.append(f"gradient: expected {shown(t)}, but got {shown(t.grad)}")
    return (
        "returned",
        wrong,
        [
            (torch_dtypes.is_format_dtype(t.dtype), t.dtype in STOCK_FLOATS, tuple(t.shape))
            for t in results
        ],
    )


def unsound(t: torch.Tensor) -> list[str]:
    """What is wrong with a result as an object, whatever its values are."""
    ours = torch_dtypes.is_format_dtype(t.dtype)
    if ours != _C.is_format_tensor(t):
        return [f"class: {t.dtype} in a tensor of the other class"]
    plain = (
        t.layout is torch.strided
        and not t.is_nested
        and not torch._C._functorch.is_functorch_wrapped_tensor(t)
    )
    if plain and t.device.type == "cpu" and t.numel():
        last = t.storage_offset() + sum(
            (size - 1) * stride for size, stride in zip(t.shape, t.stride(), strict=True)
        )
        if t.storage_offset() < 0 or (last + 1) * t.dtype.itemsize > t.untyped_storage().nbytes():
            return [
                f"memory: {list(t.shape)} {list(t.stride())} {t.storage_offset()} does not fit "
                f"into {t.untyped_storage().nbytes()} bytes"
            ]
    if not ours:
        return []
    try:
        text, values = repr(t), t.detach().to(torch.float64)
    except Exception as error:
        if "allocate memory" in str(error):  # sizes beyond all memory, with strides of nothing
            return []
        return [f"object: {type(error).__name__}: {str(error)[:150]}"]
    if str(t.dtype) not in text and t.device.type == "cpu":
        return [f"repr: expected {t.dtype} in {text[:100]!r}"]
    same = values.shape == t.shape and values.dtype is torch.float64
    return [] if same else [f"values: expected float64 of {list(t.shape)}, but got {shown(values)}"]

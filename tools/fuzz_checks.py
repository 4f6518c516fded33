"""Makes a call of tools/fuzz.py, and checks its outcome."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from fuzz_arguments import CONTAINER, STOCK_FLOATS, Arguments
from torch.utils._pytree import tree_leaves

import torch_dtypes
from torch_dtypes import _C

# Known limits, in docs/limits.md.
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
    ("container", "_fused_rms_norm"): "called by hand: stock statistics are float32 or float64",
}
# No exception may contain these unless stock PyTorch's does: this package's checks come first.
BLAME = (
    "INTERNAL ASSERT",
    "Unsupported TypeMeta",
    "UNKNOWN_SCALAR",
    "please report",
    "nullptr",
    "without setting an exception",
    "std::bad_alloc",
)
# Operators with the storage dtype (float32 or float64) of a wide format in their name, or as an
# argument. There the name means the format.
ASKS_BY_NAME = ("autocast", "bfloat16")


@dataclass
class Call:
    name: str
    run: Callable
    args: tuple = ()
    kwargs: dict = field(default_factory=dict)
    written: tuple = ()  # operands that the schema says are written

    def __str__(self) -> str:
        texts = [
            *map(describe, self.args),
            *(f"{name}={describe(value)}" for name, value in self.kwargs.items()),
        ]
        return f"{self.name}({', '.join(texts)})"


def describe(value: object) -> str:
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
        return f"[{', '.join(map(describe, value))}]"
    if isinstance(value, torch.UntypedStorage):
        return "storage"
    return f"{value}" if isinstance(value, torch.dtype) else repr(value)[:80]


def tensors(value: object) -> list[torch.Tensor]:
    return [t for t in tree_leaves(value) if isinstance(t, torch.Tensor)]


def gradients(results: list[torch.Tensor], again: bool) -> None:
    """Run backward from the results. Each gradient must have its tensor's dtype and sizes."""
    outputs = [t for t in results if t.requires_grad and t.grad_fn is not None]
    if outputs:
        torch.autograd.backward(outputs, [torch.ones_like(t) for t in outputs], create_graph=again)


def find_blame(call: Call, text: str) -> list[str]:
    """Return an error that blames PyTorch.

    Internal functions, and operators called by hand, may fail PyTorch's own assertions
    (docs/limits.md). No call may fail this package's.
    """
    by_hand = call.name.startswith(("aten.", "torch _"))
    words = ('ASSERT FAILED at "../../aten/src/ATen/',) if by_hand else BLAME
    return [f"message: {text[:200]}"] if any(word in text for word in words) else []


def has_dtype(t: torch.Tensor) -> bool:
    """Return whether a tensor has a dtype.

    Stock factories called by hand make tensors without one from the number of a format dtype.
    """
    try:
        return t.dtype is not None
    except RuntimeError:
        return False


def run(call: Call, arguments: Arguments, seed: int) -> tuple[str, list[str], list | None]:
    """Make a call, and return its outcome, its errors, and facts about each result.

    The outcome is "returned", or "raised" and the text. A fact is whether a result has a format.
    """
    torch.default_generator.manual_seed(seed)
    torch.set_grad_enabled(True)
    before = [t.dtype for t in call.written]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = call.run(*call.args, **call.kwargs)
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        return f"raised {text[:300]}", find_blame(call, text), None
    wrong = []
    results = [t for t in tensors(result) if has_dtype(t)]
    if len(results) < len(tensors(result)) and not call.name.startswith(("aten.", "torch _")):
        wrong.append("object: a tensor without a dtype")
    for t, dtype in zip(call.written, before, strict=True):
        if t.dtype is not dtype and "set_data" not in call.name:
            wrong.append(f"dtype of a written operand: expected {dtype}, but got {t.dtype}")
    dtypes = (
        {t.dtype for t in tensors((call.args, call.kwargs))}
        | {t.dtype for t in arguments.operands}
        | set(arguments.dtypes_named)
    )
    formats = {d for d in dtypes if isinstance(d, torch.dtype) and torch_dtypes.is_format_dtype(d)}
    numbers = any(isinstance(d, int) for d in dtypes) or any(
        word in call.name for word in ASKS_BY_NAME
    )
    for t in results:
        if (
            not numbers
            and t.dtype not in dtypes
            and t.dtype in {CONTAINER[d.itemsize] for d in formats if d.itemsize < 4}
        ):
            wrong.append(f"container: a result has dtype {t.dtype}")
        wrong += find_unsoundness(t)
    if not wrong:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                gradients(results, seed % 8 == 0)
        except Exception as error:
            wrong += find_blame(call, f"backward: {type(error).__name__}: {error}")
        for t in tensors((call.args, call.kwargs)):
            if (
                t.is_leaf
                and t.grad is not None
                and (t.grad.dtype is not t.dtype or t.grad.shape != t.shape)
            ):
                wrong.append(f"gradient: expected {describe(t)}, but got {describe(t.grad)}")
    return (
        "returned",
        wrong,
        [
            (torch_dtypes.is_format_dtype(t.dtype), t.dtype in STOCK_FLOATS, tuple(t.shape))
            for t in results
        ],
    )


def find_unsoundness(t: torch.Tensor) -> list[str]:
    """Return errors of a result as an object, apart from its values."""
    is_format = torch_dtypes.is_format_dtype(t.dtype)
    if is_format != _C.is_format_tensor(t):
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
    if not is_format:
        return []
    try:
        text, values = repr(t), t.detach().to(torch.float64)
    except Exception as error:
        if "allocate memory" in str(error):  # sizes beyond all memory, with strides of 0
            return []
        return [f"object: {type(error).__name__}: {str(error)[:150]}"]
    if str(t.dtype) not in text and t.device.type == "cpu":
        return [f"repr: expected {t.dtype} in {text[:100]!r}"]
    same = values.shape == t.shape and values.dtype is torch.float64
    if same:
        return []
    return [f"values: expected float64 of {list(t.shape)}, but got {describe(values)}"]

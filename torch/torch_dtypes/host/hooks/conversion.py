"""Hooks of conversions that stock code bases on the storage dtype, or lacks."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass
from torch.utils._pytree import tree_leaves

from ... import _C
from ...formats.code_types import compute_type
from ..table import Hook, Kind
from . import scripts
from .promotion import promote
from .trampolines import When


def to(stock, self, *args, **kwargs):
    """Convert to a format tensor's device and dtype; PyTorch would take its storage dtype."""
    args = list(args)
    other = next((kwargs.pop(name) for name in ("other", "tensor") if name in kwargs), None)
    if other is None:
        other = args.pop(0)
    return self.to(other.device, other.dtype, *args, **kwargs)


def type_(stock, self, dtype=None, non_blocking=False, **kwargs):
    """Name or convert a format tensor's dtype, or convert to a format dtype by its name."""
    if dtype is None:
        return str(self.dtype)
    if (
        isinstance(dtype, str)
        and _C.format_of(named := getattr(torch, dtype.removeprefix("torch."), None)) is not None
    ):
        dtype = named
    if isinstance(dtype, torch.dtype):
        return self.to(dtype, non_blocking=non_blocking)
    return self.to(compute_type(self.dtype)).type(dtype, non_blocking=non_blocking, **kwargs)


# Operators with dtype= (sum, softmax, cumsum, ...), where it or the tensor's dtype is a format
# dtype.


def _take_dtype(args, dtype):
    """Return (the other arguments, dtype). dtype may be positional, as in softmax(x, 0, dtype)."""
    if dtype is None:
        dtype = next(v for v in args if isinstance(v, torch.dtype))
        args = [v for v in args if v is not dtype]
    if not isinstance(dtype, (torch.dtype, type)):  # Tensor.to takes more: a number, a device
        raise TypeError(
            f"expected a torch.dtype as dtype, but got {dtype!r}; name one, as torch.q43"
        )
    return args, dtype


def _pass_stock_dtype(dtype) -> dict:
    """Return dtype= for the operator if it is a stock dtype.

    Without it, sums and products of integers would be int64, and means would raise.
    """
    return (
        {}
        if not isinstance(dtype, torch.dtype) or _C.format_of(dtype) is not None
        else {"dtype": dtype}
    )


def _cast_first(name: str, values: torch.Tensor, dtype) -> torch.Tensor:
    """Cast the operand to dtype=.

    Integers have no gradient. As for stock tensors, they raise where one is required.
    """
    keeps_nan = (
        isinstance(dtype, torch.dtype) and dtype.is_floating_point and _C.format_of(dtype) is None
    )
    # The cast might turn NaN, which does not count, into a number.
    if name == "nansum" and values.is_floating_point() and not keeps_nan:
        values = values.masked_fill(values.isnan(), 0)
    cast = values.to(dtype)
    if values.requires_grad and torch.is_grad_enabled() and not cast.requires_grad:
        raise RuntimeError(
            f"expected a floating dtype for a tensor that requires grad, but got {cast.dtype}; "
            "call detach() first"
        )
    return cast


def _counts_nan(name: str, dtype) -> bool:
    """Return whether this is nanmean in a format without NaN, where NaN would become a number."""
    fmt = _C.format_of(dtype) if name == "nanmean" and isinstance(dtype, torch.dtype) else None
    return fmt is not None and not fmt.has_nan


def _mean_of_numbers(
    values: torch.Tensor, *dims, dtype: torch.dtype, out: torch.Tensor | None = None, **kwargs
) -> torch.Tensor:
    """Compute nanmean by PyTorch's own formula."""
    count = values.detach().isnan().logical_not_().sum(*dims, **kwargs)
    return torch.div(torch.nansum(values, *dims, dtype=dtype, **kwargs), count, out=out)


def _in_dtype(
    name: str, run: Callable, values: torch.Tensor, args, dtype, kwargs: dict
) -> torch.Tensor:
    """Run an operator on the values in dtype=."""
    _expect_kind(name, values, dtype)
    if _counts_nan(name, dtype):
        return _mean_of_numbers(values, *args, dtype=dtype, **kwargs)
    return run(_cast_first(name, values, dtype), *args, **_pass_stock_dtype(dtype), **kwargs)


def method_with_dtype(name: str):
    """Cast the tensor to dtype= first, as the method's documentation says."""

    def run(cast, *args, **kwargs):
        return getattr(cast, name)(*args, **kwargs)

    def method(stock, self, *args, dtype=None, **kwargs):
        args, dtype = _take_dtype(args, dtype)
        return _in_dtype(name, run, self, args, dtype, kwargs)

    return method


def function_with_dtype(stock, *args, dtype=None, **kwargs):
    """Cast the tensor to dtype= first, as the function's documentation says."""
    if isinstance(kwargs.get("input", *args[:1]), torch.dtype):
        return stock(*args, **kwargs)  # for its error
    args, dtype = _take_dtype(args, dtype)
    values, *args = (kwargs.pop("input"), *args) if "input" in kwargs else args
    return _in_dtype(stock.__name__, stock, values, args, dtype, kwargs)


def _expect_kind(name: str, values: torch.Tensor, dtype) -> None:
    """Raise where PyTorch does: for integers in means and norms, and for a norm that narrows.

    A norm's dtype= must be the dtype to which the tensor's dtype promotes.
    """
    norm = name.endswith("norm")
    if not norm and name != "nanmean":
        return
    if not (values.is_floating_point() or values.is_complex()):
        raise RuntimeError(
            f"{name}: expected a floating or complex tensor, but got {values.dtype}; convert it "
            f"first with x.to({dtype})"
        )
    formats = [d for d in (values.dtype, dtype) if _C.format_of(d) is not None]
    if (
        norm
        and values.dtype is not dtype
        and (len(formats) == 2 or promote(values.dtype, dtype) is not dtype)
    ):
        raise RuntimeError(
            f"{name}: expected dtype= that the tensor's {values.dtype} promotes to, but got "
            f"{dtype}; convert the tensor first with x.to({dtype})"
        )


def in_place_with_dtype(stock, self, *args, dtype, **kwargs):
    """Raise unless dtype= is the tensor's own dtype, which an in-place operator keeps."""
    if dtype is not self.dtype:
        raise RuntimeError(
            f"{stock.__name__}: expected dtype={self.dtype}, the dtype of the tensor that is "
            f"written to, but got {dtype}; leave dtype= out"
        )
    return stock(*args, **kwargs)


def refuse_dtype(stock, *args, **kwargs):
    """Raise: the function has no meaning, or no result of its own, in a format dtype."""
    asked = next(
        v
        for v in [*args, *kwargs.values()]
        if isinstance(v, torch.dtype) and _C.format_of(v) is not None
    )
    raise NotImplementedError(
        f"{stock.__name__}: expected a stock dtype, but got {asked}; call it with a stock dtype "
        "and convert the result"
    )


def foreach_norm(stock, tensors, ord=2, dtype=None):
    """Run _foreach_norm or _foreach_powsum with format tensors or a format dtype."""
    if dtype is None:
        return stock(tensors, ord)
    for t in tensors:
        _expect_kind(stock.__name__, t, dtype)
    return stock([t.to(dtype) for t in tensors], ord)


def find_format_dtype(*arguments) -> torch.dtype:
    """Return the first format dtype in a call's arguments, for its error, or the default dtype."""
    dtypes = (v.dtype if isinstance(v, torch.Tensor) else v for v in tree_leaves(arguments))
    return next(
        (d for d in dtypes if isinstance(d, torch.dtype) and _C.format_of(d) is not None),
        torch.get_default_dtype(),
    )


def refuse_sparse(stock, *args, **kwargs):
    """Raise: format tensors cannot be sparse."""
    raise NotImplementedError(
        f"{stock.__name__}: expected values of a stock dtype, but got "
        f"{find_format_dtype(args, kwargs)}, which has no sparse tensors; convert the values "
        "first, for example with values.float()"
    )


def parse_to(stock, *args, **kwargs):
    """Parse the arguments of Module.to into (device, dtype, non_blocking, memory format)."""
    values = [*args, *kwargs.values()]
    if tensors := [v for v in values if isinstance(v, torch.Tensor)]:
        dtype, device = tensors[0].dtype, tensors[0].device
        rest = [v for v in args if not isinstance(v, torch.Tensor)]
        _, _, non_blocking, memory_format = stock(
            device,
            torch.float32,
            *rest,
            **{k: v for k, v in kwargs.items() if k not in ("other", "tensor")},
        )
        return device, dtype, non_blocking, memory_format
    dtype = next(v for v in values if _C.format_of(v) is not None)
    # PyTorch checks the arguments and their order, with a stock dtype in this one's place.
    args = [torch.float32 if v is dtype else v for v in args]
    kwargs = {k: torch.float32 if v is dtype else v for k, v in kwargs.items()}
    device, _, non_blocking, memory_format = stock(*args, **kwargs)
    return device, dtype, non_blocking, memory_format


def _expect_own_memory(x) -> None:
    if is_traceable_wrapper_subclass(x):
        raise NotImplementedError(
            "expected a tensor with its own memory to view in another dtype, but got a "
            f"{type(x).__name__}; view the tensor inside it"
        )


def view(stock, self, *args, **kwargs):
    """Raise for a wrapper: its dispatch uses a table of dtypes that ends before format dtypes."""
    _expect_own_memory(self)
    return stock(*args, **kwargs)


def view_copy(stock, *args, **kwargs):
    """Raise for a wrapper, as Tensor.view(dtype) does."""
    _expect_own_memory(args[0] if args else kwargs.get("input"))
    return stock(*args, **kwargs)


def tolist(stock, self):
    """List the exact values, where PyTorch reads memory by the storage dtype."""
    return self.double().tolist()


def set_data(self, data):
    """Exchange a format tensor's data for stock data, or the reverse.

    The Python object stays and gets a new body. Graphs of earlier forward passes keep the old body
    with its values. The gradients that they accumulate reach the tensor in its new dtype.
    """
    if self.requires_grad and not (data.is_floating_point() or data.is_complex()):
        raise RuntimeError(
            "expected data of a floating dtype for a tensor that requires gradients, but got "
            f"{data.dtype}; call requires_grad_(False) first"
        )
    if (
        self.layout is not data.layout
        or data.is_quantized
        or self.is_quantized
        or self.is_nested
        or data.is_nested
    ):
        raise RuntimeError(
            f"expected two strided tensors to exchange {self.dtype} for {data.dtype}, but got "
            f"layouts {self.layout} and {data.layout}; convert them with to_dense() first"
        )
    wrapper = next((t for t in (self, data) if is_traceable_wrapper_subclass(t)), None)
    if wrapper is not None:
        raise RuntimeError(
            f"expected tensors with memory of their own to exchange {self.dtype} for "
            f"{data.dtype}, but got a {type(wrapper).__name__}; use torch.utils.swap_tensors, as "
            "module.to(dtype) does"
        )
    grad = self.grad if self.is_leaf or self.retains_grad else None
    converted = None if grad is None else grad.detach().to(data.dtype)
    _C.exchange_bodies(self, data.detach())
    scripts.give_new_body(self)
    if grad is not None:
        grad.data = converted
        self.grad = grad  # its new body


def rdiv(stock):
    """Round number / tensor once, where PyTorch multiplies by the reciprocal and rounds twice."""

    def __rdiv__(self, other):
        # Under a mode of torch functions Dynamo traces this, and could not trace the second test.
        own = not torch.compiler.is_dynamo_compiling() and _C.is_format_tensor(self)
        return torch.div(other, self) if own else self.reciprocal() * other

    return __rdiv__


def set_(stock, self, source=None, *args, **kwargs):
    """Set a format tensor's storage, where PyTorch expects one of the storage dtype."""
    if source is None:
        return stock(*args, **kwargs)
    if isinstance(source, torch.Tensor) and source.dtype is not self.dtype:
        raise TypeError(
            f"set_: expected two tensors of one dtype, but got {self.dtype} and {source.dtype}; "
            "convert one first"
        )
    if isinstance(source, torch.TypedStorage):
        if source.dtype is not self.dtype:
            raise RuntimeError(
                f"expected a storage of {self.dtype} or an untyped one, but got one of "
                f"{source.dtype}; pass source.untyped()"
            )
        source = source._untyped_storage  # its public name warns
    return stock(source, *args, **kwargs)


def floating_dtype(x: torch.Tensor) -> torch.dtype | None:
    """Return the format dtype for torch.svd_lowrank and pca_lowrank, which know three dtypes."""
    return x.dtype if _C.is_format_tensor(x) else None


def refuse_lobpcg(x: torch.Tensor, *_args, **_kwargs) -> None:
    """Raise: lobpcg has tolerances and derivatives for float32 and float64 only.

    PyTorch raises for float16 and bfloat16 too.
    """
    if _C.is_format_tensor(x):
        raise TypeError(
            f"lobpcg: expected float32 or float64, but got {x.dtype}; convert it first, for "
            "example with x.float()"
        )


_TENSOR, _FUNCTIONS = "torch._C.TensorBase", "torch._C._VariableFunctions"
_WITH_DTYPE = (
    "sum nansum mean nanmean prod cumsum cumprod logcumsumexp softmax log_softmax norm".split()
)
_NAMESPACES_WITH_DTYPE = {
    "torch._C._linalg": "linalg_norm linalg_vector_norm linalg_matrix_norm",
    "torch._C._special": "special_softmax special_log_softmax",
}
_STOCK_ONLY = (
    "quantize_per_tensor quantize_per_channel quantize_per_tensor_dynamic empty_quantized "
    "_empty_affine_quantized _empty_per_channel_affine_quantized tril_indices triu_indices "
    "_sparse_sum"
).split()
_SPARSE = (
    "sparse_coo_tensor sparse_csr_tensor sparse_csc_tensor sparse_bsr_tensor sparse_bsc_tensor "
    "sparse_compressed_tensor"
).split()


def _when_with_dtype(name: str) -> When:
    positional = When.DTYPE_ANYWHERE | When.GUARD_ANYWHERE if "softmax" in name else When(0)
    return When.DTYPE_KEYWORD | When.OWN_SELF_DTYPE | positional


HOOKS = [
    Hook(f"{_TENSOR}.to", Kind.ASKING, to, When.OWN_ARGUMENT | When.GUARD_ANYWHERE),
    Hook(f"{_TENSOR}.type", Kind.ASKING, type_, When.OWN_SELF | When.OWN_DATA),
    *(
        Hook(f"{_TENSOR}.{name}", Kind.BUILTIN, None, When.GUARD_ALWAYS)
        for name in ("float", "double", "half", "bfloat16")
    ),
    Hook(f"{_TENSOR}.view", Kind.ASKING, view, When.DTYPE_ANYWHERE | When.GUARD_ANYWHERE),
    Hook(
        f"{_FUNCTIONS}.view_copy", Kind.ASKING, view_copy, When.DTYPE_ANYWHERE | When.GUARD_ANYWHERE
    ),
    Hook(f"{_TENSOR}.to_dense", Kind.BUILTIN, None, When.GUARD_KEYWORD),
    Hook("torch._C._nn._parse_to", Kind.BUILTIN, parse_to, When.DTYPE_ANYWHERE | When.OWN_ARGUMENT),
    *(
        Hook(f"{_FUNCTIONS}.{name}", Kind.ASKING, function_with_dtype, _when_with_dtype(name))
        for name in _WITH_DTYPE
    ),
    *(
        Hook(f"{_TENSOR}.{name}", Kind.ASKING, method_with_dtype(name), _when_with_dtype(name))
        for name in _WITH_DTYPE
    ),
    *(
        Hook(
            f"{_TENSOR}.{name}",
            Kind.ASKING,
            in_place_with_dtype,
            When.DTYPE_KEYWORD | When.OWN_SELF_DTYPE,
        )
        for name in ("cumsum_", "cumprod_")
    ),
    *(
        Hook(f"{namespace}.{name}", Kind.ASKING, function_with_dtype, _when_with_dtype(name))
        for namespace, names in _NAMESPACES_WITH_DTYPE.items()
        for name in names.split()
    ),
    *(
        Hook(f"torch.{name}", Kind.BUILTIN, foreach_norm, When.DTYPE_ANYWHERE | When.OWN_NESTED)
        for name in ("_foreach_norm", "_foreach_powsum")
    ),
    Hook(f"{_TENSOR}.set_", Kind.BUILTIN, set_, When.OWN_SELF | When.OWN_ARGUMENT),
    Hook(f"{_TENSOR}.tolist", Kind.ASKING, tolist, When.OWN_SELF),
    *(
        Hook(f"torch.{name}", Kind.BUILTIN, refuse_dtype, When.DTYPE_ANYWHERE)
        for name in _STOCK_ONLY
    ),
    *(
        Hook(f"torch._C._sparse.{name}", Kind.BUILTIN, refuse_dtype, When.DTYPE_ANYWHERE)
        for name in ("_sparse_softmax", "_sparse_log_softmax")
    ),
    *(
        Hook(f"torch.{name}", Kind.BUILTIN, refuse_sparse, When.DTYPE_ANYWHERE | When.OWN_ARGUMENT)
        for name in _SPARSE
    ),
    Hook("torch.Tensor.__rdiv__", Kind.REPLACED, rdiv, within=True),
    Hook("torch._linalg_utils.get_floating_dtype", Kind.ASKED, floating_dtype),
    Hook("torch._lobpcg._lobpcg", Kind.ASKED, refuse_lobpcg),
]

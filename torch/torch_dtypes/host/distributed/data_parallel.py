"""DistributedDataParallel of models with format parameters.

Their gradients are averaged by this package's reducer (reducer.py), since PyTorch's allocates its
buckets by the storage dtype. Each function runs before the method of its row in wrappers.py, and
returns None where no parameter is a format tensor.
"""

from __future__ import annotations

import inspect

from torch import nn

from ... import _C, quantization
from .reducer import Logger, Reducer


def _name_parameters(ddp) -> dict[str, nn.Parameter]:
    """Return format parameters whose gradients are averaged, each once, by name."""
    parameters = ddp.module.named_parameters()
    return {
        n: p
        for n, p in parameters
        if p.requires_grad and n not in ddp.parameters_to_ignore and _C.is_format_tensor(p)
    }


def _refuse(ddp, what: str, instead: str):
    name, parameter = next(iter(_name_parameters(ddp).items()))
    raise NotImplementedError(
        f"DistributedDataParallel: expected parameters of stock dtypes with {what}, but got "
        f"{parameter.dtype} in {name}; {instead}"
    )


def expect_supported(ddp):
    """Refuse unsupported options of DistributedDataParallel before it sends anything."""
    delayed = next((p for p in ddp._delay_all_reduce_params if _C.is_format_tensor(p)), None)
    if delayed is not None:
        raise NotImplementedError(
            "DistributedDataParallel: expected parameters of stock dtypes in "
            f"delay_all_reduce_named_params, but got {delayed.dtype}; leave them out"
        )
    quantization.shared_scales.share_scales(ddp)
    if not _name_parameters(ddp):
        return None
    if ddp.mixed_precision is not None:
        _refuse(
            ddp, "mixed_precision=", "leave it out, since the parameters' dtype is the precision"
        )
    if ddp.skip_all_reduce_unused_params:
        _refuse(ddp, "skip_all_reduce_unused_params=True", "use find_unused_parameters=True")
    if ddp._use_python_reducer:
        _refuse(
            ddp,
            "the python_reducer of torch.compile",
            "leave torch._dynamo.config.optimize_ddp as it is",
        )
    return None


def make_reducer(ddp, parameters, expect_sparse_gradient, param_to_name_mapping, static_graph):
    """Build this package's reducer. PyTorch's gets the parameters of stock dtypes, if any."""
    named = _name_parameters(ddp)
    if not named:
        return None
    stock_places = [i for i, p in enumerate(parameters) if not _C.is_format_tensor(p)]
    stock = None
    if stock_places:
        names = (
            {place: param_to_name_mapping[i] for place, i in enumerate(stock_places)}
            if param_to_name_mapping
            else param_to_name_mapping
        )
        helper = inspect.unwrap(type(ddp)._ddp_init_helper)
        helper(
            ddp,
            [parameters[i] for i in stock_places],
            [expect_sparse_gradient[i] for i in stock_places],
            names,
            static_graph,
        )
        stock = ddp.reducer
    else:
        ddp._passing_sync_batchnorm_handle(ddp.module)
        ddp.logger = Logger()
    ddp.reducer = Reducer(ddp, named, stock)
    return True


def register_comm_hook(ddp, state, hook):
    """Register a communication hook, which gets the buckets of both reducers."""
    if not isinstance(vars(ddp).get("reducer"), Reducer):
        return None
    ddp._check_comm_hook(hook)
    ddp.logger._set_comm_hook_name(hook.__qualname__)
    ddp.reducer.register_hook(state, hook)
    ddp._comm_hooks.append((hook, state))
    return True


def refuse_builtin_hook(ddp, comm_hook_type):
    """Refuse builtin communication hooks: they are in C++ and take PyTorch's own buckets only."""
    if isinstance(vars(ddp).get("reducer"), Reducer):
        _refuse(
            ddp,
            f"the builtin hook {comm_hook_type}",
            "use register_comm_hook, for example with torch_dtypes.distributed.compress_hook",
        )


def refuse_in_backward(ddp):
    """Refuse optimizers that step within backward: their hook looks into PyTorch's reducer."""
    if isinstance(vars(ddp).get("reducer"), Reducer) and any(
        hasattr(p, "_in_backward_optimizers") for p in ddp._module_parameters
    ):
        _refuse(ddp, "optimizers in backward", "step after backward")


def join_hook(ddp, **kwargs):
    """Refuse join() of format parameters, and share delayed scales of other models in it.

    Ranks that have run out of data answer calls of PyTorch's reducer only.
    """
    if isinstance(vars(ddp).get("reducer"), Reducer):
        _refuse(ddp, "join()", "give every rank as many batches, for example by DistributedSampler")
    if not quantization.shared_scales.delayed_scalers(ddp.module):
        return None
    return quantization.shared_scales.join_hook(
        ddp, inspect.unwrap(type(ddp).join_hook)(ddp, **kwargs)
    )

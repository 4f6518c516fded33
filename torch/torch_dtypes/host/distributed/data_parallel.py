"""DistributedDataParallel of models with parameters of ours: their gradients are averaged by a
reducer of ours (reducer.py), since stock's allocates its buckets by the container. Each function is
asked before the method of its row in distributed.py; None: nothing of ours is there."""

from __future__ import annotations

import inspect

from torch import nn

from ... import _C, quantization
from .reducer import Logger, Reducer


def _named(ddp) -> dict[str, nn.Parameter]:
    """Parameters of ours whose gradients are averaged, each once."""
    named = ddp.module.named_parameters()
    return {
        n: p
        for n, p in named
        if p.requires_grad and n not in ddp.parameters_to_ignore and _C.is_format_tensor(p)
    }


def _refuse(ddp, what: str, instead: str):
    name, parameter = next(iter(_named(ddp).items()))
    raise NotImplementedError(
        f"DistributedDataParallel: expected parameters of stock dtypes with {what}, but got "
        f"{parameter.dtype} in {name}. {instead}"
    )


def expect_possible(ddp):
    """In front of DistributedDataParallel._build_params_for_reducer, which its constructor calls
    before it sends or compares anything."""
    delayed = next((p for p in ddp._delay_all_reduce_params if _C.is_format_tensor(p)), None)
    if delayed is not None:
        raise NotImplementedError(
            "DistributedDataParallel: expected parameters of stock dtypes in "
            f"delay_all_reduce_named_params, but got {delayed.dtype}. Leave them out."
        )
    quantization.shared_scales.share_scales(ddp)
    if not _named(ddp):
        return None
    if ddp.mixed_precision is not None:
        _refuse(
            ddp, "mixed_precision=", "Leave it out: the parameters' own dtype is the precision."
        )
    if ddp.skip_all_reduce_unused_params:
        _refuse(ddp, "skip_all_reduce_unused_params=True", "Use find_unused_parameters=True.")
    if ddp._use_python_reducer:
        _refuse(
            ddp,
            "the python_reducer of torch.compile",
            "Leave torch._dynamo.config.optimize_ddp as it is.",
        )
    return None


def make_reducer(ddp, parameters, expect_sparse_gradient, param_to_name_mapping, static_graph):
    """DistributedDataParallel._ddp_init_helper: stock's reducer gets the parameters of stock
    dtypes, if there are any."""
    named = _named(ddp)
    if not named:
        return None
    theirs = [i for i, p in enumerate(parameters) if not _C.is_format_tensor(p)]
    stock = None
    if theirs:
        names = (
            {place: param_to_name_mapping[i] for place, i in enumerate(theirs)}
            if param_to_name_mapping
            else param_to_name_mapping
        )
        helper = inspect.unwrap(type(ddp)._ddp_init_helper)
        helper(
            ddp,
            [parameters[i] for i in theirs],
            [expect_sparse_gradient[i] for i in theirs],
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
    """DistributedDataParallel.register_comm_hook: the hook gets buckets of stock's reducer and of
    ours."""
    if not isinstance(vars(ddp).get("reducer"), Reducer):
        return None
    ddp._check_comm_hook(hook)
    ddp.logger._set_comm_hook_name(hook.__qualname__)
    ddp.reducer.register_hook(state, hook)
    ddp._comm_hooks.append((hook, state))
    return True


def refuse_builtin_hook(ddp, comm_hook_type):
    """DistributedDataParallel._register_builtin_comm_hook: those hooks are in C++, and take stock's
    buckets alone."""
    if isinstance(vars(ddp).get("reducer"), Reducer):
        _refuse(
            ddp,
            f"the builtin hook {comm_hook_type}",
            "Use register_comm_hook, for example of torch_dtypes.distributed.compress_hook.",
        )


def refuse_in_backward(ddp):
    """Optimizers that step within backward are run by a hook that looks into stock's reducer."""
    if isinstance(vars(ddp).get("reducer"), Reducer) and any(
        hasattr(p, "_in_backward_optimizers") for p in ddp._module_parameters
    ):
        _refuse(ddp, "optimizers in backward", "Step after backward.")


def join_hook(ddp, **kwargs):
    """DistributedDataParallel.join_hook: ranks that have run out of data answer calls of stock's
    reducer alone; delayed scales are shared then."""
    if isinstance(vars(ddp).get("reducer"), Reducer):
        _refuse(
            ddp, "join()", "Give every rank as many batches, for example by DistributedSampler."
        )
    if not quantization.shared_scales.delayed_scalers(ddp.module):
        return None
    return quantization.shared_scales.join_hook(
        ddp, inspect.unwrap(type(ddp).join_hook)(ddp, **kwargs)
    )

"""What Dynamo's graphs of torch.func enter and leave node by node: levels of its transforms, and of dual numbers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

functorch = torch._C._functorch
_LEAVES = {
    functorch.TransformType.Grad: functorch._grad_decrement_nesting,
    functorch.TransformType.Jvp: functorch._jvp_decrement_nesting,
    functorch.TransformType.Vmap: functorch._vmap_decrement_nesting,
    functorch.TransformType.Functionalize: functorch._func_decrement_nesting,
}


def has_duals() -> bool:
    """Whether a level of dual numbers is open. There is one at most."""
    try:
        torch._C._exit_dual_level(level=torch._C._enter_dual_level())
    except RuntimeError:
        return True
    return False


@contextlib.contextmanager
def undone_if_it_fails() -> Iterator[None]:
    """Where an error ends a run of Dynamo's graph, what its nodes have entered and not left (levels of torch.func, which do without hooks of saved
    tensors, and of dual numbers) is left.
    """
    hooks, duals = torch._C._autograd, has_duals()
    depth, disabled = functorch.get_dynamic_layer_stack_depth(), hooks._saved_tensors_hooks_get_disabled_error_message()
    try:
        yield
    except BaseException:
        while functorch.get_dynamic_layer_stack_depth() > depth:  # pop_dynamic_layer_stack_and_undo_to_depth() pops each twice before 2.13
            _LEAVES[functorch.peek_interpreter_stack().key()]()
        if has_duals() and not duals:
            torch._C._exit_dual_level(level=0)
        if disabled is None:
            hooks._saved_tensors_hooks_enable()
        else:
            hooks._saved_tensors_hooks_disable(disabled)
        raise


def beneath_levels(tensor: torch.Tensor) -> torch.Tensor:
    """What torch.func has wrapped, whose elements are the same."""
    while functorch.is_functorch_wrapped_tensor(tensor):
        tensor = functorch.get_unwrapped(tensor)
    return tensor

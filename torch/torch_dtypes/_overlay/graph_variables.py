"""What Dynamo's variables stand for, their classes and guards, the operators that it takes apart (of ours each part would round), and the regions
that it traces once."""

from __future__ import annotations

import functools

import torch
from torch.utils import _pytree as pytree

from .. import _C


def known(variable) -> object:
    """What one of dynamo's variables stands for: fake tensors, lists of such, constants. None for others."""
    from torch._dynamo.variables import TensorVariable
    from torch._dynamo.variables.lists import BaseListVariable

    variable = variable.realize()
    if isinstance(variable, BaseListVariable):
        return [known(v) for v in variable.items]
    if isinstance(variable, TensorVariable):
        return variable.as_proxy().node.meta.get("example_value")
    return variable.as_python_constant() if variable.is_python_constant() else None


def _one_is_ours(variables) -> bool:
    """Of dynamo's variables and those in their lists, whether one is a tensor of ours."""
    from ..compiling.codes import Codes

    return any(isinstance(v, Codes) for v in pytree.tree_leaves([known(v) for v in variables]))


SEVERAL_OF_ONE = ("add_", "addcmul_", "addcdiv_")


def kept_whole(stock):
    """A method of dynamo's that makes several operators of one; not of ours, each of which would round."""

    @functools.wraps(stock)
    def call(self, tx, *args, **kwargs):
        return None if _one_is_ours((self, *args)) else stock(self, tx, *args, **kwargs)

    return call


def naming_types(stock):
    """What becomes of a traced ``x.type()``: stock looks for the class of the dtype's legacy tensors, which ours do not have."""
    from torch._dynamo.variables import ConstantVariable

    @functools.wraps(stock)
    def method_type(self, tx, dtype=None, *args, **kwargs):
        ours = dtype is None and isinstance(self.dtype, torch.dtype) and _C.format_of(self.dtype) is not None
        return ConstantVariable.create(str(self.dtype)) if ours else stock(self, tx, dtype, *args, **kwargs)

    return method_type


def methods_kept_whole(methods: dict) -> None:
    """Dynamo's table of a tensor's methods, which has those that make several operators of one, and ``type``."""
    for name in SEVERAL_OF_ONE:
        methods[name].handler = kept_whole(methods[name].handler)
    if "type" in methods:
        methods["type"].handler = naming_types(methods["type"].handler)


def functions_kept_whole(stock):
    """Dynamo's list of functions that it handles itself: those of which it makes several operators are left alone where one rounds."""

    @functools.cache
    def handlers() -> dict:
        found = dict(stock())
        for function in (torch.addcdiv, torch._foreach_lerp_):
            found[function] = kept_whole(found[function])
        return found

    return handlers


def traced_anew(stock):
    """What keeps a region that was traced (``torch.compiler.nested_compile_region``) for further calls of it: of tensors of ours it would make
    fakes of their dtype. They are traced at each call."""
    from ..compiling.codes import Codes

    @functools.wraps(stock)
    def save_reuse_entry(tx, fn_var, fingerprint, body_name, body_gmod, config, p_args, body_r, example_value, *args, **kwargs):
        known = [getattr(v, "node", v) for v in pytree.tree_leaves((p_args, example_value))]
        known = [v.meta.get("example_value") if isinstance(v, torch.fx.Node) else v for v in known]
        if not any(isinstance(v, Codes) for v in known):
            stock(tx, fn_var, fingerprint, body_name, body_gmod, config, p_args, body_r, example_value, *args, **kwargs)

    return save_reuse_entry


def of_stock_classes(stock):
    """What Dynamo knows of a tensor, its class among it: of Codes, that of the tensor they stand for."""
    from ..compiling.codes import Codes

    @functools.wraps(stock)
    def properties(target, tx, example, subclass):
        found = stock(target, tx, example, subclass)
        if isinstance(example, Codes):
            kinds = (torch.nn.Parameter, torch.nn.Buffer, torch.Tensor)
            found["class_type"] = subclass or next(kind for kind in kinds if isinstance(example, kind))
        return found

    return properties


def guarding_dtypes(stock):
    """What guards that a value equals one that was traced: of a dtype of ours, that its name does. Stock's guard has the value, and outlives the
    code that it guards (a finalizer of each module and function that was guarded with it has all guards), so that after ``torch._dynamo.reset()``
    the dtype's number would not be free."""
    from torch._dynamo.guards import get_verbose_code_parts

    @functools.wraps(stock)
    def match(self, guard, *args, **kwargs):
        value = self.get(guard)
        if not isinstance(value, torch.dtype) or _C.format_of(value) is None:
            return stock(self, guard, *args, **kwargs)
        name = str(value)
        code = [f"str({self.arg_ref(guard)}) == {name!r}"]
        self._set_guard_export_info(guard, code, provided_func_name="EQUALS_MATCH")
        self.get_guard_manager(guard).add_lambda_guard(lambda found: str(found) == name, get_verbose_code_parts(code, guard), guard.user_stack)

    return match

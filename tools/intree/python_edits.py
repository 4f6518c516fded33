"""The edited places of PyTorch's Python, for releases whose sources are known."""

from __future__ import annotations

from .edit import SOURCES, Edit
from .rows import ROOT, builtin_rows

# A test in Python whether a tensor has a number format.
_IS_FORMAT = "torch._C._dispatch_keys({}).has(torch._C.DispatchKey.PrivateUse2)"
# The same test also for tensors that torch.func wraps, which have only this key of the format.
_WRAPS_FORMAT = (
    'torch._C._dispatch_keys({0}).has(torch._C.DispatchKey.HPU) and {0}.device.type != "hpu"'
)

PYTHON_EDITS = (
    Edit(
        "torch/storage.py",
        "    return {\n        torch.float8_e5m2,\n",
        "after",
        "".join(f"        torch.{row.name},\n" for row in builtin_rows(ROOT)),
        "`torch.save` writes their storages untyped, with the dtype's name, and `torch.load` "
        "accepts these names.",
        SOURCES,
    ),
    Edit(
        "torch/_utils.py",
        "    t.set_(storage._untyped_storage, storage_offset, size, stride)\n",
        "after",
        f"    if {_IS_FORMAT.format('t')}:\n"
        "        from torch_dtypes.storage.pickling import check_tensor\n\n"
        "        check_tensor(t)\n",
        "`torch.load` refuses codes beyond a format's bits.",
        SOURCES,
    ),
    Edit(
        "torch/_tensor.py",
        "        return self.reciprocal() * other\n",
        "before",
        f"        if {_WRAPS_FORMAT.format('self')}:  # a number format\n"
        "            if isinstance(other, torch.Tensor):\n"
        "                return other / self\n"
        "            quotient = torch.scalar_tensor(other, dtype=torch.float64) / (self if "
        "self.dim() else self.unsqueeze(0))  # rounded once\n"
        "            return quotient if self.dim() else quotient.squeeze(0)\n",
        "`1 / x`: a quotient of a number format is not the rounded product with a rounded "
        "reciprocal.",
        SOURCES,
    ),
    Edit(
        "torch/_tensor_str.py",
        "    if self.dtype in [\n        torch.float8_e5m2,",
        "before",
        "    # The formatter computes in the tensor's dtype, which rounds: a number format's "
        "values are float64 numbers.\n"
        f"    if {_IS_FORMAT.format('self')}:\n"
        "        self = self.double()\n\n",
        "Printing shows exact values; their notation must not depend on a rounding mode.",
        SOURCES,
    ),
    Edit(
        "torch/amp/autocast_mode.py",
        'if self.device == "cpu":\n            supported_dtype = [torch.bfloat16, torch.float16]\n',
        "after",
        "            empty = torch.empty(0, dtype=self.fast_dtype)\n"
        f"            if {_IS_FORMAT.format('empty')}:  # a number format\n"
        "                if enabled and empty.itemsize > 2:\n"
        "                    raise ValueError(\n"
        '                        f"expected a dtype stored in 8 or 16 bits in torch.autocast, '
        'but got {self.fast_dtype}, stored in "\n'
        '                        f"{8 * empty.itemsize}, as float32 is or wider; use '
        'model.to({self.fast_dtype}), or a narrower one here"\n'
        "                    )\n"
        "                supported_dtype.append(self.fast_dtype)\n",
        '`torch.autocast("cpu", dtype=torch.posit16es2)`.',
        SOURCES,
    ),
    Edit(
        "torch/utils/checkpoint.py",
        "class CheckpointFunction(torch.autograd.Function):\n",
        "before",
        "def _carried(function):\n"
        '    """Return a context for the first pass of a checkpointed function, and the function '
        "for its recomputation.\n\n"
        "    Code with state that both passes must share replaces this function.\n"
        '    """\n'
        "    return contextlib.nullcontext(), function\n\n\n",
        "A checkpoint's second pass runs under the first one's blocks (`rounding`, `accumulate`), "
        "as under its autocast; the package replaces this function.",
        SOURCES,
    ),
    Edit(
        "torch/utils/checkpoint.py",
        "        ctx.run_function = run_function\n",
        "instead",
        "        first_pass, ctx.run_function = _carried(run_function)\n",
        "`use_reentrant=True` calls it.",
        SOURCES,
    ),
    Edit(
        "torch/utils/checkpoint.py",
        "        with torch.no_grad():\n            outputs = run_function(*args)\n",
        "instead",
        "        with torch.no_grad(), first_pass:\n            outputs = run_function(*args)\n",
        "The first pass of `use_reentrant=True` runs in its context.",
        SOURCES,
    ),
    Edit(
        "torch/utils/checkpoint.py",
        "    def recompute_fn(*inputs):\n",
        "before",
        "    first_pass, fn = _carried(fn)\n\n",
        "`use_reentrant=False` calls it.",
        SOURCES,
    ),
    Edit(
        "torch/utils/checkpoint.py",
        "    with _checkpoint_hook(new_frame), forward_context:\n",
        "instead",
        "    with _checkpoint_hook(new_frame), first_pass, forward_context:\n",
        "The first pass of `use_reentrant=False` runs in its context.",
        SOURCES,
    ),
    Edit(
        "torch/nn/modules/module.py",
        "                self._buffers[key] = fn(buf)\n",
        "after",
        f"                if {_IS_FORMAT.format('self._buffers[key]')}:\n"
        "                    from torch_dtypes.host.stock_functions import write_infinities\n\n"
        "                    write_infinities(buf, self._buffers[key])\n",
        "A module's mask keeps its infinities in a format without them, as the format's numbers "
        "for them.",
        SOURCES,
    ),
    Edit(
        "torch/nn/modules/module.py",
        "                param_applied = fn(param)\n",
        "after",
        f"                if not param.requires_grad and {_IS_FORMAT.format('param_applied')}:\n"
        "                    from torch_dtypes.host.stock_functions import write_infinities\n\n"
        "                    write_infinities(param, param_applied)\n",
        "A mask in a parameter without gradients keeps its infinities too.",
        SOURCES,
    ),
    Edit(
        "torch/nn/modules/module.py",
        "                            param.copy_(input_param)\n",
        "after",
        "                            if (name in self._buffers or not param.requires_grad) and "
        f"{_IS_FORMAT.format('param')}:\n"
        "                                from torch_dtypes.host.stock_functions import "
        "write_infinities\n\n"
        "                                write_infinities(input_param, param)\n",
        "A mask keeps its infinities when a module loads a stock checkpoint.",
        SOURCES,
    ),
    Edit(
        "torch/nn/functional.py",
        "def _canonical_mask(\n",
        "before",
        "def _of_number_format(name, *args):\n"
        '    """Return a function\'s result for a number format, or None where PyTorch\'s own '
        'is right."""\n'
        '    return getattr(importlib.import_module("torch_dtypes.host.stock_functions"), '
        "name)(*args)\n\n\n",
        "The package has PyTorch's Python functions for number formats; TorchScript, which "
        "compiles these functions, has no imports.",
        SOURCES,
    ),
    Edit(
        "torch/nn/functional.py",
        "    if mask is not None:\n        _mask_dtype = mask.dtype\n",
        "before",
        "    if not torch.jit.is_scripting():\n"
        "        if mask is not None and (target_type in torch.storage._new_dtypes() or "
        'torch.is_autocast_enabled("cpu")):\n'
        '            own = _of_number_format("canonical_mask", mask, mask_name, other_type, '
        "other_name, target_type, check_other)\n"
        "            if own is not None:\n"
        "                return own\n",
        "Attention's masks have its dtype, with the format's number for `-inf`.",
        SOURCES,
    ),
    Edit(
        "torch/nn/modules/transformer.py",
        '    return torch.triu(\n        torch.full((sz, sz), float("-inf")',
        "before",
        "    if not torch.jit.is_scripting():\n"
        "        if (torch.get_default_dtype() if dtype is None else dtype) in "
        "torch.storage._new_dtypes():\n"
        '            own = F._of_number_format("subsequent_mask", sz, device, dtype)\n'
        "            if own is not None:\n"
        "                return own\n",
        "The mask of `Transformer.generate_square_subsequent_mask` has it too.",
        SOURCES,
    ),
    Edit(
        "torch/nn/utils/clip_grad.py",
        "    norms: List[Tensor] = []\n",
        "before",
        f"    if any({_IS_FORMAT.format('t')} for t in tensors):\n"
        "        from torch_dtypes.host.stock_functions import total_norm\n"
        "        total = total_norm(tensors, norm_type, error_if_nonfinite, foreach)\n"
        "        if total is not None:\n            return total\n",
        "`clip_grad_norm_`: a total norm is a number of the compute dtype, since a format may lack "
        "it.",
        SOURCES,
    ),
    *(
        Edit(
            f"torch/optim/{module}.py",
            f"        func = _multi_tensor_{module.lstrip('_')}\n",
            "after",
            f"        if any({_IS_FORMAT.format('p')} for p in params):\n"
            f"            func = _single_tensor_{module.lstrip('_')}\n",
            f"`foreach=True` computes {name} by another formula than the for-loop; in a number "
            "format both give the same bits.",
            SOURCES,
        )
        for module, name in (
            ("_adafactor", "Adafactor"),
            ("adagrad", "Adagrad"),
            ("adam", "Adam"),
            ("adamw", "AdamW"),
            ("asgd", "ASGD"),
            ("nadam", "NAdam"),
            ("radam", "RAdam"),
        )
    ),
    Edit(
        "torch/testing/_comparison.py",
        "        # The comparison logic uses operators currently not supported by the MPS "
        "backends.\n",
        "before",
        "        # Number formats are compared in float64, exactly: their own operators round, "
        "and two of them have no common type.\n"
        f"        actual, expected = (t.double() if {_IS_FORMAT.format('t')} else t for t in "
        "(actual, expected))\n",
        "`assert_close` compares number formats in float64.",
        SOURCES,
    ),
)

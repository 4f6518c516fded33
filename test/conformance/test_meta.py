"""PyTorch's operator database on the device meta: dtypes and sizes of results and gradients, and
errors, equal those of the tests' device."""

import pytest
import torch
from representatives import thin_out
from samples import NotApplicable, base_dtype, here, only_simulated, quiet, samples_of, seed
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_leaves, tree_map

import torch_dtypes

# Entries that differ in stock float32 as well: statistics of absent values, an error that depends
# on values, an error of kernels for 16 bits.
STOCK = {
    "native_batch_norm",
    "_native_batch_norm_legit",
    "linalg.eig",
    "torch.ops.aten._flash_attention_forward",
}
# Gradients of the whole tensor: PyTorch looks for a NaN among the values, fails to see that they
# are absent, and raises.
REFUSED = {"max", "min", "median", "nanmedian"}


def move(value, base, dtype, device):
    """Move a part of a sample to a device, and to a dtype where it has a base dtype."""

    def of(x):
        if isinstance(x, torch.Tensor) and x.layout is torch.strided:
            y = x.detach().to(
                "meta" if device == "meta" else x.device,
                dtype if dtype is not None and x.dtype is base else None,
            )
            return y.requires_grad_(x.requires_grad)
        if x is base and dtype is not None:
            return dtype
        return (
            torch.device(device)
            if isinstance(x, (str, torch.device)) and str(x).split(":")[0] == here()
            else x
        )

    return tree_map(of, value)


def run(op, sample, base, dtypes, device):
    """Return the visible facts of a call: those of results and gradients, or of the error."""
    seed(1)
    x, rest = (
        move(sample.input, base, dtypes[0], device),
        move((sample.args, sample.kwargs), base, dtypes[1], device),
    )
    try:
        results = [
            t for t in tree_leaves(op(x, *rest[0], **rest[1])) if isinstance(t, torch.Tensor)
        ]
        leaves = [
            t for t in tree_leaves((x, rest)) if isinstance(t, torch.Tensor) and t.requires_grad
        ]
        wanted = [t for t in results if t.requires_grad]
        gradients = (
            torch.autograd.grad(
                wanted, leaves, [torch.ones_like(t) for t in wanted], allow_unused=True
            )
            if leaves and wanted
            else ()
        )
    except Exception as error:
        if only_simulated(error):
            return None
        return "an error"  # PyTorch's kernels for meta word it differently
    assert all(t.device.type == device for t in results)
    return [
        None if t is None else (t.dtype, t.shape, t.requires_grad) for t in (*results, *gradients)
    ]


@pytest.mark.parametrize("which", thin_out(["all", "first", "others"], 3))
def test_operators_on_meta(which):
    """Run with the format dtype for all floating operands, for the first alone, or for all but the
    first, beside float32 ones."""
    ours, differ, count = torch_dtypes.dtype("q43"), {}, 0
    dtypes = {"all": (ours, ours), "first": (ours, None), "others": (None, ours)}[which]
    for op in op_db:
        try:
            base = base_dtype(op)
        except NotApplicable:
            continue
        with quiet():
            for sample in samples_of(op, base, op.supports_autograd, 1):
                found, there = (
                    run(op, sample, base, dtypes, device) for device in (here(), "meta")
                )
                count += 1
                if (
                    found is None
                    or found == there
                    or op.name in STOCK
                    or (op.name in REFUSED and there == "an error")
                ):
                    continue
                if run(op, sample, base, (None, None), "meta") != "an error":
                    differ[op.full_name] = found, there
    assert not differ
    assert count > 400

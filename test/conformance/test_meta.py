"""PyTorch's operator database on the device meta: the results' and gradients' dtypes, sizes and
errors are those of the tests' device."""

import pytest
import torch
from representatives import thin_out
from samples import NotApplicable, base_dtype, here, only_simulated, quiet, samples_of, seed
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_leaves, tree_map

import torch_dtypes

# What differs, as it does in stock PyTorch's float32: statistics of what is not there, an error
# that depends on values, one of kernels for 16 bits.
STOCK = {
    "native_batch_norm",
    "_native_batch_norm_legit",
    "linalg.eig",
    "torch.ops.aten._flash_attention_forward",
}
# Gradients of the whole, for which stock looks for a NaN among the values where it does not see
# that they are not there: an error.
REFUSED = {"max", "min", "median", "nanmedian"}


def moved(value, base, dtype, device):
    """A sample's part on a device, in a dtype where it is one of the base dtype."""

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
    """What there is to see of a call: of results and gradients, or of the error."""
    seed(1)
    x, rest = (
        moved(sample.input, base, dtypes[0], device),
        moved((sample.args, sample.kwargs), base, dtypes[1], device),
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
        return "an error"  # of which stock's kernels for meta have words of their own
    assert all(t.device.type == device for t in results)
    return [
        None if t is None else (t.dtype, t.shape, t.requires_grad) for t in (*results, *gradients)
    ]


@pytest.mark.parametrize("which", thin_out(["all", "first", "others"], 3))
def test_operators_on_meta(which):
    """In one of our dtypes: all floating operands, the first alone, or all but the first, beside
    float32 ones."""
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

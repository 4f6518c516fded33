"""One entry of PyTorch's operator database in a format dtype: forward-mode derivatives."""

import torch
from known import KEEPS_STATISTICS, NONDETERMINISTIC
from runs import Outcome, Runs, check_tensor, check_values, cotangent_like, expect, summary, tensors
from samples import NotApplicable, base_dtype, is_complex, sample_in_world, samples_of
from torch.autograd import forward_ad
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils._pytree import tree_map


def tangents(op: OpInfo, sample: SampleInput, base: torch.dtype, dtype: torch.dtype, some: bool):
    """Compare tangents of all operands that require a gradient, or of the first one only."""

    def call(x, args, kwargs, leaves):
        if not leaves or (some and len(leaves) == 1):
            raise NotApplicable("nothing to differentiate by")
        chosen = leaves[:1] if some else leaves
        with torch.no_grad(), forward_ad.dual_level():
            duals = {id(t): forward_ad.make_dual(t.detach(), cotangent_like(t)) for t in chosen}
            x, args, kwargs = tree_map(lambda v: duals.get(id(v), v), (x, args, kwargs))
            results = tensors(
                sample.output_process_fn_grad(op.gradcheck_wrapper(op.get_op(), x, *args, **kwargs))
            )
            return [
                forward_ad.unpack_dual(r).tangent
                if r.is_floating_point() or r.is_complex()
                else None
                for r in results
            ]

    runs = Runs(dtype, lambda world: sample_in_world(sample, base, world), call)
    ours, single, exact = (runs.results[name] for name in ("ours", "single", "exact"))
    for i, (y, s) in enumerate(zip(ours, single, strict=True)):
        expect(
            (y is None) == (s is None),
            f"tangent {i}: expected {'none' if s is None else 'one'}, but got "
            f"{'none' if y is None else 'one'}",
        )
        if s is not None:
            check_tensor(
                f"tangent {i}",
                y,
                s,
                exact[i] if exact is not None else None,
                dtype,
                unrounded=i > 0 and op.name in KEEPS_STATISTICS,
            )
    if runs.random or op.name in NONDETERMINISTIC:
        return
    keep = [i for i, y in enumerate(ours) if y is not None]
    runs = runs.part(keep)
    for i in range(len(keep)):
        check_values(f"tangent {keep[i]}", runs, i, exactly=False, composed=True)


def run_entry(op: OpInfo, dtype: torch.dtype, most: int | None = None) -> Outcome:
    try:
        base = base_dtype(op)
    except NotApplicable as error:
        return Outcome("n/a", str(error))
    if not op.supports_forward_ad:
        return Outcome("n/a", "no forward mode")
    samples = [s for s in samples_of(op, base, True, most) if not is_complex(s)]
    return summary(
        [
            lambda s=s, some=some: tangents(op, s, base, dtype, some)
            for s in samples
            for some in (False, True)
        ],
        dtype,
    )

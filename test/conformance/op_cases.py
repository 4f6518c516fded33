"""One entry of PyTorch's operator database in a format dtype: forward, derivatives, in-place and
out= variants, wrong input."""

import contextlib
import re
from collections.abc import Callable, Iterator

import blame
import torch
from bounds import CONTAINER, neighbour
from infinities import identities
from known import EXACT, KEEPS_STATISTICS, UNDEFINED_VALUES
from runs import (
    Outcome,
    Runs,
    check_tensor,
    check_values,
    cotangent_like,
    expect,
    expect_same,
    summary,
    tensors,
)
from samples import (
    SEED,
    NotApplicable,
    alias_of,
    base_dtype,
    here,
    is_complex,
    quiet,
    sample_in_world,
    samples_of,
    seed,
    worlds,
)
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils._pytree import tree_flatten, tree_map

KINDS = ("forward", "backward", "gradgrad", "inplace", "inplace_backward", "errors")
# Errors for mistakes that a user may make.
ERRORS = (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError)
DERIVATIVES = frozenset(("backward", "gradgrad", "inplace_backward"))


def has_free_values(op: OpInfo) -> bool:
    return op.name in UNDEFINED_VALUES or op.full_name in UNDEFINED_VALUES


def forward(op: OpInfo, sample: SampleInput, base: torch.dtype, dtype: torch.dtype):
    def call(x, args, kwargs, leaves):
        results = op(x, *args, **kwargs)
        # Signs of eigenvectors, for instance, are arbitrary. The database names the part of the
        # results that is not.
        return results, sample.output_process_fn_grad(results)

    both = Runs(dtype, lambda world: sample_in_world(sample, base, world), call)
    runs, processed = both.part(0), both.part(1)
    ours, single, exact = (runs.leaves(name) for name in ("ours", "single", "exact"))
    expect(len(ours) == len(single), f"expected {len(single)} results, but got {len(ours)}")
    expect(
        tree_flatten(runs.results["ours"])[1] == tree_flatten(runs.results["single"])[1],
        "expected the structure of stock results",
    )
    for i, (y, s) in enumerate(zip(ours, single, strict=True)):
        name = "result" if len(ours) == 1 else f"result {i}"
        e = exact[i] if exact is not None else None
        if not isinstance(s, torch.Tensor):
            if isinstance(s, (bool, int, str, torch.dtype)) and not runs.random:
                stock = e if e is not None else s
                follows = s is torch.float32 and stock is torch.float64
                expect(
                    y == (dtype if follows else stock) or isinstance(s, int),
                    f"{name}: expected {stock}, but got {y}",
                )
            continue
        expect(
            isinstance(y, torch.Tensor), f"{name}: expected a tensor, but got {type(y).__name__}"
        )
        check_tensor(name, y, s, e, dtype, unrounded=i > 0 and op.name in KEEPS_STATISTICS)
        if alias_of(s, runs.operands["single"]) and s.layout is torch.strided and y.dtype is dtype:
            expect(
                alias_of(y, runs.operands["ours"]),
                f"{name}: expected a view of the operand, but got a copy",
            )
            expect(
                y.stride() == s.stride(),
                f"{name}: expected the strides {s.stride()}, but got {y.stride()}",
            )
    if runs.random or has_free_values(op):
        return
    if op.name == "nextafter":
        x, args, _, _ = runs.operands["ours"]
        processed.results = dict.fromkeys(processed.results, neighbour(x, *args)) | {
            "ours": processed.results["ours"]
        }
    for i, y in enumerate(processed.leaves("ours")):
        if isinstance(y, torch.Tensor):
            check_values(
                "result" if len(ours) == 1 else f"result {i}",
                processed,
                i,
                op.name in EXACT,
                runs.kernels > 1,
            )


def run_differentiable(
    op: OpInfo, sample: SampleInput, variant, x, args, kwargs, leaves
) -> list[torch.Tensor]:
    """Return the results that depend on the leaves."""
    results = tensors(
        sample.output_process_fn_grad(op.gradcheck_wrapper(variant, x, *args, **kwargs))
    )
    results = [r for r in results if r.requires_grad]
    if not leaves or not results:
        raise NotApplicable("nothing requires a gradient")
    return results


def check_gradients(op: OpInfo, runs: Runs, dtype: torch.dtype, stock: set[int] = frozenset()):
    """`stock`: indices of the operands that have a stock dtype in the format run too."""
    ours, single, exact = (runs.results[name] for name in ("ours", "single", "exact"))
    for i, (y, s) in enumerate(zip(ours, single, strict=True)):
        expect(
            (y is None) == (s is None),
            f"gradient {i}: expected {'none' if s is None else 'one'}, but got "
            f"{'none' if y is None else 'one'}",
        )
        if s is not None and i not in stock:
            check_tensor(f"gradient {i}", y, s, exact[i] if exact is not None else None, dtype)
    if runs.random or has_free_values(op):
        return
    keep = [i for i, y in enumerate(ours) if y is not None]
    runs = runs.part(keep)
    for i in range(len(keep)):
        check_values(f"gradient {keep[i]}", runs, i, exactly=False, composed=True)


def backward(op: OpInfo, sample: SampleInput, base: torch.dtype, dtype: torch.dtype):
    def call(x, args, kwargs, leaves):
        results = run_differentiable(op, sample, op.get_op(), x, args, kwargs, leaves)
        return torch.autograd.grad(
            results, leaves, [cotangent_like(r) for r in results], allow_unused=True
        )

    check_gradients(
        op, Runs(dtype, lambda world: sample_in_world(sample, base, world), call), dtype
    )


def gradgrad(op: OpInfo, sample: SampleInput, base: torch.dtype, dtype: torch.dtype):
    """Differentiate the gradients by the operands and by the cotangents."""
    stock = set()

    def call(x, args, kwargs, leaves):
        results = run_differentiable(op, sample, op.get_op(), x, args, kwargs, leaves)
        cotangents = [cotangent_like(r).requires_grad_() for r in results]
        # Eigenvalues of a format tensor are complex numbers of a stock dtype, and so are results
        # computed from them.
        stock.clear()
        stock.update(i for i, c in enumerate(cotangents, len(leaves)) if c.dtype is not dtype)
        first = torch.autograd.grad(
            results, leaves, cotangents, create_graph=True, allow_unused=True
        )
        first = [g for g in first if g is not None and g.requires_grad]
        if not first:
            raise NotApplicable("no gradient requires a gradient")
        # A gradient that does not depend on an operand is zero, however PyTorch reports it.
        return torch.autograd.grad(
            first,
            [*leaves, *cotangents],
            [cotangent_like(g) for g in first],
            materialize_grads=True,
        )

    runs = Runs(dtype, lambda world: sample_in_world(sample, base, world), call)
    check_gradients(op, runs, dtype, stock)


def inplace_backward(op: OpInfo, sample: SampleInput, base: torch.dtype, dtype: torch.dtype):
    """Compute the gradient through the in-place variant, applied to a copy of the first operand."""
    variant = op.get_inplace() or op.get_inplace_operator()
    if sample.broadcasts_input or not isinstance(sample.input, torch.Tensor):
        raise NotApplicable("no in-place variant")

    def in_place(x, *args, **kwargs):
        return variant(x.clone(), *args, **kwargs)

    def call(x, args, kwargs, leaves):
        results = run_differentiable(op, sample, in_place, x, args, kwargs, leaves)
        return torch.autograd.grad(
            results, leaves, [cotangent_like(r) for r in results], allow_unused=True
        )

    check_gradients(
        op, Runs(dtype, lambda world: sample_in_world(sample, base, world), call), dtype
    )


def strided_out(t: torch.Tensor) -> torch.Tensor:
    """Return a destination with gaps between its elements, which would show a write beside it."""
    return torch.zeros((*t.shape, 2), dtype=t.dtype, device=t.device)[..., 0]


def inplace(op: OpInfo, sample: SampleInput, base: torch.dtype, dtype: torch.dtype):
    """Check that in-place and out= variants return the functional variant's values in the tensor
    that they were given."""
    tried = False
    all_worlds = worlds(dtype)
    variants = [
        v
        for v in (op.get_inplace(), op.get_inplace_operator())
        if v is not None and not sample.broadcasts_input
    ]

    def functional(name="ours"):
        seed(SEED)
        x, args, kwargs, _ = sample_in_world(sample, base, all_worlds[name])
        return op(x, *args, **kwargs)

    def in_place(variant, world):
        seed(SEED)
        x, args, kwargs, _ = sample_in_world(sample, base, world)
        return x, variant(x, *args, **kwargs)

    def with_out(world, destination):
        seed(SEED)
        x, args, kwargs, _ = sample_in_world(sample, base, world)
        out = tree_map(
            lambda t: destination(t) if isinstance(t, torch.Tensor) else t, op(x, *args, **kwargs)
        )
        seed(SEED)
        x, args, kwargs, _ = sample_in_world(sample, base, world)
        return out, op(x, *args, **kwargs, out=out)

    def stock_does(run, *args) -> bool:
        try:
            given, returned = run(*args)
            if run is in_place:
                return isinstance(given, torch.Tensor) and given.dtype is returned.dtype
            if not free:
                expect_same("stock", given, functional("single"))
            return True
        except NotApplicable:
            raise
        except Exception:
            return False

    try:
        steps = all_worlds["stepped"].steps
        x, args, kwargs, _ = sample_in_world(sample, base, all_worlds["single"])
        with steps:
            op(x, *args, **kwargs)
    except Exception as error:
        raise NotApplicable("stock PyTorch refuses the sample") from error
    free = steps.random or has_free_values(op)
    for variant in variants:
        if stock_does(in_place, variant, all_worlds["single"]):
            tried = True
            given, returned = in_place(variant, all_worlds["ours"])
            expect(returned is given, "in place: expected the tensor itself as result")
            expect(
                given.dtype is dtype or given.dtype is not CONTAINER[dtype.itemsize],
                f"in place: expected dtype {dtype}, but got {given.dtype}",
            )
            if not free:
                expect_same("in place", given, functional().to(given.dtype))
    for destination in (torch.empty_like, strided_out) if op.supports_out else ():
        if stock_does(with_out, all_worlds["single"], destination):
            tried = True
            out, returned = with_out(all_worlds["ours"], destination)
            # Some return nothing.
            for given, back in zip(tensors(out), tensors(returned), strict=False):
                expect(given is back, "out=: expected the tensor itself as result")
            if not free:
                expect_same("out=", out, functional())
    if not tried:
        raise NotApplicable("no in-place or out= variant")


CHECKS = {
    "forward": forward,
    "backward": backward,
    "gradgrad": gradgrad,
    "inplace": inplace,
    "inplace_backward": inplace_backward,
}


def lacks(op: OpInfo, kind: str) -> str | None:
    """Return the database's reason why an entry has no case of a kind."""
    if kind == "errors":
        return None if op.error_inputs_func is not None else "no error inputs"
    variant = op.get_inplace() is not None or op.get_inplace_operator() is not None
    if kind == "inplace":
        return None if variant or op.supports_out else "no in-place or out= variant"
    if kind in DERIVATIVES and not op.supports_autograd:
        return "not differentiable"
    if kind == "gradgrad" and not op.supports_gradgrad:
        return "no second derivative"
    if kind == "inplace_backward" and not (variant and op.supports_inplace_autograd):
        return "no in-place variant with a derivative"
    return None


def wrong_inputs(op: OpInfo, dtype: torch.dtype) -> Iterator[Callable]:
    """Yield calls that must raise. Some have a wrong dtype that a cast of this package puts right;
    those only must not crash."""
    with quiet():
        seed(SEED)
        for error in op.error_inputs_func(op, here()):
            bad = error.sample_input
            operands = tensors((bad.input, bad.args, bad.kwargs))
            floats = {t.dtype for t in operands if t.is_floating_point()}
            storages, moved = {}, {}

            def move(x, storages=storages, moved=moved):
                if id(x) in moved:
                    return moved[id(x)]  # this output is also an input
                if (
                    not isinstance(x, torch.Tensor)
                    or not x.is_floating_point()
                    or x.layout is not torch.strided
                ):
                    # sparse operands stay: the operator must refuse them beside format tensors
                    return x
                # Operands that overlap in memory, such as an output and an input, must overlap in
                # the format dtype too.
                where = x.untyped_storage()
                if where.data_ptr() not in storages:
                    elements = torch.tensor([], dtype=x.dtype, device=x.device).set_(where)
                    storages[where.data_ptr()] = elements.to(dtype)
                moved[id(x)] = storages[where.data_ptr()].as_strided(
                    x.shape, x.stride(), x.storage_offset()
                )
                return moved[id(x)]

            def call(bad=bad, floats=floats, operands=operands, move=move, regex=error.error_regex):
                if len(floats) != 1 or any(t.is_complex() for t in operands):
                    raise NotApplicable("about several dtypes, or none of floating numbers")
                x, args, kwargs = tree_map(move, (bad.input, bad.args, bad.kwargs))
                try:
                    op(x, *args, **kwargs)
                except ERRORS as raised:
                    # PyTorch's own error says so for some
                    own = not re.search(regex, str(raised)) and any(
                        words in str(raised) for words in blame.WORDS
                    )
                    expect(not own, f"expected an error like {regex!r}, but got {raised}")
                    return
                about_dtype = re.search(
                    r"dtype|type|Float|Double|Half|Long|Int|float|complex|implemented", regex
                )
                expect(bool(about_dtype), f"expected an error like {regex!r}, but got a result")

            yield call


def run_entry(op: OpInfo, dtype: torch.dtype, kind: str, most: int | None = None) -> Outcome:
    """Run one entry in one dtype, for one of KINDS, with at most `most` samples."""
    calls: Iterator[Callable]
    try:
        if reason := lacks(op, kind):
            return Outcome("n/a", reason)
        if kind == "errors":
            calls = wrong_inputs(op, dtype)
        else:
            base = base_dtype(op)
            calls = (
                lambda s=s: CHECKS[kind](op, s, base, dtype)
                for s in samples_of(op, base, kind in DERIVATIVES, most)
                if not is_complex(s)
            )
    except NotApplicable as error:
        return Outcome("n/a", str(error))
    with identities(dtype) if op.name.startswith("masked.") else contextlib.nullcontext():
        return summary(calls, dtype)

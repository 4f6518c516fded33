"""One entry of PyTorch's optimizer database in a format dtype: for-loop, foreach and fused forms,
state_dict in between."""

import copy
import io
from collections.abc import Callable, Iterator
from unittest import mock

import torch
from bounds import CONTAINER, ordered_codes
from in_tree import RAISES_EPS
from runs import Outcome, Runs, check_tensor, check_values, expect, expect_same, summary, tensors
from samples import SEED, NotApplicable, World, here, quiet
from torch.testing._internal.common_optimizers import OptimizerInfo, OptimizerInput

FORMS = ("for-loop", "foreach", "fused")
KINDS = ("forms", "state_dict")
STEPS = 4
# Codes by which the parameters of two forms may differ. Each of STEPS steps rounds several
# intermediate values, at different places in each form, and a format's precision varies with the
# value.
FORM_CODES = 16
# The fused form of these has the bits of this package's for-loop. It rounds and leaves the range
# where PyTorch's for-loop does. For lists, PyTorch's capturable step has another formula.
ONE_PASS = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW)


def parameters(info: OptimizerInfo, world: World) -> list[torch.nn.Parameter]:
    """Return two parameters of about 1, as matrices only where the optimizer wants them."""
    generator = torch.Generator().manual_seed(SEED)
    shapes = ((5, 3), (3, 4)) if info.name == "Muon" else ((5, 3), (4,))
    made = []
    for shape in shapes:
        values = torch.randn(shape, generator=generator).to(world.dtype)
        made.append(torch.nn.Parameter(values.to(world.stock) if world.stock else values))
    return made


def gradients(made: list[torch.nn.Parameter], world: World) -> list[list[torch.Tensor]]:
    """Return dense gradients for every step, the same for all forms: gradients of their own
    parameters would drift apart."""
    generator = torch.Generator().manual_seed(SEED + 1)
    return [
        [torch.randn(p.shape, generator=generator).to(world.dtype).to(p.dtype) for p in made]
        for _ in range(STEPS)
    ]


def run_steps(
    info: OptimizerInfo,
    optimizer: torch.optim.Optimizer,
    made: list,
    given: list[list[torch.Tensor]],
):
    for step in given:
        if info.step_requires_closure:

            def closure():
                optimizer.zero_grad()
                loss = sum(((p - 0.5) ** 2).sum() for p in made)
                loss.backward()
                return loss

            optimizer.step(closure)
        else:
            for p, gradient in zip(made, step, strict=True):
                p.grad = gradient.clone()
            optimizer.step()


def settings(info: OptimizerInfo, form: str, given: OptimizerInput) -> dict:
    if form == "fused" and (
        "fused" not in info.supported_impls or here() not in info.supports_fused_on
    ):
        raise NotApplicable("no fused form on this device")
    if form == "foreach" and "foreach" not in info.supported_impls:
        raise NotApplicable("no foreach form")
    chosen = {k: copy.deepcopy(v) for k, v in given.kwargs.items()}
    for name in ("foreach", "fused"):
        if name in info.supported_impls:
            chosen[name] = form == name
    return chosen


def state_of(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return tensors(list(optimizer.state.values()))


def one_form(
    info: OptimizerInfo, given: OptimizerInput, form: str, dtype: torch.dtype
) -> list[torch.Tensor]:
    """Check that parameters and state keep the dtypes that stock tensors keep, and that values
    agree with float64. Return the parameters."""

    def prepare(world):
        made = parameters(info, world)
        return made, gradients(made, world)

    def call(made, steps):
        reference = made[0].dtype is not dtype
        chosen = settings(info, form, given)
        if (
            reference
            and (form == "fused" or chosen.get("capturable"))
            and info.optim_cls in ONE_PASS
        ):
            chosen = settings(info, "for-loop", given)
        optimizer = info.optim_cls(made, **chosen)
        run_steps(info, optimizer, made, steps)
        return [p.detach() for p in made], state_of(optimizer)

    runs = Runs(dtype, prepare, call)
    for part, name in ((0, "parameter"), (1, "state")):
        part = runs.part(part)
        ours, single, exact = (part.leaves(world) for world in ("ours", "single", "exact"))
        if name == "state" and info.step_requires_closure:
            # The number of stored steps of a line search depends on the precision.
            single, exact = (
                [t.to(d) if t.dtype is dtype else t for t in ours]
                for d in (torch.float32, torch.float64)
            )
            # float32 may be intended
            leaks = dtype.itemsize < 4 and any(t.dtype is CONTAINER[dtype.itemsize] for t in ours)
            expect(not leaks, "state: expected no tensor of the container's dtype")
        expect(
            len(ours) == len(single),
            f"expected {len(single)} tensors of {name}, but got {len(ours)}",
        )
        for i, (y, s, e) in enumerate(zip(ours, single, exact, strict=True)):
            check_tensor(f"{name} {i}", y, s, e, dtype)
            if name == "parameter":
                check_values(f"{name} {i}", part, i, exactly=False, composed=True)
    return runs.results["ours"][0]


def forms(info: OptimizerInfo, given: OptimizerInput, dtype: torch.dtype):
    """Compare every form that stock PyTorch has for these settings."""
    reached = {}
    for form in FORMS:
        try:
            reached[form] = one_form(info, given, form, dtype)
        except NotApplicable:
            continue
    if not reached:
        raise NotApplicable("stock PyTorch refuses the settings")
    first, *others = reached
    for form in others:
        for a, b in zip(reached[first], reached[form], strict=True):
            # Fused forms stay within the range longer, because they compute in float32 throughout.
            inside = a.isfinite() & b.isfinite()
            expect(
                form == "fused" or torch.equal(a.isfinite(), b.isfinite()),
                f"{first} and {form} leave the range in different places",
            )
            codes = ((ordered_codes(a) - ordered_codes(b)).abs() * inside).max().item()
            expect(
                codes <= FORM_CODES,
                f"{first} and {form} are {codes} codes apart, {a.tolist()} and {b.tolist()}",
            )


def stopped_and_straight(info: OptimizerInfo, given: OptimizerInput, form: str, dtype: torch.dtype):
    """Return (parameters, state) after a stop half way through with a file and new objects, and
    after a run without a stop."""
    world = World(dtype, None)
    straight, stopped = parameters(info, world), parameters(info, world)
    steps = gradients(straight, world)
    optimizer = info.optim_cls(straight, **settings(info, form, given))
    run_steps(info, optimizer, straight, steps)
    before = info.optim_cls(stopped, **settings(info, form, given))
    run_steps(info, before, stopped, steps[: STEPS // 2])
    file = io.BytesIO()
    torch.save((before.state_dict(), [p.detach() for p in stopped]), file)
    file.seek(0)
    saved, values = torch.load(file, weights_only=True)
    continued = [torch.nn.Parameter(v) for v in values]
    after = info.optim_cls(continued, **settings(info, form, given))
    after.load_state_dict(saved)
    run_steps(info, after, continued, steps[STEPS // 2 :])
    return (continued, state_of(after)), (straight, state_of(optimizer))


def state_dict(info: OptimizerInfo, given: OptimizerInput, dtype: torch.dtype):
    """Compare the bits after a stop with those without one, where stock bfloat16 has them too.
    NAdam and ASGD keep float32 numbers that loading casts to the parameters' dtype."""
    ran = False
    for form in FORMS:
        try:
            expect_same("stock", *stopped_and_straight(info, given, form, torch.bfloat16))
        except Exception:
            continue
        ran = True
        expect_same(f"{form}, after loading", *stopped_and_straight(info, given, form, dtype))
    if not ran:
        raise NotApplicable("not the same bits in stock bfloat16 either")


def run_entry(info: OptimizerInfo, dtype: torch.dtype, kind: str) -> Outcome:
    if info.only_supports_sparse_grads:
        return Outcome("n/a", "sparse gradients only")
    check = {"forms": forms, "state_dict": state_dict}[kind]

    def calls() -> Iterator[Callable]:
        for given in info.optim_inputs_func(device=here()):
            yield lambda given=given: check(info, given, dtype)

    # The reference takes eps as given.
    as_given = mock.patch(f"{RAISES_EPS}.with_eps", lambda dtype, settings, name: settings)
    with as_given, quiet():
        return summary(calls(), dtype)

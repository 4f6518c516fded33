"""One entry of PyTorch's module database in a format dtype: forward, backward, training and
evaluation, state_dict."""

import copy
import io
import itertools
from collections.abc import Callable, Iterator

import torch
from infinities import attention_masks
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
from samples import SEED, NotApplicable, World, here, in_world, quiet, seed
from torch.testing._internal.common_modules import ModuleInfo, ModuleInput
from torch.utils._pytree import tree_leaves, tree_map

KINDS = ("forward", "backward", "state_dict")


def built(info: ModuleInfo, made: ModuleInput, training: bool) -> torch.nn.Module:
    """Build the module in float32. Lazy modules get their sizes from their input."""
    seed(SEED)
    module = info.module_cls(*made.constructor_input.args, **made.constructor_input.kwargs).to(
        here()
    )
    module.train(training)
    if info.is_lazy:
        with torch.no_grad():
            module(*made.forward_input.args, **made.forward_input.kwargs)
    return module


def module_in_world(module: torch.nn.Module, world: World) -> torch.nn.Module:
    ours = copy.deepcopy(module).to(world.dtype)
    return ours if world.stock is None else ours.to(world.stock)


def arguments_in_world(made: ModuleInput, world: World):
    leaves = []

    def move(x):
        if not isinstance(x, torch.Tensor):
            return x
        moved = in_world(x, torch.float32, world)
        if moved.requires_grad:
            leaves.append(moved)
        return moved

    args, kwargs = tree_map(move, (list(made.forward_input.args), made.forward_input.kwargs))
    return args, kwargs, leaves


def check_all(name: str, runs: Runs, dtype: torch.dtype):
    leaves = {world: runs.leaves(world) for world in ("ours", "single", "exact")}
    expect(
        len(leaves["ours"]) == len(leaves["single"]),
        f"expected {len(leaves['single'])} {name}s, but got {len(leaves['ours'])}",
    )
    for i, (y, s, e) in enumerate(
        zip(leaves["ours"], leaves["single"], leaves["exact"], strict=True)
    ):
        if isinstance(s, torch.Tensor):
            check_tensor(f"{name} {i}", y, s, e, dtype)
            if not runs.random:
                check_values(f"{name} {i}", runs, i, exactly=False, composed=True)


def forward(info: ModuleInfo, made: ModuleInput, training: bool, dtype: torch.dtype):
    module = built(info, made, training)

    def prepare(world: World):
        return (module_in_world(module, world), *arguments_in_world(made, world)[:2])

    def call(ours, args, kwargs):
        results = ours(*args, **kwargs)
        return results, list(ours.buffers())

    runs = Runs(dtype, prepare, call)
    check_all("result", runs, dtype)
    if not runs.random:
        # A tensor that a module makes in a dtype has that dtype, whatever its values are.
        with_dtype = {**made.constructor_input.kwargs, "dtype": dtype}
        try:
            info.module_cls(
                *made.constructor_input.args,
                **{**made.constructor_input.kwargs, "dtype": torch.float64},
            )
        except TypeError:
            return
        for name, parameter in info.module_cls(
            *made.constructor_input.args, **with_dtype
        ).named_parameters():
            expect(
                parameter.dtype is dtype,
                f"{name} of a module made with dtype=: expected dtype {dtype}, but got "
                f"{parameter.dtype}",
            )


def backward(info: ModuleInfo, made: ModuleInput, training: bool, dtype: torch.dtype):
    module = built(info, made, training)

    def prepare(world: World):
        ours = module_in_world(module, world)
        args, kwargs, leaves = arguments_in_world(made, world)
        return ours, args, kwargs, [*leaves, *(p for p in ours.parameters() if p.requires_grad)]

    def call(ours, args, kwargs, leaves):
        results = [r for r in tensors(ours(*args, **kwargs)) if r.requires_grad]
        if not results or not leaves:
            raise NotApplicable("nothing requires a gradient")
        gradients = torch.autograd.grad(
            results, leaves, [cotangent_like(r) for r in results], allow_unused=True
        )
        return ["none" if g is None else g for g in gradients]

    runs = Runs(dtype, prepare, call)
    nones = [
        [x if x == "none" else "" for x in runs.leaves(w) if not isinstance(x, torch.Tensor)]
        for w in ("ours", "single")
    ]
    expect(
        nones[0] == nones[1],
        f"expected {len(nones[1])} leaves without a gradient, but got {len(nones[0])}",
    )
    check_all("gradient", runs, dtype)


def state_dict(info: ModuleInfo, made: ModuleInput, training: bool, dtype: torch.dtype):
    """A round trip through a file keeps the bits. float32 files load into format modules and back,
    and dtypes are kept."""
    module = built(info, made, training)
    ours = module_in_world(module, World(dtype, None))
    file = io.BytesIO()
    torch.save(ours.state_dict(), file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    fresh = module_in_world(built(info, made, training), World(dtype, None))
    for state, into in ((saved, fresh), (module.state_dict(), fresh), (ours.state_dict(), module)):
        dtypes = {
            name: t.dtype for name, t in into.state_dict().items() if isinstance(t, torch.Tensor)
        }
        into.load_state_dict(state)
        for name, kept in dtypes.items():
            expect(
                into.state_dict()[name].dtype is kept,
                f"{name}: expected dtype {kept} to stay, but got {into.state_dict()[name].dtype}",
            )
    expect_same(
        "loaded state",
        [t for t in tree_leaves(dict(fresh.state_dict()))],
        [t for t in tree_leaves(dict(ours.state_dict()))],
    )
    args, kwargs, _ = arguments_in_world(made, World(dtype, None))
    results = []
    for each in (ours, fresh):
        seed(SEED)
        results.append(copy.deepcopy(each).eval()(*args, **kwargs))
    expect_same("result after loading", *results)


CHECKS = {"forward": forward, "backward": backward, "state_dict": state_dict}


def run_entry(info: ModuleInfo, dtype: torch.dtype, kind: str, most: int | None = None) -> Outcome:
    def calls() -> Iterator[Callable]:
        for training in (True, False):
            seed(SEED)
            inputs = info.module_inputs_func(
                info,
                device=here(),
                dtype=torch.float32,
                requires_grad=kind == "backward",
                training=training,
            )
            for made in itertools.islice(inputs, most):
                if made.forward_input is not None:
                    yield lambda made=made, training=training: CHECKS[kind](
                        info, made, training, dtype
                    )

    with quiet(), attention_masks(dtype):
        return summary(calls(), dtype)

"""Samples of PyTorch's operator database in four worlds: the format dtype, and the stock runs for
comparison."""

import contextlib
import dataclasses
import itertools
import random
import warnings
from collections.abc import Iterator

import numpy
import torch
from bounds import StepRounding
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils._pytree import tree_leaves, tree_map

import torch_dtypes
from torch_dtypes import _C

# Samples are made in the first of these dtypes that the entry supports.
BASES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


SEED = 20


def here() -> str:
    """Return the type of the device of the tests' tensors (test/devices.py). The databases are
    asked for samples on it."""
    return torch.empty(()).device.type


def only_simulated(error: Exception) -> bool:
    """Tell whether the error names something that a simulated GPU (test/simulated_gpu) lacks and a
    real one has."""
    return str(error).startswith("simulated GPU: ")


def seed(number: int):
    """Call torch.manual_seed only for the devices in use: it queues a note, with a stack trace, for
    every device that is absent."""
    torch.default_generator.manual_seed(number)
    if here() == "cuda":
        torch.cuda.manual_seed(number)
    random.seed(number)
    numpy.random.seed(number)


class NotApplicable(Exception):
    """An entry or a sample that says nothing about a real dense format."""


@dataclasses.dataclass
class World:
    """One run of one sample. `stock` is None in the format's own world."""

    dtype: torch.dtype
    stock: torch.dtype | None
    steps: StepRounding | None = None

    def context(self):
        return self.steps or contextlib.nullcontext()


def worlds(dtype: torch.dtype) -> dict[str, World]:
    return {
        "single": World(dtype, torch.float32),
        "exact": World(dtype, torch.float64),
        "stepped": World(dtype, torch.float64, StepRounding(dtype)),
        "ours": World(dtype, None),
    }


@contextlib.contextmanager
def quiet():
    """Silence stock operators, which warn of beta states and deprecations. The project treats
    warnings as errors, but these are not its own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def base_dtype(op: OpInfo) -> torch.dtype:
    for base in BASES:
        if op.supports_dtype(base, here()):
            return base
    if not op.dtypes:
        raise NotApplicable("no kernel")
    raise NotApplicable("complex only" if all(d.is_complex for d in op.dtypes) else "integers only")


def flat(t: torch.Tensor) -> torch.Tensor:
    """Return the elements between a tensor's first and its last one as they are in memory, whatever
    its strides."""
    extent = (
        1 + sum((size - 1) * stride for size, stride in zip(t.shape, t.stride(), strict=True))
        if t.numel()
        else 0
    )
    return t.as_strided((extent,), (1,))


def to_nearest(dtype: torch.dtype) -> torch.dtype:
    """Return the format that rounds to nearest. Every world must have the same operands, but
    stochastic rounding would draw new ones in each."""
    stochastic = torch_dtypes.format_of(dtype).rounding == _C.Rounding.stochastic
    return torch_dtypes.with_rounding(dtype, "nearest_even") if stochastic else dtype


def in_world(t: torch.Tensor, base: torch.dtype, world: World) -> torch.Tensor:
    """Return a fresh tensor with the same sizes and strides. Tensors of the base dtype get values
    of the format dtype, all others stay as they are."""
    if t.layout is not torch.strided or t.is_nested or t.is_quantized:
        raise NotApplicable("no dense tensor")
    if t.dtype is not base:
        if t.is_complex():
            raise NotApplicable("complex operands")
        return t.detach().clone()
    with torch.no_grad():
        elements = flat(t.detach()).to(to_nearest(world.dtype))
        # Not a view of the elements: autograd and in-place operators treat views otherwise.
        made = torch.empty_strided(
            t.shape, t.stride(), dtype=world.stock or world.dtype, device=t.device
        )
        flat(made).copy_(elements)
    return made.requires_grad_() if t.requires_grad else made


# These tolerances default to the eps of the dtype. Stock runs get the eps of the format, since they
# stand for it.
TOLERANCES = {
    "linalg.matrix_rank": "rtol",
    "linalg.pinv": "rtol",
    "linalg.lstsq": "rcond",
    "pinverse": "rcond",
}
DEFAULT_TOLERANCE = object()


def ask_for_default_tolerance(op: OpInfo, sample: SampleInput):
    name = TOLERANCES.get(op.name)
    given = [
        x
        for n, x in sample.kwargs.items()
        if n in ("atol", "rtol", "tol", "rcond") and x is not None
    ]
    given += [x for x in sample.args if isinstance(x, float)]
    if name and not given and op.variant_test_name not in ("singular", "grad_oriented"):
        sample.kwargs[name] = DEFAULT_TOLERANCE


def sample_in_world(sample: SampleInput, base: torch.dtype, world: World):
    """Return input, args and kwargs in a world, and the leaves among them: the tensors that require
    a gradient."""
    leaves = []

    def move(x):
        if isinstance(x, torch.Tensor):
            moved = in_world(x, base, world)
            if moved.requires_grad:
                leaves.append(moved)
            return moved
        if x is base:
            return world.stock or world.dtype
        return x

    moved = tree_map(move, (sample.input, sample.args, sample.kwargs))
    for name, value in [*moved[2].items()]:
        if value is DEFAULT_TOLERANCE:
            del moved[2][name]
            if world.stock:
                moved[2][name] = min(
                    min(sample.input.shape[-2:]) ** 0.5 * torch.finfo(world.dtype).eps, 0.5
                )
    return (*moved, leaves)


def is_complex(sample: SampleInput) -> bool:
    """Tell whether a dtype or a number among the arguments is complex."""
    leaves = tree_leaves((sample.input, sample.args, sample.kwargs))
    return any(
        (isinstance(x, torch.dtype) and x.is_complex) or isinstance(x, complex) for x in leaves
    )


def is_undetermined(sample: SampleInput) -> bool:
    """Tell whether it is linalg.lstsq by gelsy. PyTorch does not initialise its pivots, on which
    rank and solution depend (test_tolerances has that driver)."""
    return sample.kwargs.get("driver") == "gelsy"


def size_of(sample: SampleInput) -> int:
    return sum(
        x.numel()
        for x in tree_leaves((sample.input, sample.args, sample.kwargs))
        if isinstance(x, torch.Tensor)
    )


def samples_of(
    op: OpInfo, base: torch.dtype, requires_grad: bool, most: int | None
) -> Iterator[SampleInput]:
    """Return the samples that the database makes first: all of them, or the `most` smallest ones
    that have elements."""
    with quiet(), torch.no_grad():
        seed(SEED)
        # All samples are drawn at once, since runs in between would change the random ones.
        # op.sample_inputs would search the whole stack for the calling test.
        inputs = (
            s
            for s in op.sample_inputs_func(op, here(), base, requires_grad)
            if not is_undetermined(s)
        )
        try:
            made = list(itertools.islice(inputs, None if most is None else 24))
        except NotImplementedError as error:
            if not only_simulated(error):
                raise
            made = []  # sparse operands
        chosen = made if most is None or not made else some_of(made, most)
        for sample in chosen:
            ask_for_default_tolerance(op, sample)
    yield from chosen


def some_of(first: list[SampleInput], most: int) -> list[SampleInput]:
    filled = [s for s in first if size_of(s) > 1] or first
    # Sizes differ little within an entry, and the smallest samples are scalars; spread the choice
    # over them.
    filled.sort(key=size_of)
    middle = filled[: max(most, len(filled) * 2 // 3)]
    return middle[:: max(1, len(middle) // most)][:most]


def alias_of(result: torch.Tensor, operands) -> bool:
    """Tell whether a result is in the storage of an operand."""
    if not result.numel():
        return False
    where = result.untyped_storage().data_ptr()
    return any(
        isinstance(x, torch.Tensor) and x.untyped_storage().data_ptr() == where
        for x in tree_leaves(operands)
    )

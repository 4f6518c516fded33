"""Run a computation in a format dtype and in stock dtypes, and compare the results."""

import copy
import dataclasses
import re
from collections.abc import Callable, Iterable

import torch
from bounds import CONTAINER, mismatch, slack
from samples import SEED, NotApplicable, World, here, only_simulated, quiet, seed, worlds
from torch.utils._pytree import tree_leaves

import torch_dtypes


@dataclasses.dataclass
class Outcome:
    """`status`: pass, fails, refused or n/a (nothing to run). `samples`: how many ran; `bad`: how
    many of them did not pass."""

    status: str
    reason: str = ""
    samples: int = 0
    bad: int = 0

    def __str__(self):
        return self.status + (f": {self.reason}" if self.reason else "")


class Mismatch(Exception):
    """A result in the format dtype that differs from the expected one."""


def tensors(tree) -> list[torch.Tensor]:
    return [x for x in tree_leaves(tree) if isinstance(x, torch.Tensor)]


def first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0] if lines else ""
    return text if isinstance(error, Mismatch) else f"{type(error).__name__}: {text}"


def is_refusal(error: BaseException, dtype: torch.dtype) -> bool:
    """Tell whether an error comes from this package: it names the number format, or what it
    expected instead."""
    name = torch_dtypes.format_of(dtype) and str(dtype).removeprefix("torch.")
    return (
        not isinstance(error, Mismatch)
        and re.search(rf"\b{re.escape(name)}\b|number format", str(error)) is not None
    )


class Runs:
    """Results of one sample in all worlds: `call(*prepare(world))`. A stock run that fails makes
    the sample void."""

    def __init__(self, dtype: torch.dtype, prepare: Callable[[World], tuple], call: Callable):
        self.worlds = worlds(dtype)
        self.results, self.operands = {}, {}
        for name in ("single", "exact", "stepped", "ours"):
            world = self.worlds[name]
            self.operands[name] = prepare(world)
            seed(SEED)
            try:
                with world.context():
                    self.results[name] = call(*self.operands[name])
            except Exception as error:
                if isinstance(error, NotApplicable) or name == "ours":
                    raise
                if name == "single":
                    raise NotApplicable("stock PyTorch refuses the sample") from error
                if name == "stepped" and self.results["exact"] is not None:
                    # For instance, an index computed from rounded coordinates may be out of range.
                    raise NotApplicable(
                        "no bound: the stock run does not survive the rounding between its kernels"
                    ) from error
                # An operator without a float64 kernel is compared with its float32 run.
                self.results[name] = None
        self.random = self.worlds["stepped"].steps.random
        self.kernels = self.worlds["stepped"].steps.kernels

    def part(self, which) -> "Runs":
        """Return the same runs restricted to one item of their results, or to the items with the
        given numbers."""
        part = copy.copy(self)
        pick = (
            (lambda r: [r[i] for i in which]) if isinstance(which, list) else (lambda r: r[which])
        )
        part.results = {
            name: pick(r) if r is not None else None for name, r in self.results.items()
        }
        return part

    def leaves(self, name: str) -> list:
        return tree_leaves(self.results[name]) if self.results[name] is not None else None


def expected_dtype(
    single: torch.Tensor, exact: torch.Tensor | None, dtype: torch.dtype
) -> torch.dtype:
    """Return the dtype a result must have. A result that changes from float32 to float64 with its
    operands must have the format dtype; another dtype is fixed."""
    if exact is not None and single.dtype is not exact.dtype:
        if single.is_complex():
            return torch.complex64 if torch_dtypes.format_of(dtype).fits_float else torch.complex128
        return dtype
    return dtype if exact is None and single.is_floating_point() else single.dtype


def expect(condition: bool, what: str):
    if not condition:
        raise Mismatch(what)


def check_tensor(name: str, ours, single, exact, dtype: torch.dtype, unrounded: bool = False):
    want = expected_dtype(single, exact, dtype)
    if unrounded and want is dtype:
        want = torch.float32 if torch_dtypes.format_of(dtype).fits_float else torch.float64
    got = ours.dtype
    leak = " (the container)" if got is CONTAINER[dtype.itemsize] and got is not want else ""
    expect(got is want, f"{name}: expected dtype {want}, but got {got}{leak}")
    expect(
        ours.shape == single.shape,
        f"{name}: expected shape {tuple(single.shape)}, but got {tuple(ours.shape)}",
    )
    expect(
        ours.device == single.device,
        f"{name}: expected a tensor on {single.device}, but got one on {ours.device}",
    )
    expect(
        ours.layout is single.layout,
        f"{name}: expected layout {single.layout}, but got {ours.layout}",
    )


def check_values(name: str, runs: Runs, i: int, exactly: bool, composed: bool):
    """Check the values of leaf `i` of the results."""
    # Some results are on the CPU wherever their operands are. While the copy is under way, reading
    # one from the tests' device waits for it.
    ours, single, exact, stepped = (
        runs.leaves(world)[i].to(here()) if runs.leaves(world) is not None else None
        for world in ("ours", "single", "exact", "stepped")
    )
    if exact is None:
        exact = single
    if ours.layout is not torch.strided or exact.layout is not torch.strided:
        return
    with torch.no_grad():
        if not (exact.is_floating_point() or exact.is_complex()):
            same = (
                torch.equal(ours, exact)
                or (stepped is not None and torch.equal(ours, stepped))
                or torch.equal(ours, single)
            )
            expect(
                same,
                f"{name}: expected the values {exact.flatten()[:6].tolist()}, but got "
                f"{ours.flatten()[:6].tolist()}",
            )
            return
        parts = [(ours, exact, single, stepped)]
        if exact.is_complex():
            split = [
                torch.view_as_real(t.detach().resolve_conj().resolve_neg())
                if t is not None
                else None
                for t in parts[0]
            ]
            parts = [split]
        for y, e, s, r in parts:
            e = e.double()
            bound = (
                0.0
                if exactly
                else slack(e, s, r, runs.kernels, runs.worlds["ours"].dtype, composed)
            )
            line = mismatch(y, e, None if exactly else s, None if exactly else r, bound)
            expect(line is None, f"{name}: {line}")


def cotangent_like(t: torch.Tensor) -> torch.Tensor:
    """Return fixed numbers of both signs that every format has, none of them zero."""
    pattern = torch.tensor([1.0, -0.5, 2.0, 0.5, -1.0])
    return pattern[torch.arange(t.numel()) % 5].reshape(t.shape).to(t.dtype)


def expect_same(name: str, got, want):
    for g, w in zip(tensors(got), tensors(want), strict=True):
        expect(g.dtype is w.dtype, f"{name}: expected dtype {w.dtype}, but got {g.dtype}")
        expect(
            g.shape == w.shape, f"{name}: expected shape {tuple(w.shape)}, but got {tuple(g.shape)}"
        )
        if torch_dtypes.is_format_dtype(g.dtype) or not (g.is_floating_point() or g.is_complex()):
            same = ((g.double() == w.double()) | (g.isnan() & w.isnan())).all()
        else:
            # Stock kernels take different paths for different strides.
            same = torch.allclose(g, w, equal_nan=True)
        expect(
            same,
            f"{name}: expected the values of the functional variant, {w.flatten()[:4].tolist()}, "
            f"but got {g.flatten()[:4].tolist()}",
        )


def summary(calls: Iterable[Callable], dtype: torch.dtype) -> Outcome:
    """Summarise many samples as one outcome. A failure counts more than a refusal."""
    outcome, void, found = Outcome("pass"), "no samples", {}
    with quiet():
        for call in calls:
            try:
                call()
            except NotApplicable as error:
                void = str(error)
                continue
            except Exception as error:
                if only_simulated(error):
                    void = str(error)
                    continue
                outcome.bad += 1
                found.setdefault(
                    "refused" if is_refusal(error, dtype) else "fails", first_line(error)
                )
            outcome.samples += 1
    for status in ("fails", "refused"):
        if status in found:
            outcome.status, outcome.reason = status, found[status]
            break
    return outcome if outcome.samples else Outcome("n/a", void)

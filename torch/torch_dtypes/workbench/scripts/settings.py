"""The setting of a script: its default dtype, and the arithmetic of its operations."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from ... import _C
from ...formats import naming
from ...formats.arguments import few_bits
from ...formats.dtypes import dtype as dtype_of
from ...formats.dtypes import format_of
from ...fuzzing import fuzzy
from ...policies.accumulation import accumulation_block
from ...policies.rounding import rounding_block


def draws(mode: str) -> bool:
    """Return whether a rounding mode draws random words."""
    return bool(few_bits(mode)[0]) or mode in naming.DRAWING_MODES


@dataclass(frozen=True)
class Setting:
    """The setting of one run.

    Attributes:
        dtype: the name of the default dtype; None: the stock one.
        mode: the rounding of every operation, in the default dtype or else in float32; None: the
            dtypes' own.
        accumulate: the policy that adds up products, in the default dtype or else in float32.
        level: what ``fuzzy`` rounds: results of operators or of instructions.
    """

    dtype: str | None = None
    mode: str | None = None
    accumulate: str | None = None
    level: str = "operator"

    @property
    def is_random(self) -> bool:
        own = self.dtype and format_of(dtype_of(self.dtype)).rounding.name
        return draws(self.mode or own or "nearest_even")

    def check_policy(self) -> None:
        """Add up one product. Raises: ValueError, RuntimeError: the dtype lacks the policy."""
        if self.accumulate:
            with self.applied(0):
                torch.ones(1, 2) @ torch.ones(2, 1)

    @contextlib.contextmanager
    def applied(self, seed: int) -> Iterator[Callable[[], bool]]:
        """Apply the setting in a block, and yield a function that tells whether the block's
        rounding or policy was used. Rounding draws from a generator of its own, so that the
        script's random numbers do not depend on it."""
        with contextlib.ExitStack() as stack:
            source = _C.set_word_source(torch.Generator().manual_seed(seed))
            stack.callback(_C.set_word_source, source)
            if self.dtype:
                yield self._apply_to_dtype(stack)
            elif self.mode or self.accumulate:
                mode = self.mode or "nearest_even"
                block = fuzzy(mode=mode, level=self.level, accumulate=self.accumulate, seed=seed)
                stack.enter_context(block)
                yield lambda: bool(block.operations)
            else:
                yield lambda: True

    def _apply_to_dtype(self, stack: contextlib.ExitStack) -> Callable[[], bool]:
        stack.callback(torch.set_default_dtype, torch.get_default_dtype())
        torch.set_default_dtype(dtype_of(self.dtype))
        if self.mode:
            stack.enter_context(rounding_block(self.mode))
        if self.accumulate:
            stack.enter_context(accumulation_block(self.accumulate))
        before = _C.override_uses()
        asked = (self.mode, self.accumulate)
        return lambda: all(
            setting is None or new > old
            for setting, old, new in zip(asked, before, _C.override_uses(), strict=True)
        )

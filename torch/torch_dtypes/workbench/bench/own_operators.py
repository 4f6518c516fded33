"""The time of each operator in a training step, by PyTorch's profiler."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable

from torch.profiler import ProfilerActivity, profile, record_function

PYTHON = "(Python)"  # between operators
_OWN = "formats::"  # decoding and encoding count to the operator that needs them


def operator_seconds(case: dict, run_step: Callable, steps: int) -> dict[str, float]:
    """Return the median seconds of each operator over some steps, the most costly first.

    An operator's time includes decoding and encoding, but no other operator that it calls. Small
    operators take longer under the profiler, so these are shares rather than times.
    """
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        for step in range(steps):
            with record_function(f"step {step}"):
                run_step(case, lambda name: None)
    by_step: dict[str, Counter[str]] = {f"step {step}": Counter() for step in range(steps)}
    for event in profiler.events():
        owner = root = event
        while root.cpu_parent is not None:
            if owner.name.startswith(_OWN):
                owner = root.cpu_parent
            root = root.cpu_parent
        if root.name in by_step:  # not the profiler's own
            name = PYTHON if owner is root else owner.name
            by_step[root.name][name] += event.self_cpu_time_total * 1e-6
    seconds = {
        name: statistics.median(times[name] for times in by_step.values())
        for name in set().union(*by_step.values())
    }
    return dict(sorted(seconds.items(), key=lambda item: -item[1]))

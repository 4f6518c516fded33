"""A pytest plugin that thins out functions whose cases cross several lists: `make test` runs each
value of each list, and `make test-rest` the other combinations."""

import re
import zlib

import pytest


def choose_crossed(cases):
    """Choose cases so that each value of each stacked list comes up at least once.

    Args:
        cases: for each case of one function, its name and its value in each list.

    Returns:
        set[str]: the names of the chosen cases. Pairs of values are drawn by a hash of the name, so
        that the choice is the same in every process.
    """
    seen, chosen = set(), set()
    for name in sorted(cases, key=lambda name: zlib.crc32(name.encode())):
        values = set(enumerate(cases[name]))
        if not values <= seen:
            seen |= values
            chosen.add(name)
    return chosen


def find_left_out(expression):
    """Return the marks that an expression of `-m` leaves out, where it does nothing else."""
    only = re.fullmatch(r"not \w+( and not \w+)*", expression)
    return set(re.findall(r"not (\w+)", expression)) if only else set()


def _names(marks):
    return {mark.name for mark in marks}


@pytest.hookimpl(wrapper=True)
def pytest_generate_tests(metafunc):
    """Mark as `whole` what crosses lists: a case stays if one of its values comes up nowhere else.
    Cases that `-m` leaves out are not made, which spares a fifth of collection."""
    yield
    calls = metafunc._calls  # pytest has no public name for them, nor for the values of lists
    own = _names(metafunc.definition.iter_markers())
    if not own & {"slow", "whole"}:
        cases = {
            f"{metafunc.definition.nodeid}[{call.id}]": call
            for call in calls
            if not _names(call.marks) & {"slow", "whole"}
        }
        chosen = choose_crossed({name: call._idlist for name, call in cases.items()})
        for name, call in cases.items():
            if len(call._idlist) > 1 and name not in chosen:
                call.marks.append(pytest.mark.whole.mark)
    if left_out := find_left_out(metafunc.config.option.markexpr):
        kept = [call for call in calls if not left_out & (own | _names(call.marks))]
        metafunc._calls = kept or calls[:1]  # pytest deselects the one

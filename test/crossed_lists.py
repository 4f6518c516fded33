"""A pytest plugin that thins out functions whose cases cross several lists: `make test` runs each
value of each list, and `make test-rest` the other combinations."""

import collections
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


@pytest.hookimpl(tryfirst=True)  # before pytest deselects by markers
def pytest_collection_modifyitems(items):
    """Mark as `whole` what crosses lists: a case stays if one of its values comes up nowhere
    else."""
    functions = collections.defaultdict(dict)
    for item in items:
        if not any(item.iter_markers("slow")) and not any(item.iter_markers("whole")):
            # pytest has no public name for the values of stacked lists.
            values = item.callspec._idlist if hasattr(item, "callspec") else ()
            functions[item.nodeid.split("[")[0]][item.nodeid] = (item, values)
    for cases in functions.values():
        chosen = choose_crossed({name: values for name, (_, values) in cases.items()})
        for name, (item, values) in cases.items():
            if len(values) > 1 and name not in chosen:
                item.add_marker(pytest.mark.whole)

"""The choice of cases that `make test` runs (support/representatives.py, crossed_lists.py)."""

import itertools

import pytest
from crossed_lists import choose_crossed, find_left_out
from representatives import thin_out


def list_kept(parameters):
    return [p.values for p in parameters if pytest.mark.whole not in p.marks]


def test_the_first_and_the_listed_stay():
    assert list_kept(thin_out("abcde", "ce")) == [("a",), ("c",), ("e",)]
    assert list_kept(thin_out([("x", 1), ("y", 2), ("z", 3)], {3}, lambda _, n: n)) == [
        ("x", 1),
        ("z", 3),
    ]


def test_one_in_so_many_stays():
    assert list_kept(thin_out(range(7), 3)) == [(0,), (3,), (6,)]


def test_marks_and_names_stay():
    slow = pytest.param(1, id="one", marks=[pytest.mark.slow])
    for parameter in thin_out([slow, slow], 2):
        assert parameter.id == "one" and pytest.mark.slow in parameter.marks


def test_each_value_of_crossed_lists_stays():
    lists = ("abcdefg", "xyz", "01")
    cases = {"-".join(values): values for values in itertools.product(*lists)}
    chosen = choose_crossed(cases)
    assert 7 <= len(chosen) < 42 / 3
    for place, values in enumerate(lists):
        assert {cases[name][place] for name in chosen} == set(values)
    assert choose_crossed(dict(reversed(cases.items()))) == chosen


def test_what_an_expression_leaves_out():
    assert find_left_out("not slow and not whole") == {"slow", "whole"}
    assert find_left_out("not slow") == {"slow"}
    for expression in ("", "whole and not slow", "not slow or not whole", "not (slow or whole)"):
        assert find_left_out(expression) == set()

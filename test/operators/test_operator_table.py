"""The table of operators against PyTorch's schemas and against what the dispatcher has."""

import collections
import functools
import re

import pytest
import torch

import torch_dtypes  # noqa: F401
from torch_dtypes import _C

ROWS = {name: (way, set(facts), detail) for name, way, facts, detail in _C.operator_facts()}
KEYS = ("PrivateUse2", "AutogradPrivateUse2", "AutogradHPU")
FACTS = {fact for _, facts, _ in ROWS.values() for fact in facts}
RULES = {"OneDtype", "OneFloatingDtype", "Normalisation"}
TOUCHES = {"TouchesLines", "TouchesElements", "TouchesPlaces", "TouchesIndexed", "TouchesRows"}
FROM_TABLE = {"Boxed.cpp", "OperandRules.cpp", "FormatLibrary.cpp"}  # which register kernels as rows ask
# Rows for operators that not every release has.
OPTIONAL = {"_transformer_encoder_layer_fwd"}


def base_of(operator: str) -> tuple[str, str]:
    name, _, overload = operator.removeprefix("aten::").partition(".")
    return name.removesuffix("_"), overload


def row_of(operator: str):
    base, overload = base_of(operator)
    family = next((row for row in ROWS if row.endswith("*") and base.startswith(row[:-1])), None)
    for name in (f"{base}.{overload}", f"{base}.{overload.removesuffix('_out')}", base, family):
        if name in ROWS:
            return ROWS[name]
    return ("boxed", set(), "")


OPERATORS = [name for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::")]
BY_BASE = collections.defaultdict(list)
for _name in OPERATORS:
    BY_BASE[base_of(_name)[0]].append(_name)


def has_kernel(operator: str, key: str) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(operator, key)


def is_composite(operator: str) -> bool:
    return has_kernel(operator, "CompositeImplicitAutograd")


@functools.cache
def typed(operator: str) -> bool:
    """Whether its kernel below autograd is one of a family's file."""
    found = re.search(r"^PrivateUse2: registered at (\S*/)?(\S+?):\d+", torch._C._dispatch_dump(operator), re.MULTILINE)
    return bool(found) and found[2] not in FROM_TABLE


def overloads(row: str) -> list[str]:
    base, _, overload = row.partition(".")
    if base.endswith("*"):
        return [name for b, names in BY_BASE.items() if b.startswith(base[:-1]) for name in names]
    return [name for name in BY_BASE[base] if not overload or base_of(name)[1] in (overload, overload + "_out")]


def rows_of(*ways: str):
    return [row for row, (way, _, _) in ROWS.items() if way in ways]


def test_rows_stand_in_order_and_once():
    names = [row[0] for row in _C.operator_facts()]
    assert names == sorted(set(names))


def test_operators_exist():
    assert [row for row in ROWS if row not in OPTIONAL and not overloads(row)] == []


@pytest.mark.parametrize("family", [RULES, TOUCHES, {"Puts", "Compares"}, {"Fills", "FillsInPlace"}, {"Elementary", "Tabled"}])
def test_facts_that_exclude_each_other(family):
    assert [row for row, (_, facts, _) in ROWS.items() if len(facts & family) > 1] == []


@pytest.mark.parametrize(
    ("fact", "needs"),
    [("LargerDecides", "LeavesRange"), ("NegativeZeros", "LeavesRange"), ("LeavesRange", "Elementary"), ("KeepsOperand", "KeepsLittle")],
)
def test_facts_that_need_another(fact, needs):
    assert [row for row, (_, facts, _) in ROWS.items() if fact in facts and needs not in facts] == []


@pytest.mark.parametrize(
    ("way", "without"),
    [
        ("codes", {"Selects", "Elementary", "Tabled", "Products", "FusedProducts", "Draws", "Fills"}),
        ("refused", set(FACTS)),
        ("loop", set(FACTS)),
        ("own", {"ByCasts"}),
        ("view", {"ByCasts", "Elementary", "Tabled", "Products", "Draws", "Fills"}),
    ],
)
def test_ways_that_contradict_facts(way, without):
    assert [row for row in rows_of(way) if ROWS[row][1] & without] == []


def test_operators_under_a_policy_have_kernels():
    assert {row for row, (_, facts, _) in ROWS.items() if "Products" in facts} == _C.dot_operators()


def test_checked_operators_have_a_rule():
    assert [row for row in rows_of("checked") if not ROWS[row][1] & RULES] == []


def test_details_are_where_a_row_needs_one():
    assert [row for row, (way, facts, detail) in ROWS.items() if bool(detail) != (way == "refused" or bool(facts & {"Puts", "Compares"}))] == []


def test_arguments_that_hold_numbers_exist():
    arguments = collections.defaultdict(set)
    for schema in torch._C._jit_get_all_schemas():
        arguments[base_of(schema.name)[0]] |= {argument.name for argument in schema.arguments}
    numbers = {row.partition(".")[0]: set(detail.split()) for row, (_, facts, detail) in ROWS.items() if facts & {"Puts", "Compares"}}
    assert {name: places - arguments[name] for name, places in numbers.items() if places - arguments[name]} == {}


def test_ways_are_what_the_dispatcher_has():
    wrong = []
    for operator in OPERATORS:
        way, facts, _ = row_of(operator)
        own, kernel = typed(operator), has_kernel(operator, "PrivateUse2")
        if own and way not in ("own", "view", "refused"):
            wrong.append((operator, way, "has a kernel of its own"))
        if kernel and not own and is_composite(operator) and way not in ("checked", "whole", "refused") and "ByCasts" not in facts:
            wrong.append((operator, way, "is boxed, though composite"))
        if way == "refused" and not kernel:
            wrong.append((operator, way, "is not refused"))
    assert wrong == []


def test_own_kernels_are_registered():
    assert [row for row in rows_of("own", "view") if not any(map(typed, overloads(row)))] == []


def test_composites_are_stock():
    assert [row for row in rows_of("composite") for o in overloads(row) if not is_composite(o) or has_kernel(o, "PrivateUse2")] == []


def test_whole_and_checked_operators_are_composite_in_stock():
    composite = {row: [o for o in overloads(row) if is_composite(o)] for row in rows_of("checked", "whole")}
    assert [row for row, operators in composite.items() if not operators] == []
    assert [o for operators in composite.values() for o in operators for key in KEYS if not has_kernel(o, key)] == []


def test_boxed_operators_have_the_boxed_kernel():
    boxed = {row: [o for o in overloads(row) if has_kernel(o, "PrivateUse2") and row_of(o) == ROWS[row]] for row in rows_of("boxed", "codes", "loop")}
    assert [row for row, operators in boxed.items() if not operators] == []
    assert [o for operators in boxed.values() for o in operators if typed(o)] == []


def test_casts_stand_above_autograd():
    cast = [o for row, (_, facts, _) in ROWS.items() if "ByCasts" in facts for o in overloads(row) if has_kernel(o, "PrivateUse2")]
    assert [o for o in cast for key in KEYS if not has_kernel(o, key) and not o.partition(".")[0].endswith("_") and "out" not in base_of(o)[1]] == []


def test_kernels_above_autograd_stand_at_both_keys():
    one = [o for o in OPERATORS if has_kernel(o, "AutogradPrivateUse2") != has_kernel(o, "AutogradHPU") and row_of(o)[0] != "refused"]
    assert one == []

"""The table of operators against PyTorch's schemas and against the dispatcher."""

import collections
import functools
import re

import pytest
import torch

import torch_dtypes  # noqa: F401
from torch_dtypes import _C

ROWS = {name: (steps, set(facts), detail) for name, steps, facts, detail in _C.operator_facts()}
WORDS = _C.operator_words()
KEYS = ("PrivateUse2", "AutogradPrivateUse2", "AutogradHPU")
# Steps that end a route.
LAST = {"Own", "View", "Boxed", "Whole", "PlaceByPlace", "Composite", "Checked", "Refused"}
RULES = {"OneDtype", "OneFloatingDtype", "Normalise"}
TOUCHES = {"TouchLines", "TouchElements", "TouchPlaces", "TouchIndexed", "TouchRows"}
NUMBERS = {"PutNumbers", "CompareNumbers"}
# Files that register kernels for rows.
FROM_TABLE = {"Boxed.cpp", "OperandRules.cpp", "FormatLibrary.cpp"}
# Rows for operators that only some releases have.
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
    return (["Boxed"], set(), "")


OPERATORS = [name for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::")]
BY_BASE = collections.defaultdict(list)
for _name in OPERATORS:
    BY_BASE[base_of(_name)[0]].append(_name)


def has_kernel(operator: str, key: str) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(operator, key)


def is_composite(operator: str) -> bool:
    return has_kernel(operator, "CompositeImplicitAutograd")


@functools.cache
def is_in_family(operator: str) -> bool:
    """Tell whether the operator's kernel below autograd is in the file of its family."""
    found = re.search(
        r"^PrivateUse2: registered at (\S*/)?(\S+?):\d+",
        torch._C._dispatch_dump(operator),
        re.MULTILINE,
    )
    return bool(found) and found[2] not in FROM_TABLE


def overloads(row: str) -> list[str]:
    base, _, overload = row.partition(".")
    if base.endswith("*"):
        return [name for b, names in BY_BASE.items() if b.startswith(base[:-1]) for name in names]
    return [
        name
        for name in BY_BASE[base]
        if not overload or base_of(name)[1] in (overload, overload + "_out")
    ]


def words_of(row: str) -> set[str]:
    """Return a row's steps and facts."""
    steps, facts, _ = ROWS[row]
    return {*steps, *facts}


def main_step(steps: list[str]) -> str:
    """Return the step that computes: the first one where it is a kernel of this package, otherwise
    the last."""
    return steps[0] if steps[0] in ("Own", "View") else steps[-1]


def rows_of(*main: str):
    return [row for row, (steps, _, _) in ROWS.items() if main_step(steps) in main]


def test_rows_stand_in_order_and_once():
    names = [row[0] for row in _C.operator_facts()]
    assert names == sorted(set(names))


def test_operators_exist():
    assert [row for row in ROWS if row not in OPTIONAL and not overloads(row)] == []


@pytest.mark.parametrize(
    "family", [RULES, TOUCHES, NUMBERS, {"Fills", "FillsInPlace"}, {"CastOut", "CheckOut"}]
)
def test_words_that_exclude_each_other(family):
    assert [row for row in ROWS if len(words_of(row) & family) > 1] == []


@pytest.mark.parametrize(
    ("word", "needs"),
    [
        ("LargerDecides", "LeavesRange"),
        ("NegativeZeros", "LeavesRange"),
        ("LeavesRange", "InFloat64"),
        ("LeavesRange", "LookUp"),
        ("KeepsOperand", "KeepsLittle"),
        ("TensorCores", "PolicyProducts"),
        ("ExactPower", "Powers"),
        ("Gate", "Selects"),
    ],
)
def test_words_that_need_another(word, needs):
    assert [row for row in ROWS if word in words_of(row) and needs not in words_of(row)] == []


SUMS = {"PolicyProducts", "RefusePolicy"}


@pytest.mark.parametrize(
    ("step", "without"),
    [
        ("MovedCodes", {"Selects", "InFloat64", "LookUp", "Draws", "Fills", *SUMS}),
        ("Own", {"ByCasts"}),
        ("View", {"ByCasts", "InFloat64", "LookUp", "Draws", "Fills", *SUMS}),
    ],
)
def test_steps_that_contradict_words(step, without):
    assert [row for row in ROWS if step in words_of(row) and words_of(row) & without] == []


@pytest.mark.parametrize("step", ["Refused", "PlaceByPlace"])
def test_steps_that_stand_alone(step):
    assert [row for row in ROWS if step in words_of(row) and words_of(row) != {step}] == []


def test_routes_end_where_a_call_is_done():
    assert [
        row
        for row, (steps, _, _) in ROWS.items()
        if steps[-1] not in LAST or set(steps[1:-1]) & LAST or len(set(steps)) < len(steps)
    ] == []


def test_policy_and_tensor_cores_stand_in_the_row():
    assert [ROWS[name][0] for name in ("mm", "cumsum", "scaled_dot_product_attention")] == [
        ["PolicyProducts", "TensorCores", "Boxed"],
        ["PolicyProducts", "Boxed"],
        ["PolicyProducts", "Whole"],
    ]


def test_words_have_one_sentence_each():
    assert [
        name
        for _, name, sentence in WORDS
        if not re.fullmatch(r"[A-Z].*[^.]\.", sentence) or re.search(r"\. [A-Z]", sentence)
    ] == []
    assert len({name for _, name, _ in WORDS}) == len(WORDS)
    assert {group for group, _, _ in WORDS} == {
        "Step",
        "Value",
        "Operand",
        "Write",
        "Random",
        "Autograd",
        "Vmap",
    }


def test_words_are_used():
    used = {word for row in ROWS for word in words_of(row)}
    assert [name for _, name, _ in WORDS if name not in used] == []


def test_checked_operators_have_a_rule():
    assert [row for row in rows_of("Checked") if not words_of(row) & RULES] == []


def test_details_are_where_a_row_needs_one():
    assert [
        row
        for row, (steps, _, detail) in ROWS.items()
        if bool(detail) != bool({*steps} & {"Refused", *NUMBERS})
    ] == []


def test_arguments_that_hold_numbers_exist():
    arguments = collections.defaultdict(set)
    for schema in torch._C._jit_get_all_schemas():
        arguments[base_of(schema.name)[0]] |= {argument.name for argument in schema.arguments}
    numbers = {
        row.partition(".")[0]: set(detail.split())
        for row, (steps, _, detail) in ROWS.items()
        if NUMBERS & {*steps}
    }
    assert {
        name: places - arguments[name]
        for name, places in numbers.items()
        if places - arguments[name]
    } == {}


def test_routes_are_what_the_dispatcher_has():
    wrong = []
    for operator in OPERATORS:
        steps, facts, _ = row_of(operator)
        main = main_step(steps)
        own, kernel = is_in_family(operator), has_kernel(operator, "PrivateUse2")
        if own and main not in ("Own", "View", "Refused"):
            wrong.append((operator, main, "has a kernel of its own"))
        if (
            kernel
            and not own
            and is_composite(operator)
            and main not in ("Checked", "Whole", "Refused")
            and "ByCasts" not in facts
        ):
            wrong.append((operator, main, "is boxed, though composite"))
        if main == "Refused" and not kernel:
            wrong.append((operator, main, "is not refused"))
    assert wrong == []


def test_own_kernels_are_registered():
    assert [
        row for row in rows_of("Own", "View") if not any(map(is_in_family, overloads(row)))
    ] == []


def test_composites_are_stock():
    assert [
        row
        for row in rows_of("Composite")
        for o in overloads(row)
        if not is_composite(o) or has_kernel(o, "PrivateUse2")
    ] == []


def test_whole_and_checked_operators_are_composite_in_stock():
    composite = {
        row: [o for o in overloads(row) if is_composite(o)] for row in rows_of("Checked", "Whole")
    }
    assert [row for row, operators in composite.items() if not operators] == []
    assert [
        o
        for operators in composite.values()
        for o in operators
        for key in KEYS
        if not has_kernel(o, key)
    ] == []


def test_boxed_operators_have_the_boxed_kernel():
    boxed = {
        row: [o for o in overloads(row) if has_kernel(o, "PrivateUse2") and row_of(o) == ROWS[row]]
        for row in rows_of("Boxed", "PlaceByPlace")
    }
    assert [row for row, operators in boxed.items() if not operators] == []
    assert [o for operators in boxed.values() for o in operators if is_in_family(o)] == []


def test_casts_stand_above_autograd():
    cast = [
        o
        for row, (_, facts, _) in ROWS.items()
        if "ByCasts" in facts
        for o in overloads(row)
        if has_kernel(o, "PrivateUse2")
    ]
    assert [
        o
        for o in cast
        for key in KEYS
        if not has_kernel(o, key)
        and not o.partition(".")[0].endswith("_")
        and "out" not in base_of(o)[1]
    ] == []


def test_kernels_above_autograd_stand_at_both_keys():
    one = [
        o
        for o in OPERATORS
        if has_kernel(o, "AutogradPrivateUse2") != has_kernel(o, "AutogradHPU")
        and row_of(o)[0] != ["Refused"]
    ]
    assert one == []

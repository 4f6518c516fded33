"""PyTorch's operator database in format dtypes: a sample of it here, all of it with `-m slow`.

test/conformance/known.py lists which entries are refused, and why, and which fail. An entry that
differs from that list fails its test."""

import random

import pytest
import torch
from judge import judge
from known import FAILS, NONDETERMINISTIC, find_known
from op_cases import KINDS, lacks, run_entry
from representatives import thin_out
from samples import NotApplicable, base_dtype, quiet
from torch.testing._internal.common_methods_invocations import op_db

import torch_dtypes

ENTRIES = {op.full_name: op for op in op_db}
EVERYWHERE = (  # dtype, samples of each entry, kinds
    ("posit16es2", 3, ("forward", "backward", "inplace", "inplace_backward", "errors")),
    ("posit16es2", 1, ("gradgrad",)),
    ("q43", 1, ("forward", "backward", "inplace_backward")),
    ("e11m30", 1, ("forward", "inplace")),  # stored in eight bytes
)
ALWAYS = ("posit16es2", "forward")
TENTH = ("q52", "e5m5", "posit8es2", "posit32es2")
PARTS = 10
SLOW = ("posit16es2", "q43", "q52", "e5m5", "posit8es2", "posit32es2")


def applies(name: str, kind: str) -> bool:
    """Tell without running whether a kind applies: integer operators, entries without a derivative
    or a wrong input."""
    op = ENTRIES[name]
    try:
        base_dtype(op)
    except NotApplicable:
        return False
    return lacks(op, kind) is None


def choose_cases() -> list[tuple]:
    cases = [
        (dtype, kind, name, most)
        for dtype, most, kinds in EVERYWHERE
        for kind in kinds
        for name in ENTRIES
    ]
    for dtype in TENTH:
        tenth = set(random.Random(dtype).sample(sorted(ENTRIES), len(ENTRIES) // 10))
        cases += [
            (dtype, kind, name, 3)
            for kind in KINDS
            if kind != "errors"
            for name in ENTRIES
            if name in tenth
        ]
    return [case for case in cases if applies(case[2], case[1])]


def parameters() -> list:
    """Return every operator in one dtype, and a fifth of all other cases."""
    cases = choose_cases()
    always = [case for case in cases if case[:2] == ALWAYS]
    return always + thin_out([case for case in cases if case[:2] != ALWAYS], 5)


def check(dtype: str, kind: str, name: str, most: int | None):
    known = find_known(name, kind, dtype)
    # The sample that fails may be any of them.
    judge(run_entry(ENTRIES[name], torch_dtypes.dtype(dtype), kind, None if known else most), known)


def identity(value) -> str | None:
    return "" if value is None else f"{value}"


@pytest.mark.parametrize(
    ("dtype", "kind", "name", "most"),
    parameters(),
    ids=identity,
)
def test_entry(dtype, kind, name, most):
    check(dtype, kind, name, most)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", SLOW)
def test_entries_with_all_samples(dtype, kind, part):
    """Run a part of the entries. Tens of thousands of cases would slow every collection of tests by
    seconds."""
    differ = {}
    for name in list(ENTRIES)[part::PARTS]:
        if applies(name, kind):
            try:
                check(dtype, kind, name, None)
            except (pytest.skip.Exception, pytest.xfail.Exception):
                continue
            except AssertionError as error:
                differ[name] = str(error).splitlines()[0]
    assert not differ


def test_list_names_entries():
    """Otherwise an entry that PyTorch renamed would stay in the list for ever."""
    assert {name for names in FAILS.values() for name in names} <= set(ENTRIES)


# ---- the suite notices errors ----


def spoil_entry(name: str, spoil):
    """Return an entry whose operator returns something wrong in a format dtype."""
    op = ENTRIES[name]
    with quiet():
        copy = type(op).__new__(type(op))
        copy.__dict__.update(op.__dict__)
    stock = op.op

    def run(*args, **kwargs):
        result = stock(*args, **kwargs)
        ours = (
            isinstance(result, torch.Tensor) and result.dtype is torch.posit16es2 and result.numel()
        )
        return spoil(result) if ours else result

    copy.op = run
    return copy


def one_code_up(result):
    with torch.no_grad():
        result.view(torch.int16).flatten()[0] += 1
    return result


SPOILED = {
    "one code off": ("mul", "forward", one_code_up, "1 of"),
    "one code off, single kernel": ("tanh", "forward", one_code_up, "1 of"),
    "a wrong dtype": (
        "add",
        "forward",
        lambda r: r.float(),
        "expected dtype torch.posit16es2, but got torch.float32",
    ),
    "the container": ("add", "forward", lambda r: r.view(torch.bfloat16), "the container"),
    "a shape": ("add", "forward", lambda r: r[None], "expected shape"),
    "NaN": ("exp", "forward", lambda r: r * float("nan"), "got nan"),
    "a copy": ("transpose", "forward", lambda r: r.clone(), "expected a view"),
    "a gradient": ("sin", "backward", lambda r: r * 1.01, "gradient 0"),
    "a second gradient": (
        "exp",
        "gradgrad",
        lambda r: r.detach() * (1 + 0.05 * r.log().sin()),
        "gradient",
    ),
    "a lost gradient": ("mul", "backward", lambda r: r.detach() + 0 * r.sum(), "gradient 0"),
    "an error": ("add", "forward", lambda r: r.nonsense, "AttributeError"),
}


def test_what_has_no_determined_values():
    if not hasattr(op_db[0], "has_nondeterministic_output"):
        pytest.skip("the database of this release has no such mark")
    assert {op.name for op in op_db if op.has_nondeterministic_output} == NONDETERMINISTIC


@pytest.mark.parametrize("what", SPOILED)
def test_suite_notices(what):
    name, kind, spoil, message = SPOILED[what]
    outcome = run_entry(spoil_entry(name, spoil), torch.posit16es2, kind, 3)
    assert outcome.status == "fails" and message in outcome.reason, outcome

"""An operator that adds up products follows the policy, and so do its gradients, for every layout
of operands and few terms too."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from oracle_sums import exact_sum, step_sum, times
from sums import FORMATS, assert_codes, dtype_of, some, values_of

from torch_dtypes import accumulate, rounding

# The operands' elements that are multiplied, in Einstein notation. The sum starts with a third
# operand.
OPERATORS = {
    "mm": (torch.mm, "ik,kj->ij"),
    "bmm": (torch.bmm, "bik,bkj->bij"),
    "mv": (torch.mv, "ik,k->i"),
    "dot": (torch.dot, "k,k->"),
    "vdot": (torch.vdot, "k,k->"),
    "inner of vectors": (torch.inner, "k,k->"),
    "inner": (torch.inner, "ik,jk->ij"),
    "inner with a vector": (torch.inner, "k,jk->j"),
    "tensordot": (lambda a, b: torch.tensordot(a, b, dims=([0], [1])), "ki,jk->ij"),
    "tensordot of vectors": (lambda a, b: torch.tensordot(a, b, dims=1), "k,k->"),
    "tensordot of all": (lambda a, b: torch.tensordot(a, b, dims=2), "lk,lk->"),
    "matmul of vectors": (torch.matmul, "k,k->"),
    "matmul with a vector": (torch.matmul, "bik,k->bi"),
    "matmul by a matrix": (torch.matmul, "bik,kj->bij"),
    "vecdot": (torch.linalg.vecdot, "ik,ik->i"),
    "einsum": (lambda a, b: torch.einsum("ik,jk->ij", a, b), "ik,jk->ij"),
    "einsum of batches": (lambda a, b: torch.einsum("...ik,...kj->...ij", a, b), "bik,bkj->bij"),
    "einsum over lines": (lambda a, b: torch.einsum("ik,ik->i", a, b), "ik,ik->i"),
    "einsum to a number": (lambda a, b: torch.einsum("k,k", a, b), "k,k->"),
    "einsum turned": (lambda a, b: torch.einsum("bki,jk->jib", a, b), "bki,jk->jib"),
    "addmm": (lambda a, b, c: torch.addmm(c, a, b), "ik,kj,ij->ij"),
    "addmv": (lambda a, b, c: torch.addmv(c, a, b), "ik,k,i->i"),
    "linear": (F.linear, "ik,jk,j->ij"),
    "linear of a vector": (F.linear, "k,jk,j->j"),
    "linear of a batch": (F.linear, "bik,jk,j->bij"),
    "linear without bias": (F.linear, "bik,jk->bij"),
}
# Their gradients are single products, or sums of rounded sums over expanded dimensions, which
# PyTorch multiplies itself.
ONE_PRODUCT = (
    "dot",
    "vdot",
    "inner of vectors",
    "matmul of vectors",
    "tensordot of vectors",
    "einsum to a number",
    "matmul with a vector",
    "matmul by a matrix",
)
POLICIES = [
    ("exact", {}, "nearest_even"),
    ("format", {"product": "posit8es1", "accumulator": "e8m4"}, "nearest_even"),
    ("format", {"fused": True, "accumulator": "e8m4"}, "nearest_even"),
    ("chunked(2)", {"rounding": "down"}, "toward_zero"),
]
LENGTHS = {"b": 2, "i": 3, "j": 2, "l": 2}


def layouts(t):
    """Yield the same elements in other orders and places of memory."""
    yield t.clone()
    if t.dim():
        wide = torch.empty(*t.shape[:-1], 2 * t.shape[-1] + 1, dtype=t.dtype)
        yield wide[..., 1::2].copy_(t)
    if t.dim() > 1:
        yield t.transpose(0, -1).contiguous().transpose(0, -1)
        yield torch.empty(2 * len(t), *t.shape[1:], dtype=t.dtype)[::2].copy_(t)


def dots(letters, k, values):
    """Yield the terms of each element of the result: pairs in order, and the start."""
    operands, result = letters.split("->")
    operands = operands.split(",")
    sizes = {**LENGTHS, "k": k}
    summed = sorted({c for c in operands[0] if c in operands[1]} - set(result), key="bijlk".index)

    def element(which, at):
        place = 0
        for c in operands[which]:
            place = place * sizes[c] + at[c]
        return values[which][place]

    for place in itertools.product(*(range(sizes[c]) for c in result)):
        at = dict(zip(result, place, strict=True))
        terms = [
            dict(zip(summed, p, strict=True))
            for p in itertools.product(*(range(sizes[c]) for c in summed))
        ]
        yield (
            [(element(0, {**at, **t}), element(1, {**at, **t})) for t in terms],
            element(2, at) if len(operands) > 2 else None,
        )


def answer(spec, pairs, start, policy, options, mode):
    if policy == "exact":
        return spec.encode(exact_sum([times(x, y) for x, y in pairs], start), mode)
    product, total = (
        FORMATS[options[key]] if key in options else spec for key in ("product", "accumulator")
    )
    steps, fused = options.get("rounding", mode), options.get("fused", False)
    if policy == "format":
        return spec.encode(step_sum(pairs, product, total, steps, start, fused), mode)
    wide = float(start or 0) if start is not None else 0.0
    for i in range(0, len(pairs), 2):
        wide = math.fsum([wide, float(step_sum(pairs[i : i + 2], product, total, steps))])
    return spec.encode(wide, mode)


@pytest.mark.parametrize("policy", POLICIES, ids=str)
@pytest.mark.parametrize("operator", OPERATORS)
def test_layouts_and_lengths_follow_the_policy(operator, policy):
    (call, letters), (kind, options, mode), name = OPERATORS[operator], policy, "q43"
    spec, dtype = FORMATS[name], dtype_of(name)
    for k in (1, 2, 3):
        sizes = {**LENGTHS, "k": k}
        tensors = [
            some(name, *(sizes[c] for c in part), seed=7 * k + i)
            for i, part in enumerate(letters.split("->")[0].split(","))
        ]
        values = [values_of(t, spec) for t in tensors]
        expected = [
            answer(spec, pairs, start, kind, options, mode)
            for pairs, start in dots(letters, k, values)
        ]
        for i, operands in enumerate(itertools.product(*map(list, map(layouts, tensors)))):
            with accumulate(kind, **options), rounding(mode):
                found = call(*operands)
            assert found.dtype == dtype
            assert_codes(
                found,
                expected,
                spec,
                f"{operator} {policy} k={k} {[t.stride() for t in operands]} {i}",
            )


@pytest.mark.parametrize("policy", POLICIES[:3], ids=str)
@pytest.mark.parametrize("operator", [name for name in OPERATORS if name not in ONE_PRODUCT])
def test_gradients_follow_the_policy(operator, policy):
    (call, letters), (kind, options, mode), name = OPERATORS[operator], policy, "q43"
    spec, factors = FORMATS[name], letters.split("->")[0].split(",")[:2]
    for k in (1, 3):
        sizes = {**LENGTHS, "k": k}
        tensors = [
            some(name, *(sizes[c] for c in part), seed=7 * k + i)
            for i, part in enumerate(letters.split("->")[0].split(","))
        ]
        grad = some(name, *(sizes[c] for c in letters.split("->")[1]), seed=50)
        for operands in zip(*(list(layouts(t)) * 4 for t in tensors), strict=False):
            with accumulate(kind, **options), rounding(mode):
                leaves = [t.detach().requires_grad_() for t in operands]
                found = torch.autograd.grad(call(*leaves), leaves, grad)[:2]
            for i, (own, other) in enumerate((factors, factors[::-1])):
                pairs = dots(
                    f"{letters.split('->')[1]},{other}->{own}",
                    k,
                    [values_of(grad, spec), values_of(tensors[1 - i], spec)],
                )
                expected = [answer(spec, dot, None, kind, options, mode) for dot, _ in pairs]
                assert_codes(
                    found[i],
                    expected,
                    spec,
                    f"{operator} {policy} k={k} gradient {i} {[t.stride() for t in operands]}",
                )

"""torch.set_float32_matmul_precision and similar switches let float32 products drop bits, but never
bits of format values."""

import pytest
import torch
import torch.nn.functional as F

import torch_dtypes
from torch_dtypes import accumulate


@pytest.fixture
def switch():
    """Let stock PyTorch drop bits of float32 operands, by each of its switches."""
    mkldnn, allowed = torch.backends.mkldnn, torch.backends.__allow_nonbracketed_mutation()

    # Once imported, PyTorch's own test modules allow such flags only in with blocks.
    @allowed
    def forget():
        torch.set_float32_matmul_precision("highest")
        torch.backends.fp32_precision = mkldnn.fp32_precision = mkldnn.matmul.fp32_precision = (
            mkldnn.conv.fp32_precision
        ) = "none"

    @allowed
    def drop(way):
        forget()
        if way == "legacy":
            torch.set_float32_matmul_precision("medium")
        elif way == "operators":
            mkldnn.matmul.fp32_precision = mkldnn.conv.fp32_precision = "bf16"
        else:
            torch.backends.fp32_precision = "bf16"

    always = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    yield drop
    torch.set_warn_always(always)
    forget()


def operands(dtype):
    torch.manual_seed(0)
    return (torch.randn(96, 96) / 4).to(dtype), torch.randn(96, 96).to(dtype)


def convolution(a, b):
    return F.conv2d(a.view(1, 9, 32, 32), b.flatten()[:2304].view(16, 9, 4, 4))


# Products of the operands, which the policy "float64" also computes in float64.
PRODUCTS = {
    "mm": torch.mm,
    "mv": lambda a, b: a @ b[0],
    "addmm": lambda a, b: torch.addmm(b, a, b, beta=0.5),
    "bmm": lambda a, b: torch.bmm(a.view(4, 24, 96), b.expand(4, 96, 96)),
    "linear": lambda a, b: F.linear(a, b, b[0]),
    "einsum": lambda a, b: torch.einsum("ij,kj->ik", a, b),
    "convolution": convolution,
}
# These kernels multiply intermediate results. float32 has more bits than any switch keeps.
WITHIN = {
    "attention": lambda a, b: F.scaled_dot_product_attention(
        *(t.view(4, 24, 96) for t in (a, b, a))
    ),
    "cdist": torch.cdist,
    "matrix_exp": lambda a, b: torch.linalg.matrix_exp(a),
}


@pytest.mark.parametrize("way", ["legacy", "operators", "all"])
def test_products_keep_their_operands(switch, way):
    """The bits are those of float64. A format of few bits stays in float32. A warning says so and
    names the switch."""
    wide, narrow = operands(torch.posit16es2), operands(torch.q43)
    with accumulate("float64"):
        expected = {name: f(*wide) for name, f in PRODUCTS.items()}
    as_ever = {name: f(*narrow) for name, f in PRODUCTS.items()}
    switch(way)
    for name, f in PRODUCTS.items():
        if name == "convolution" and way == "legacy":
            continue  # only a matrix product has one
        with pytest.warns(
            UserWarning,
            match=r"of torch.posit16es2 is computed in float64, "
            r".*set_float32_matmul_precision\(\"highest\"\)",
        ):
            assert torch.equal(f(*wide), expected[name]), name
        assert torch.equal(f(*narrow), as_ever[name]), name


@pytest.mark.filterwarnings("ignore:torch_dtypes:UserWarning")
@pytest.mark.parametrize("dtype", [torch.posit16es2, torch.q52])
@pytest.mark.parametrize("name", WITHIN)
def test_products_within_operators(switch, name, dtype):
    """The result is as near to float64's as without the switch: few elements are the other
    neighbour of the exact number."""
    a, b = operands(dtype)
    exact = WITHIN[name](a.double(), b.double()).to(dtype)
    switch("legacy")
    result = WITHIN[name](a, b)
    assert result.dtype == dtype
    assert (result != exact).sum() <= 0.002 * exact.numel()


def test_gradients(switch):
    a, b = (t.requires_grad_() for t in operands(torch.posit16es1))
    with accumulate("float64"):
        expected = torch.autograd.grad((a @ b).sum(), (a, b))
    switch("legacy")
    with pytest.warns(UserWarning, match="posit16es1"):
        found = torch.autograd.grad((a @ b).sum(), (a, b))
    assert all(torch.equal(x, y) for x, y in zip(found, expected, strict=True))


def test_the_policy_float32_is_an_error(switch):
    a, b = operands(torch.posit16es2)
    switch("legacy")
    with accumulate("float32"):
        for product in (lambda: a @ b, lambda: torch_dtypes.matmul(a, b, out=torch.posit16es2)):
            with pytest.raises(
                RuntimeError,
                match=r"float32 products that keep all bits of torch.posit16es2 .*\"highest\".* "
                r"policy machine",
            ):
                product()
        assert torch.equal(
            a.to(torch.q43) @ b.to(torch.q43),
            torch_dtypes.matmul(a.to(torch.q43), b.to(torch.q43), out=torch.q43),
        )
        a.sum(), a.cumsum(0)  # no products

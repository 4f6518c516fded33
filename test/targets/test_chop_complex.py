"""torch_dtypes.chop of complex numbers: the real and the imaginary part, each rounded by itself."""

import numpy as np
import pytest
import torch

from torch_dtypes import chop


def sample(*shape, dtype=torch.complex64):
    return torch.randn(
        *shape, dtype=torch.complex128, generator=torch.Generator().manual_seed(4)
    ).to(dtype)


def by_parts(x, *args, **kwargs):
    return torch.complex(
        *(
            chop(part.contiguous(), *args, **kwargs)
            for part in (x.resolve_conj().real, x.resolve_conj().imag)
        )
    )


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("mode", ["nearest_even", "up", "toward_zero"])
@pytest.mark.parametrize("name", ["q43", "posit16es2", "e8m7"])
def test_tensors(name, mode, dtype):
    x = sample(3, 4, 6, dtype=dtype)
    for view in (
        x,
        x.permute(2, 0, 1),
        x[:, ::2, 1:4],
        x.conj(),
        x[0, 0, 0],
        x[:0],
        x[:, :1].expand(3, 4, 6),
    ):
        found = chop(view, name, mode)
        assert (
            torch.equal(found, by_parts(view, name, mode))
            and found.dtype is dtype
            and found.stride() == torch.empty_like(view).stride()
        )


def test_gradients_pass_straight_through():
    x = sample(5).requires_grad_()
    direction = sample(5) + 1
    (chop(x, "q43") * direction).real.sum().backward()
    assert torch.equal(x.grad, direction.conj())
    assert torch.equal(
        torch.func.vmap(lambda v: chop(v, "q43"))(sample(3, 4)), chop(sample(3, 4), "q43")
    )


def test_random_bits_and_flips_go_by_the_generator():
    x, first, second = sample(100), *(torch.Generator().manual_seed(2) for _ in range(2))
    found = [chop(x, "q43", "stochastic", g, flip_prob=0.5) for g in (first, second)]
    assert torch.equal(*found) and not torch.equal(found[0], chop(x, "q43", "stochastic", first))
    expected = chop(torch.view_as_real(x), "q43", "stochastic", second.manual_seed(2))
    assert torch.equal(
        torch.view_as_real(chop(x, "q43", "stochastic", first.manual_seed(2))), expected
    )


def test_numbers_and_arrays():
    assert chop(1.3 + 2.7j, "q43") == 1.25 + 2.75j and type(chop(1.3 + 2.7j, "q43")) is complex
    number = chop(np.complex64(1.3 + 2.7j), "q43")
    assert type(number) is np.complex64 and number == 1.25 + 2.75j
    for dtype in ("complex64", "complex128", ">c8"):
        x = np.array([[1.3 + 2.7j, 5e3 - 1j]], dtype=dtype).T
        found = chop(x, "q43", "toward_zero")
        assert found.dtype == np.dtype(dtype).newbyteorder("=") and found.tolist() == [
            [1.25 + 2.5j],
            [240 - 1j],
        ]
    masked = chop(np.ma.array([1.3j, 2.7], mask=[True, False]), "q43")
    assert masked[1] == 2.75 and masked.mask.tolist() == [True, False]


def test_graphs():
    x = sample(4, 3)
    compiled = torch.compile(lambda x: chop(x, "q43", "up"), backend="eager", fullgraph=True)
    traced = torch.jit.trace(lambda x: chop(x, "q43", "up"), x)
    assert torch.equal(compiled(x), by_parts(x, "q43", "up")) and torch.equal(
        traced(2 * x), by_parts(2 * x, "q43", "up")
    )
    assert chop(x.to("meta"), "q43").dtype is torch.complex64


def test_jax():
    jax = pytest.importorskip("jax", reason="needs JAX")
    x = jax.numpy.asarray(sample(4).numpy())
    for run in (chop, jax.jit(chop, static_argnums=1)):
        assert np.array_equal(np.asarray(run(x, "q43")), chop(sample(4), "q43").numpy())


def test_blocks_and_scaled_integers_refuse():
    for name in ("mxfp8_e4m3", "int8"):
        with pytest.raises(TypeError, match=r"round torch.view_as_real\(x\)"):
            chop(sample(4), name)

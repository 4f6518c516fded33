"""The mode "stochastic_a4", of four random bits, wherever a mode's name is said: the bits of the
dtype and the format that are named so."""

import copy
import pickle

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import checkpoint

import torch_dtypes
from torch_dtypes import _C, accumulate, chop, quantize, rounding, target
from torch_dtypes.workbench.vectors.making import Job

MODES = ("stochastic_a4", "stochastic_b1", "stochastic_c3")
X = torch.linspace(-3, 5, 600).reshape(6, 100)


def drawn(call, seed=5):
    torch.manual_seed(seed)
    return call()


def codes(t):
    return torch_dtypes.codes(t) if _C.format_of(t.dtype) is not None else t


def same(a, b):
    assert a.dtype == b.dtype and torch.equal(codes(a), codes(b))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["q43", "posit16es2", "e5m5", "fixed4_3", "hif8", "e8m23"])
def test_a_block_draws_as_the_dtype_does(name, mode):
    """Casts and operators; the numbers are those of the dtype of that mode, and not those of 64
    random bits."""
    plain, few = torch_dtypes.dtype(name), torch_dtypes.dtype(f"{name}_{mode}")
    wide, x = X.double() / 7, (X / 3).to(plain)
    for call in (
        torch.mul,
        torch.div,
        lambda x, _: x.exp(),
        lambda x, y: x @ y.T,
        lambda x, _: x.sum(1),
        lambda x, _: wide.to(x.dtype),
    ):
        with rounding(mode):
            in_block = drawn(lambda call=call: call(x, x))
        exact = x.to(few)
        of_dtype = drawn(lambda call=call, x=exact: call(x, x))
        torch.testing.assert_close(
            in_block.double(), of_dtype.double(), rtol=0, atol=0, equal_nan=True
        )
    many = drawn(lambda: wide.to(torch_dtypes.dtype(f"{name}_stochastic"))).to(plain)
    nearest = wide.to(plain)
    with rounding(mode):
        assert not torch.equal(drawn(lambda: wide.to(plain)), many)
        with rounding("stochastic"):
            same(drawn(lambda: wide.to(plain)), many)
        with rounding("nearest_even"):
            same(wide.to(plain), nearest)
    same(wide.to(plain), nearest)
    with rounding("stochastic"):  # which leaves the number to the dtype
        few_of_block = drawn(lambda: wide.to(few))
    same(few_of_block, drawn(lambda: wide.to(few)))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "name",
    ["q43", "posit12es1", "fixed4_3", "mxfp4", "nvfp4", "mxint8", "bfp8_dim0", "mxfp8_e4m3_axis0"],
)
def test_chop_and_targets(name, mode):
    named, plain = target(f"{name}_{mode}"), target(name)
    assert (
        named.rounding == mode
        and named.name.endswith(mode)
        and target(named.name) == named == plain.with_rounding(mode)
    )
    assert (
        copy.deepcopy(named) == pickle.loads(pickle.dumps(named)) == named
        and named.with_rounding("nearest_even") == plain
    )
    want = drawn(lambda: named.quantize(X))
    assert not torch.equal(want, drawn(lambda: chop(X, name, "stochastic")))
    for call in (
        lambda: chop(X, name, mode),
        lambda: chop(X, plain, mode),
        lambda: plain.quantize(X, rounding=mode),
        lambda: chop(X, named.name),
    ):
        same(drawn(call), want)
    with rounding(mode):
        same(drawn(lambda: chop(X, name)), want)
        same(drawn(lambda: plain.quantize(X)), want)
    generator = torch.Generator(X.device).manual_seed(5)
    same(chop(X, name, mode, generator), want)
    if named.dtype is None:
        same(drawn(lambda: quantize(X, name, rounding=mode)).dequantize() + 0.0, want + 0.0)
        assert pickle.loads(pickle.dumps(quantize(X, named))).format == named


def test_blocks_of_elements_that_draw_few_bits():
    t = torch_dtypes.block_format("e3m4_stochastic_b2", "e8m0", 16)
    assert (
        t == torch_dtypes.block_format("e3m4", "e8m0", 16, rounding="stochastic_b2")
        and t.name == "block<e3m4_saturate,e8m0,16>_stochastic_b2"
    )
    assert target("hif4_stochastic_a4").rounding == "stochastic_a4" and torch_dtypes.block_float(
        8, 0, rounding="stochastic_c3"
    ).name.endswith("_c3")


def test_integers():
    named = torch_dtypes.integer_format(8, rounding="stochastic_a2")
    assert named == target("int8_stochastic_a2") == target("int8").with_rounding("stochastic_a2")
    x = torch.full((4000,), 1.375)  # two bits leave a quarter of it
    for call in (
        lambda: named.quantize(x, scale=1.0),
        lambda: target("int8").quantize(x, scale=1.0, rounding="stochastic_a2"),
    ):
        y = drawn(call)
        assert set(y.tolist()) == {1.0, 2.0} and abs(y.mean().item() - 1.25) < 0.03
    with rounding("stochastic_a2"):
        same(drawn(lambda: target("int8").quantize(x, scale=1.0)), y)


def test_layers_and_optimizers():
    layer = torch.nn.Linear(100, 5)
    torch_dtypes.quantize_(
        layer, {torch.nn.Linear: {"weight": {"format": "q43", "rounding": "stochastic_a2"}}}
    )
    got = drawn(lambda: layer(X))
    torch_dtypes.dequantize_(layer)
    torch_dtypes.quantize_(layer, {torch.nn.Linear: {"weight": "q43_stochastic_a2"}})
    same(got, drawn(lambda: layer(X)))
    torch_dtypes.dequantize_(layer)
    updated = []
    for weight, mode in (("q43", "stochastic_a2"), ("q43_stochastic_a2", None)):
        made = copy.deepcopy(layer)
        optimizer = torch_dtypes.optim.LowPrecision(
            torch.optim.SGD(made.parameters(), 0.01), weight=weight, master=None, rounding=mode
        )
        with torch.no_grad():
            made.weight.copy_(layer.weight.to(torch.q43).float())
        drawn(lambda made=made, optimizer=optimizer: (made(X).sum().backward(), optimizer.step()))
        updated.append(made.weight.detach().clone())
    assert torch.equal(updated[0], chop(updated[0], "q43")) and (updated[0] != layer.weight).any()


# PyTorch's own.
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:torch.compile runs code that works:UserWarning")
def test_graphs():
    def f(x):
        return chop(x, "q43", "stochastic_a4") + chop(x, "mxfp4", "stochastic_b3")

    torch._dynamo.reset()
    same(
        drawn(lambda: torch.compile(f, backend="aot_eager", fullgraph=True)(X)), drawn(lambda: f(X))
    )
    same(drawn(lambda: make_fx(f)(X)(X)), drawn(lambda: (f(X), f(X))[1]))

    def of_block(x):
        return (x.to(torch.q43) * 1.5).float() + chop(x, "e5m5")

    compiled = torch.compile(of_block, backend="aot_eager")
    for mode in ("stochastic_a2", "stochastic", "stochastic_a1", "nearest_even"):  # each anew
        with rounding(mode):
            same(drawn(lambda: compiled(X)), drawn(lambda: of_block(X)))
    torch._dynamo.reset()


@pytest.mark.filterwarnings("ignore:expected something to be rounded")
def test_what_is_recomputed_has_the_mode_of_the_first_pass():
    seen = []

    def f(x):
        seen.append((_C.rounding_override(), _C.few_bits_override()))
        return x * x

    for reentrant in (True, False):
        leaf = X.clone().requires_grad_()
        with rounding("stochastic_c5"):
            y = checkpoint(f, leaf, use_reentrant=reentrant)
        y.sum().backward()
        assert _C.few_bits_override()[0] == 0 and _C.rounding_override() is None
    assert len(seen) == 4 and set(seen) == {(_C.Rounding.stochastic, (5, _C.FewBits.c))}


def test_fuzzy_arithmetic():
    with torch_dtypes.fuzzy(mode="stochastic_a1", seed=1):
        y = torch.full((2000,), 0.1) * torch.full((2000,), 0.3)
    exact = torch.tensor(0.1).double() * torch.tensor(0.3).double()
    assert len(y.unique()) <= 2 and (y.double() - exact).abs().max() < 2.0**-29


def test_where_it_means_nothing():
    """Each says what to do instead."""
    for policy, options in (("format", {"accumulator": "e5m7"}), ("block", {"terms": 4})):
        with pytest.raises(
            ValueError,
            match=r"expected rounding without a number of random "
            r"bits.*accumulator='e5m7_stochastic_a4'",
        ):
            accumulate(policy, rounding="stochastic_a4", **options)
    with pytest.raises(ValueError, match="expected align without a number"):
        accumulate("block", terms=4, align="stochastic_a4")
    with pytest.raises(
        ValueError,
        match="expected a deterministic rounding mode, but got stochastic_a4: its results depend",
    ):
        Job("q43", "add", "stochastic_a4").result  # noqa: B018
    for name in ("stochastic_a64", "stochastic_a0"):
        with pytest.raises(ValueError, match="expected stochastic_bits from 1 to 63"):
            rounding(name)
    for wrong in ("stochastic_d4", "stochastic_a", "up_a4", 17, None, True):
        with pytest.raises(
            ValueError,
            match=r"expected a rounding mode, one of .*; 'stochastic' with few random bits is "
            r"'stochastic_a4'",
        ):
            rounding(wrong)


def test_the_kind_of_random_bits_is_heeded_or_refused():
    with_rounding = torch_dtypes.with_rounding
    assert (
        str(with_rounding("q43", "stochastic_b4", stochastic_kind="b")) == "torch.q43_stochastic_b4"
    )
    assert with_rounding("q43", "stochastic", stochastic_bits=4) is with_rounding(
        "q43", "stochastic", stochastic_bits=4, stochastic_kind="a"
    )
    for mode, kind in (("stochastic_a4", "c"), ("stochastic_b4", "a")):
        with pytest.raises(
            ValueError,
            match=f"expected the kind of random bits once, but got '{mode}' and "
            f"stochastic_kind='{kind}'",
        ):
            with_rounding("q43", mode, stochastic_kind=kind)
    for mode in ("stochastic", "up"):
        for kind in "ab":
            with pytest.raises(
                ValueError,
                match=f"expected stochastic_kind with stochastic_bits only, but got '{kind}' for "
                f"the mode '{mode}'",
            ):
                with_rounding("q43", mode, stochastic_kind=kind)
    with pytest.raises(
        ValueError, match="expected stochastic_kind to be one of 'a', 'b', 'c', but got 'nonsense'"
    ):
        with_rounding("q43", "up", stochastic_kind="nonsense")


def test_sums_of_formats_that_draw_few_bits():
    """Accumulators and registers of two random bits work, as the error of accumulate says."""
    ones, small = (
        torch.ones(1, 2).to(torch.q43),
        torch.tensor([1.0, 2.0**-5]).repeat(4000, 1).to(torch.q43),
    )
    with accumulate("format", accumulator="e5m3_stochastic_a2"):
        stepped = (small @ ones.T).float()
    with accumulate(
        "block", terms=2, extra_bits=10, register="e5m3_stochastic_a2", rounding="stochastic"
    ):
        blocked = torch_dtypes.matmul(small, ones.T, out="e5m7").float()
    for sums in (stepped, blocked):  # 1 + 1/32 is a quarter of a step above 1
        assert (
            set(sums.flatten().tolist()) == {1.0, 1.125}
            and abs((sums > 1).float().mean().item() - 0.25) < 0.03
        )
    tiny = torch.tensor([1.0, 2.0**-6]).repeat(4000, 1).to(torch.q43)
    with accumulate(
        "block", terms=2, extra_bits=10, register="e5m3_stochastic_a2", rounding="stochastic"
    ):
        # An eighth, of which two bits know nothing.
        assert (torch_dtypes.matmul(tiny, ones.T, out="e5m7") == 1).all()

"""torch.autocast with a format dtype as its own."""

import contextlib

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from torch_dtypes import accumulate, rounding

KIND = torch.empty(0).device.type  # set by `--device`
LOW = ["q43", "posit8es1", "posit16es2", "e5m5"]
low_dtypes = pytest.mark.parametrize("low", [getattr(torch, name) for name in LOW], ids=LOW)


def classifier():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 4), nn.LayerNorm(4)
    )


@low_dtypes
def test_a_step_in_a_format_dtype(low):
    """Repeat the step by hand. Convolution and linear layer run in the dtype, with input and
    float32 parameters cast to it. The loss is float32 (on a GPU its logarithms have the dtype, as
    in bfloat16)."""
    model, x, t = classifier(), torch.randn(3, 1, 6, 6, requires_grad=True), torch.tensor([0, 3, 1])
    with torch.autocast(KIND, dtype=low):
        hidden = model[:4](x)
        loss = F.cross_entropy(hidden, t)
    loss.backward()
    assert hidden.dtype is low and loss.dtype is torch.float32
    got, x.grad = [x.grad, *(p.grad for p in model[:4].parameters())], None
    hand = classifier()
    cast = [p.to(low) for p in hand[:4].parameters()]
    y = F.linear(F.relu(F.conv2d(x.to(low), *cast[:2])).flatten(1), *cast[2:])
    want = (
        F.cross_entropy(y.float(), t)
        if KIND == "cpu"
        else F.nll_loss(F.log_softmax(y, 1).float(), t)
    )
    want.backward()
    assert torch.equal(hidden, y) and torch.equal(loss, want)
    for a, b in zip(got, [x.grad, *(p.grad for p in hand[:4].parameters())], strict=True):
        assert a.dtype is torch.float32 and torch.equal(a, b)


IN_FLOAT32 = {
    "prod": lambda x: x.prod(),
    "mse_loss": lambda x: F.mse_loss(x, -x),
    "cdist": lambda x: torch.cdist(x, -x),
    # bfloat16 raises here on a GPU.
    **({"quantile": lambda x: torch.quantile(x, 0.3)} if KIND == "cpu" else {}),
    "vector_norm": torch.linalg.vector_norm,
    "nll_loss": lambda x: F.nll_loss(x, torch.tensor([0, 3, 1, 2])),
}


@pytest.mark.parametrize("name", IN_FLOAT32)
@low_dtypes
def test_what_stock_autocast_runs_in_float32_runs_in_float32(name, low):
    x = torch.randn(4, 4, generator=torch.Generator().manual_seed(0))
    with torch.autocast(KIND, dtype=torch.bfloat16):
        is_float32 = IN_FLOAT32[name](x.bfloat16()).dtype is torch.float32
    with torch.autocast(KIND, dtype=low):
        y = x @ torch.eye(4)
        got = IN_FLOAT32[name](y)
    assert y.dtype is low and got.dtype is (torch.float32 if is_float32 else low)
    assert torch.equal(got, IN_FLOAT32[name](y.float() if is_float32 else y))


@low_dtypes
def test_operators_that_take_the_widest_dtype(low):
    x = torch.randn(2, 2)
    with torch.autocast(KIND, dtype=low):
        y = x @ x
        for tensors, want in (
            ([y, y], low),
            ([y, x], torch.float32),
            ([x, y], torch.float32),
            ([x, x], torch.float32),
        ):
            for join in (torch.cat, torch.stack):
                joined = join(tensors)
                assert joined.dtype is want and torch.equal(
                    joined, join([t.to(want) for t in tensors])
                )
            copied = torch.index_copy(tensors[0], 0, torch.tensor([1]), tensors[1][:1])
            assert copied.dtype is want and torch.equal(copied[1], tensors[1][0].to(want))
    # format tensors are left alone, also beside integers and stock tensors
    with torch.autocast(KIND):
        d = torch.ones(2, 2).to(low)
        assert (
            torch.cat([d, torch.ones(1, 2)]).dtype is torch.float32
            and torch.stack([d, d]).dtype is low
        )
        assert (
            torch.cat([x, x.bfloat16()]).dtype is torch.float32
            and torch.cat([x.bfloat16()] * 2).dtype is torch.bfloat16
        )
        # PyTorch's own error
        with pytest.raises(RuntimeError, match="Unexpected floating ScalarType"):
            torch.cat([x.half(), x.half()])


@pytest.mark.parametrize("low", [torch.q43, torch.posit16es2, torch.bfloat16])
def test_operands_that_were_made_before_the_block(low):
    x, other, wide = (torch.randn(4, 4).to(dtype) for dtype in (low, torch.e5m5, torch.posit32es2))
    with torch.autocast(KIND, dtype=low):
        for made in (x, x.clone()):
            assert (made @ made).dtype is low
            assert F.mse_loss(made, made).dtype is torch.float32
            assert torch.cat([made, torch.randn(4, 4)]).dtype is torch.float32
        for made in (other, other.clone(), wide, wide.clone()):
            alone = made.dtype is torch.posit32es2 or low is torch.bfloat16
            assert (made @ made).dtype is (made.dtype if alone else low)
            assert F.mse_loss(made, made).dtype is (made.dtype if alone else torch.float32)
            assert torch.cat([made, torch.randn(4, 4)]).dtype is torch.promote_types(
                made.dtype, torch.float32
            )
            assert made.float().dtype is torch.float32 and made.to(torch.q43).dtype is torch.q43
        with torch.autocast(KIND, enabled=False):
            assert F.mse_loss(x, x).dtype is low


def test_blocks_nest_and_end():
    x, d = torch.randn(2, 2), torch.posit16es2
    before = torch.get_autocast_dtype(KIND)
    assert before is (torch.bfloat16 if KIND == "cpu" else torch.float16)
    with torch.autocast(KIND, dtype=d):
        assert torch.is_autocast_enabled(KIND) and torch.get_autocast_dtype(KIND) is d
        with torch.autocast(KIND, enabled=False):
            assert (x @ x).dtype is torch.float32
        with torch.autocast(KIND):  # the dtype in force
            assert (x @ x).dtype is d
        with torch.autocast(KIND, dtype=torch.bfloat16):
            assert (x @ x).dtype is torch.bfloat16 and torch.get_autocast_dtype(
                KIND
            ) is torch.bfloat16
        with torch.autocast(KIND, dtype=torch.q43), pytest.raises(ZeroDivisionError):
            assert ((x @ x) @ x).dtype is torch.q43
            raise ZeroDivisionError
        assert (x @ x).dtype is d and (x + x).dtype is torch.float32
    assert torch.get_autocast_dtype(KIND) is before and not torch.is_autocast_enabled(KIND)
    with torch.autocast(KIND, dtype=d, enabled=False):
        assert (x @ x).dtype is torch.float32

    @torch.autocast(KIND, dtype=d)
    def multiply():
        return x @ x

    assert multiply().dtype is d


@pytest.mark.parametrize("low", [torch.posit32es2, torch.tf32])
def test_what_is_not_narrower_than_float32_is_no_target_of_autocast(low):
    """PyTorch's own warning names bfloat16 and float16, and the block would go on in float32."""
    said = (
        rf"expected a dtype stored in 8 or 16 bits in torch.autocast, but got {low}, stored in "
        rf"32.*model.to\({low}\)"
    )
    with pytest.raises(ValueError, match=said):
        torch.autocast(KIND, dtype=low)
    with torch.autocast(KIND, dtype=low, enabled=False):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype is torch.float32
    if KIND == "cuda":  # stock PyTorch takes any dtype there
        return
    with (
        pytest.warns(UserWarning, match="target dtype is not supported"),
        torch.autocast(KIND, dtype=torch.float64),
    ):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype is torch.float32


def test_autocast_takes_our_dtypes_where_there_are_tensors_of_them():
    with pytest.raises(
        ValueError,
        match=r"expected device_type 'cpu' or 'cuda' in torch.autocast with torch.q43, but got "
        r"'xpu'",
    ):
        torch.autocast("xpu", dtype=torch.q43)
    torch.autocast("xpu", dtype=torch.q43, enabled=False)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_autocast_of_an_absent_gpu_is_unchanged():
    with pytest.raises(ValueError, match="expected a dtype stored in 8 or 16 bits"):
        torch.autocast("cuda", dtype=torch.posit32es2)
    said = []
    for low in (torch.bfloat16, torch.posit16es2):
        with (
            pytest.warns(UserWarning, match="CUDA is not available") as found,
            torch.autocast("cuda", dtype=low),
        ):
            assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype is torch.float32
        said.append(str(found[0].message))
    assert said[0] == said[1]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_dtype_can_be_set_without_a_block(device):
    before = torch.get_autocast_dtype(device)
    try:
        torch.set_autocast_dtype(device, torch.q52)
        assert torch.get_autocast_dtype(device) is torch.q52
        other = "cpu" if device == "cuda" else "cuda"
        assert torch.get_autocast_dtype(other) in (torch.bfloat16, torch.float16)
    finally:
        torch.set_autocast_dtype(device, before)
    assert torch.get_autocast_dtype(device) is before


def test_policies_and_modes_hold_in_autocast():
    x, w = torch.randn(4, 9), nn.Linear(9, 2)
    with torch.autocast(KIND, dtype=torch.q43), accumulate("format"), rounding("toward_zero"):
        y = w(x)
    with accumulate("format"), rounding("toward_zero"):
        assert torch.equal(
            y, F.linear(x.to(torch.q43), w.weight.to(torch.q43), w.bias.to(torch.q43))
        )


def test_weights_are_cast_once_a_block():
    """Gradients of one cast are added up in the dtype: 16 + 1 is 16 in q43."""
    for cached, want in ((True, 16.0), (False, 17.0)):
        w = nn.Linear(1, 1, bias=False)
        with torch.autocast(KIND, dtype=torch.q43, cache_enabled=cached):
            y = w(torch.full((1, 1), 16.0)), w(torch.ones(1, 1))
        (y[0].float() + y[1].float()).sum().backward()
        assert w.weight.grad.item() == want


def test_weights_are_cast_anew_in_a_block_of_rounding():
    layer = nn.Linear(64, 8, bias=False)
    with torch.autocast(KIND, dtype=torch.q43):
        found = {}
        for mode in ("nearest_even", "up", "down", None):
            with rounding(mode) if mode else contextlib.nullcontext():
                found[mode] = layer(torch.eye(64)).t()
        for mode, weight in found.items():
            with rounding(mode or "nearest_even"):
                assert torch.equal(weight, layer.weight.to(torch.q43)), mode


def test_around_autocast_with_a_format_dtype():
    class Doubled(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type=KIND, cast_inputs=torch.float32)
        def forward(ctx, x):
            assert not torch.is_autocast_enabled(KIND)
            return x * 2

        @staticmethod
        @torch.amp.custom_bwd(device_type=KIND)
        def backward(ctx, g):
            return g * 2

    model, x = classifier(), torch.randn(3, 1, 6, 6)
    scaler, optimizer = (
        torch.amp.GradScaler(KIND, init_scale=8.0),
        torch.optim.SGD(model.parameters(), lr=0.1),
    )
    losses = []
    for reentrant in (None, True, False):
        with torch.autocast(KIND, dtype=torch.q43):
            y = (
                model[:4](x)
                if reentrant is None
                else checkpoint(model[:4], x.requires_grad_(), use_reentrant=reentrant)
            )
            assert Doubled.apply(y).dtype is torch.float32
            loss = F.cross_entropy(y, torch.tensor([0, 3, 1]))
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        losses.append([loss, *(p.grad for p in model[:4].parameters())])
    for other in losses[1:]:
        assert all(torch.equal(a, b) for a, b in zip(losses[0], other, strict=True))
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 8


# ---- backward() within the block ----


class Multiplied(torch.autograd.Function):
    """A function without custom_bwd. It multiplies two dtypes, which autocast brings together."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        assert torch.is_autocast_enabled(KIND)
        return g @ w.t(), x.t() @ g


def gradients_of(low, within, by):
    torch.manual_seed(0)
    model, w = (
        nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.LayerNorm(4)),
        torch.randn(4, 4, requires_grad=True),
    )
    x = torch.randn(3, 4, requires_grad=True)
    with torch.autocast(KIND, dtype=low):
        with torch.autocast(KIND, enabled=False):
            hidden = x @ w
        y = (
            checkpoint(model, hidden, use_reentrant=by == "reentrant checkpoint")
            if "checkpoint" in by
            else model(hidden)
        )
        loss = y.float().square().sum()
        if within:
            loss.backward()
            assert torch.is_autocast_enabled(KIND) and (x @ w).dtype is low
    if not within:
        loss.backward()
    return [x.grad, w.grad, *(p.grad for p in model.parameters())]


@pytest.mark.parametrize("by", ["call", "checkpoint", "reentrant checkpoint"])
@low_dtypes
def test_gradients_within_the_block_are_those_behind_it(low, by):
    """Float32 operators have float32 gradients, because autocast also covers PyTorch's gradient
    formulas."""
    for a, b in zip(gradients_of(low, True, by), gradients_of(low, False, by), strict=True):
        assert a.dtype is torch.float32 and torch.equal(a, b)


@low_dtypes
def test_functions_of_users_are_autocast_s_in_backward(low):
    x, w = torch.randn(3, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)
    with torch.autocast(KIND, dtype=low):
        y = Multiplied.apply(x, w)
        y.float().sum().backward()
        y = x @ w
        y.register_hook(lambda g: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            y.float().sum().backward()
        assert (x @ w).dtype is low
    ones = torch.ones(3, 4).to(low)
    assert torch.equal(x.grad, (ones @ w.detach().to(low).t()).float()) and torch.equal(
        w.grad, (x.detach().to(low).t() @ ones).float()
    )


@pytest.mark.filterwarnings(
    "ignore:torch.compile runs code that works on format tensors:UserWarning"
)
def test_compiled_code_in_autocast_with_a_format_dtype():
    layer, x = nn.Linear(3, 2), torch.randn(4, 3)

    def within(x):
        with torch.autocast(KIND, dtype=torch.q43):
            y = layer(x)
        return y.float() + 1

    compiled = torch.compile(layer, backend="eager")
    assert compiled(x).dtype is torch.float32
    with torch.autocast(KIND, dtype=torch.q43):
        assert compiled(x).dtype is torch.q43 and torch.equal(compiled(x), layer(x))
    assert torch.equal(torch.compile(within, backend="eager")(x), within(x))

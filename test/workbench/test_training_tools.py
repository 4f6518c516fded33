"""Tools around training with format dtypes: averaging, parametrizations, pruning, packed sequences,
replicas, sharing, profiler, collectives."""

import copy
import threading

import pytest
import torch
from conftest import parametrize_dtypes
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune
from torch.nn.utils.rnn import (
    pack_padded_sequence,
    pack_sequence,
    pad_packed_sequence,
    unpack_sequence,
)
from torch.optim.swa_utils import (
    SWALR,
    AveragedModel,
    get_ema_avg_fn,
    get_ema_multi_avg_fn,
    get_swa_multi_avg_fn,
    update_bn,
)
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop
from torch.utils.data import default_collate

import torch_dtypes

DTYPE = torch.posit16es2
every_dtype = parametrize_dtypes("posit16es2 q43 posit32es2 e5m7")


def numbers(*shape, dtype=DTYPE, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def network(dtype=DTYPE):
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(32, 2)
    ).to(dtype)


def expect_all(tensors, dtype=DTYPE):
    tensors = list(tensors)
    assert tensors and {t.dtype for t in tensors} == {dtype}
    assert all(t.double().isfinite().all() for t in tensors)


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"avg_fn": get_ema_avg_fn(0.9)},
        {"multi_avg_fn": get_ema_multi_avg_fn(0.9)},
        {"multi_avg_fn": get_swa_multi_avg_fn()},
    ],
    ids=["mean", "ema", "multi ema", "multi mean"],
)
@every_dtype
def test_averaged_models(how, dtype):
    model = network(dtype)
    averaged, optimizer = AveragedModel(model, **how), torch.optim.SGD(model.parameters(), lr=0.125)
    scheduler = SWALR(optimizer, swa_lr=0.0625)
    for i in range(3):
        optimizer.zero_grad()
        model(numbers(4, 1, 6, 6, dtype=dtype, seed=i)).sum().backward()
        optimizer.step()
        scheduler.step()
        averaged.update_parameters(model)
    update_bn([numbers(4, 1, 6, 6, dtype=dtype)], averaged)
    expect_all(
        [*averaged.parameters(), *(b for b in averaged.buffers() if b.is_floating_point())], dtype
    )


@pytest.mark.parametrize("convert", ["before", "after"])
@pytest.mark.parametrize(
    "how",
    [parametrizations.weight_norm, parametrizations.spectral_norm, parametrizations.orthogonal],
)
def test_parametrizations(how, convert):
    model = (
        how(nn.Linear(3, 4).to(DTYPE)) if convert == "before" else how(nn.Linear(3, 4)).to(DTYPE)
    )
    model(numbers(5, 3)).sum().backward()
    expect_all(p.grad for p in model.parameters())
    expect_all([copy.deepcopy(model)(numbers(5, 3)), model.weight])
    parametrize.remove_parametrizations(model, "weight")
    expect_all([model.weight])


def test_pruning_and_vectors():
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)).to(DTYPE)
    prune.l1_unstructured(model[0], "weight", 0.25)
    prune.global_unstructured(
        [(model[0], "weight"), (model[1], "weight")],
        pruning_method=prune.L1Unstructured,
        amount=0.2,
    )
    assert (model[0].weight == 0).sum() >= 3
    expect_all([model(numbers(5, 3)), *model.buffers(), *model.parameters()])
    prune.remove(model[0], "weight")
    vector = nn.utils.parameters_to_vector(model.parameters())
    nn.utils.vector_to_parameters(vector * 2, model.parameters())
    assert vector.dtype is DTYPE and torch.equal(
        nn.utils.parameters_to_vector(model.parameters()), vector * 2
    )


@every_dtype
def test_packed_sequences_keep_every_bit(dtype):
    """Regression: pad_packed_sequence wrote the numbers into a tensor of the storage dtype."""
    x = numbers(5, 3, 2, dtype=dtype).requires_grad_()
    packed = pack_padded_sequence(x, [2, 5, 3], enforce_sorted=False)
    padded, lengths = pad_packed_sequence(packed, padding_value=1.3)
    assert padded.dtype is dtype and lengths.tolist() == [2, 5, 3]
    for i, n in enumerate([2, 5, 3]):
        assert torch.equal(padded[:n, i], x[:n, i])
        assert (padded[n:, i] == torch.tensor(1.3, dtype=dtype)).all()
    padded.sum().backward()
    assert x.grad.dtype is dtype and x.grad.double().sum() == 20
    parts = [numbers(3, 2, dtype=dtype), numbers(2, 2, dtype=dtype)]
    for got, want in zip(unpack_sequence(pack_sequence(parts)), parts, strict=True):
        assert got.dtype is dtype and torch.equal(got, want)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_networks_on_packed_sequences(kind):
    model, sequences = (
        kind(2, 3, num_layers=2, bidirectional=True).to(DTYPE),
        [numbers(4, 2), numbers(3, 2, seed=1), numbers(1, 2, seed=2)],
    )
    out, state = model(pack_sequence(sequences))
    for got, x in zip(unpack_sequence(out), sequences, strict=True):
        assert torch.equal(got, model(x)[0])
    last = model(sequences[1])[1]
    for got, want in zip(
        state if kind is nn.LSTM else [state], last if kind is nn.LSTM else [last], strict=True
    ):
        assert torch.equal(got[:, 1], want)
    pad_packed_sequence(out)[0].sum().backward()
    expect_all([out.data, *(p.grad for p in model.parameters())])


def lstm_step_by_step(model, x):
    """Compute the layer's equations (torch.nn.LSTM's docstring), each operator rounded; x: (steps,
    batch, features)."""
    h = c = torch.zeros(x.size(1), model.hidden_size, dtype=x.dtype)
    out = []
    for inputs in nn.functional.linear(x, model.weight_ih_l0, model.bias_ih_l0):
        i, f, g, o = (nn.functional.linear(h, model.weight_hh_l0, model.bias_hh_l0) + inputs).chunk(
            4, 1
        )
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        out.append(h)
    return torch.stack(out), h, c


@pytest.mark.parametrize("batch_first", [False, True])
@every_dtype
def test_lstm_rounds_every_operator_on_every_machine(dtype, batch_first):
    model, x = nn.LSTM(3, 4, batch_first=batch_first).to(dtype), numbers(5, 2, 3, dtype=dtype)
    out, h, c = lstm_step_by_step(model, x)
    inputs = (x.transpose(0, 1) if batch_first else x).detach().requires_grad_()
    got, (got_h, got_c) = model(inputs)
    assert (
        torch.equal(got.transpose(0, 1) if batch_first else got, out)
        and torch.equal(got_h[0], h)
        and torch.equal(got_c[0], c)
    )
    got.sum().backward()
    expect_all([inputs.grad, *(p.grad for p in model.parameters())], dtype)
    with torch.no_grad():
        assert torch.equal(model(inputs)[0], got)


def test_lstm_without_batches_or_numbers_and_of_wrong_sizes():
    model = nn.LSTM(3, 4, num_layers=2, bidirectional=True, proj_size=2).to(DTYPE)
    assert model(numbers(5, 3))[0].shape == (5, 4)
    assert model(numbers(5, 0, 3))[0].shape == (5, 0, 4)
    with pytest.raises(RuntimeError, match="at least one step"):
        model(numbers(0, 2, 3))
    states, weights = [numbers(4, 1, 2), numbers(4, 1, 4)], list(model.parameters())
    with pytest.raises(RuntimeError, match=r"size \(4, 2, features\), but got \[4, 1, 2\]"):
        torch.ops.aten.lstm(numbers(5, 2, 3), states, weights, True, 2, 0.0, True, True, False)
    rows, states = numbers(5, 3), [numbers(4, 2, 2), numbers(4, 2, 4)]
    for sizes, message in [
        ([2, 3], "descending order"),
        ([3, 2, 0], "positive"),
        ([2, 2], "4 rows, but got"),
        ([], "at least one element"),
    ]:
        with pytest.raises(RuntimeError, match=message):
            torch.ops.aten.lstm(
                rows,
                torch.tensor(sizes, dtype=torch.int64, device="cpu"),
                states,
                weights,
                True,
                2,
                0.0,
                True,
                True,
            )
    with pytest.raises(
        RuntimeError, match="expected 5 weights for each of 4 layers and directions, but got 19"
    ):
        torch.ops.aten.lstm(
            rows,
            torch.tensor([2, 2, 1], device="cpu"),
            states,
            weights[1:],
            True,
            2,
            0.0,
            True,
            True,
        )
    with pytest.raises(RuntimeError, match="two initial states"):
        torch.ops.aten.lstm(numbers(5, 2, 3), states[:1], weights, True, 2, 0.0, True, True, False)


@every_dtype
def test_attention_keeps_the_query_s_dtype_beside_a_float32_mask(dtype):
    q, mask = (
        numbers(1, 3, 8, dtype=dtype).requires_grad_(),
        torch.full((3, 3), float("-inf")).triu(1),
    )
    out = nn.functional.scaled_dot_product_attention(q, q, q, attn_mask=mask)
    out.sum().backward()
    expect_all([out, q.grad], dtype)
    assert torch.equal(out[:, 0], q[:, 0])


@every_dtype
def test_encoders_with_padding_do_not_go_by_nested_tensors(dtype):
    torch.manual_seed(0)
    model = (
        nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 8, batch_first=True), 1)
        .to(dtype)
        .eval()
    )
    x, padding = numbers(2, 3, 8, dtype=dtype), torch.tensor([[False] * 3, [False, False, True]])
    with torch.no_grad():
        expect_all([model(x, src_key_padding_mask=padding)[~padding]], dtype)
    with pytest.raises(NotImplementedError, match="there are no nested tensors"):
        torch._nested_tensor_from_mask(x, ~padding, mask_check=False)


def test_clipping_by_value_and_norm_with_what_is_not_finite():
    model = network()
    model(numbers(4, 1, 6, 6)).sum().backward()
    nn.utils.clip_grad_value_(model.parameters(), 0.125)
    assert all(p.grad.abs().max() <= 0.125 for p in model.parameters())
    assert nn.utils.get_total_norm([p.grad for p in model.parameters()]).dtype is torch.float32
    next(model.parameters()).grad.view(-1)[0] = float("nan")
    with pytest.raises(RuntimeError, match="expected a finite total norm"):
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoints_repeat_stochastic_rounding(reentrant):
    dtype = torch_dtypes.with_rounding(DTYPE, "stochastic")
    model, x, seen = (
        nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Dropout(0.5)).to(dtype),
        numbers(5, 3, dtype=dtype).requires_grad_(),
        [],
    )
    model[2].register_forward_hook(
        lambda module, given, result: seen.append(result.detach().clone())
    )
    with set_checkpoint_early_stop(False):
        checkpoint(model, x, use_reentrant=reentrant).sum().backward()
    assert len(seen) == 2 and torch.equal(*seen)


def test_replicas_in_threads():
    """Run models as torch.nn.parallel.parallel_apply does, which takes none on the CPU."""
    model = network()
    replicas, inputs, found = (
        [copy.deepcopy(model) for _ in range(4)],
        [numbers(8, 1, 6, 6, seed=i) for i in range(4)],
        {},
    )

    def run(i):
        for _ in range(5):
            replicas[i].zero_grad()
            y = replicas[i](inputs[i])
            y.sum().backward()
        found[i] = [y, *(p.grad for p in replicas[i].parameters())]

    threads = [threading.Thread(target=run, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i in range(4):
        model.zero_grad()
        y = model(inputs[i])
        y.sum().backward()
        for got, want in zip(found[i], [y, *(p.grad for p in model.parameters())], strict=True):
            assert torch.equal(got, want)


def test_sharing_and_collating():
    model = network()
    model.share_memory()
    assert all(p.is_shared() and p.dtype is DTYPE for p in model.parameters())
    batch = default_collate([(numbers(3, seed=i), {"y": numbers(seed=i)}) for i in range(4)])
    assert batch[0].dtype is DTYPE and batch[0].shape == (4, 3) and batch[1]["y"].dtype is DTYPE


@every_dtype
def test_meta_device(dtype):
    """Regression: torch.rand on the meta device read memory that does not exist."""
    with torch.device("meta"):
        made = [
            torch.rand(3, dtype=dtype),
            torch.randn(3, dtype=dtype),
            torch.tensor([1.0], dtype=dtype),
            torch.full((3,), 1.5, dtype=dtype),
        ]
        made += [
            torch.arange(3, dtype=dtype),
            torch.eye(3, dtype=dtype),
            torch.linspace(0, 1, 3, dtype=dtype),
        ]
        made += [nn.Linear(3, 2, dtype=dtype).weight]
    assert all(t.is_meta and t.dtype is dtype for t in made)
    model = network(dtype).to("meta")
    y = model(torch.empty(2, 1, 6, 6, dtype=dtype, device="meta"))
    y.sum().backward()
    assert y.is_meta and y.dtype is dtype and model[0].weight.grad.dtype is dtype
    x = numbers(2, 1, 6, 6, dtype=dtype)
    model.to_empty(device=x.device).load_state_dict(network(dtype).state_dict())
    expect_all([model(x)], dtype)
    assert nn.utils.skip_init(nn.Linear, 3, 4, dtype=dtype).weight.dtype is dtype


@pytest.mark.filterwarnings("ignore:.*Profiler clears events:UserWarning")  # PyTorch 2.11's
def test_profiles_name_the_steps():
    model, x = nn.Sequential(nn.Linear(3, 4), nn.Tanh()).to(DTYPE), numbers(5, 3)
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        model(x).sum().backward()
        x.float()
    counts = {event.key: event.count for event in profiled.key_averages()}
    assert counts["formats::decode"] > 2 and counts["formats::encode"] > 2
    assert {
        "aten::addmm",
        "aten::tanh",
        "aten::_to_copy",
        "autograd::engine::evaluate_function: AddmmBackward0",
    } <= set(counts)
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        x.float()
    assert [
        event.key for event in profiled.key_averages() if event.key.startswith("formats::")
    ] == ["formats::decode"]


def test_profiles_count_operators_once():
    def counts(dtype):
        layer, image, x = (
            nn.Linear(3, 4).to(dtype),
            torch.ones(1, 1, 4, 4).to(dtype),
            torch.ones(5, 3).to(dtype),
        )
        with profile(activities=[ProfilerActivity.CPU], with_flops=True) as profiled:
            (
                layer(x),
                x @ x.T,
                x[None].bmm(x.T[None]),
                torch.softmax(x, 1),
                nn.functional.conv2d(image, image),
            )
        seen = ("addmm", "mm", "bmm", "_softmax", "conv2d")
        return {
            e.key: (e.count, e.flops)
            for e in profiled.key_averages()
            if e.key.removeprefix("aten::") in seen
        }

    assert counts(DTYPE) == counts(torch.bfloat16)


def test_wrapper_subclasses_are_refused():
    with pytest.raises(
        NotImplementedError,
        match=r"_make_wrapper_subclass: expected a stock dtype, but got torch\.posit16es2",
    ):
        torch.Tensor._make_wrapper_subclass(torch.Tensor, (3,), dtype=DTYPE)

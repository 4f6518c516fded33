"""Other libraries with format tensors: einops, TensorBoard, Lightning, matplotlib, pandas,
distributed checkpoints, transformers. Each runs if it is installed."""

import json
import types

import pytest
import torch
from conftest import parametrize_dtypes
from representatives import thin_out
from torch import nn

import torch_dtypes

NAMES = "posit16es2 q43 posit12es1 posit32es2 e5m7".split()
every_dtype = parametrize_dtypes(NAMES)


def needs(name):
    return pytest.importorskip(name, reason=f"{name} is not installed")


# ---- arrays of NumPy, and with them matplotlib and pandas ----


@every_dtype
def test_asarray_gives_values(dtype):
    np = needs("numpy")
    x = torch.tensor([1.0, -2.0, 3.5, 0.1], dtype=dtype)
    wide = np.float64 if dtype is torch.posit32es2 else np.float32
    for made, expected in (
        (np.asarray(x), x),
        (np.asarray([x, x]), torch.stack([x, x])),
        (np.asarray(x, dtype=np.float64), x),
        (np.asarray(x.view(2, 2)), x.view(2, 2)),
        (np.asarray(x[2]), x[2]),
        (np.asarray([x[0], x[3]]), x[[0, 3]]),
    ):
        assert made.astype(np.float64).tolist() == expected.double().tolist()
        assert made.dtype in (wide, np.float64)
    made = np.asarray(x)
    made[0] = 7
    assert x[0] == 1
    if dtype is not torch.q43:  # which ml_dtypes has: numpy() gives an array on the tensor's memory
        with pytest.raises(
            TypeError,
            match=rf"expected a dtype that NumPy has a type for, but got {dtype}; use "
            r"x.double\(\).numpy\(\)",
        ):
            x.numpy()
    with pytest.raises(RuntimeError, match="requires grad"):
        np.asarray(x.requires_grad_())


@every_dtype
def test_matplotlib_draws_tensors(dtype):
    axes = needs("matplotlib.figure").Figure().add_subplot()
    x = torch.tensor([1.0, -2.0, 3.5, 0.5], dtype=dtype)
    assert [float(y) for y in axes.plot(x)[0].get_ydata()] == x.tolist()
    assert [float(y) for y in axes.plot([x[1], x[2]])[0].get_ydata()] == x[1:3].tolist()
    assert axes.hist(x, bins=2)[0].tolist() == [2, 2]
    assert axes.scatter(x, x).get_offsets().astype(float).tolist() == [[v, v] for v in x.tolist()]


@every_dtype
def test_pandas_takes_tensors(dtype):
    pandas = needs("pandas")
    x = torch.tensor([1.0, -2.0, 3.5, 0.5], dtype=dtype)
    assert [float(v) for v in pandas.Series(x)] == x.tolist()
    assert pandas.DataFrame({"a": x})["a"].astype(float).tolist() == x.tolist()
    assert pandas.DataFrame(x.view(2, 2)).astype(float).to_numpy().tolist() == x.view(2, 2).tolist()


# ---- a notebook's habits ----

DRAWN = {
    "plot": lambda axes, x: axes.plot(x, -x),
    "hist": lambda axes, x: axes.hist([x, x], bins=4),
    "errorbar": lambda axes, x: axes.errorbar(x, x, yerr=x.abs()),
    "bar": lambda axes, x: axes.bar(range(6), x),
    "fill_between": lambda axes, x: axes.fill_between(range(6), x, x + 1),
    "imshow": lambda axes, x: axes.imshow(x.view(2, 3)),
    "pcolormesh": lambda axes, x: axes.pcolormesh(x.view(2, 3)),
    "contourf": lambda axes, x: axes.contourf(x.view(2, 3)),
    "boxplot": lambda axes, x: axes.boxplot(x),
    "scatter": lambda axes, x: axes.scatter(x, x, c=x),
    "axhline": lambda axes, x: axes.axhline(x[0]),
}


@pytest.mark.parametrize("dtype", thin_out(NAMES, ()), indirect=True)
# Of stock tensors.
@pytest.mark.filterwarnings(
    "ignore:__array_wrap__ must:DeprecationWarning", "ignore:__array__ impl:DeprecationWarning"
)
def test_what_is_drawn_is_what_a_float32_tensor_gives(dtype):
    backend = needs("matplotlib.backends.backend_agg")
    from matplotlib.figure import Figure

    x = torch.tensor([1.0, -2.0, 3.5, 0.5, 0.25, 2.0], dtype=dtype)
    for name, draw in DRAWN.items():
        pictures = []
        for values in (x, x.float()):
            figure = Figure(figsize=(2, 2), dpi=50)
            draw(figure.add_subplot(), values)
            canvas = backend.FigureCanvasAgg(figure)
            canvas.draw()
            pictures.append(bytes(canvas.buffer_rgba()))
        assert pictures[0] == pictures[1], name


@every_dtype
def test_pandas_computes_with_tensors(dtype):
    pandas = needs("pandas")
    x = torch.tensor([1.0, -2.0, 3.5, 0.5], dtype=dtype)
    ours, stock = (pandas.DataFrame({"a": values, "k": [0, 1, 0, 1]}) for values in (x, x.double()))
    wide = stock["a"].astype(ours["a"].dtype)
    assert ours["a"].dtype in ("float32", "float64") and ours["a"].tolist() == wide.tolist()
    assert (
        ours.describe().shape == (8, 2)
        and ours["a"].mean() == wide.mean()
        and ours["a"].quantile(0.5) == wide.quantile(0.5)
    )
    assert ours.groupby("k")["a"].sum().tolist() == stock.groupby("k")["a"].sum().tolist()
    assert (
        pandas.concat([ours, ours])["a"].tolist() == x.tolist() * 2
        and ours.to_csv() == stock.to_csv()
    )
    assert (
        pandas.DataFrame([{"loss": x[0].item()}, {"loss": x[1].item()}])["loss"].tolist()
        == x[:2].tolist()
    )
    assert torch.tensor(ours["a"].to_numpy(), dtype=dtype).tolist() == x.tolist()


@every_dtype
def test_batches_of_examples_are_collated(dtype):
    x = torch.tensor([1.0, -2.0, 3.5, 0.5], dtype=dtype)
    batch = torch.utils.data.default_collate(
        [{"x": x, "y": x[0], "n": 1}, {"x": x, "y": x[1], "n": 2}]
    )
    assert batch["x"].dtype is dtype and torch.equal(batch["x"], torch.stack([x, x]))
    assert (
        batch["y"].dtype is dtype
        and batch["y"].tolist() == x[:2].tolist()
        and batch["n"].tolist() == [1, 2]
    )
    np = needs("numpy")
    # Values, as of any array.
    of_arrays = torch.utils.data.default_collate([np.asarray(x), np.asarray(x)])
    assert (
        of_arrays.dtype in (torch.float32, torch.float64) and of_arrays.tolist() == [x.tolist()] * 2
    )
    # The same result as for a table of plain numbers.
    columns = torch.utils.data.default_collate([{"x": x.tolist()}, {"x": x.tolist()}])
    assert torch.equal(torch.stack(columns["x"]).t().to(dtype), torch.stack([x, x]))


@every_dtype
def test_hugging_face_datasets_take_arrays(dtype):
    needs("datasets")
    from datasets.features import features
    from datasets.formatting import TorchFormatter

    np, pyarrow = needs("numpy"), needs("pyarrow")
    x = torch.tensor([[1.0, -2.0], [3.5, 0.1]], dtype=dtype)
    for column in (np.asarray(x), x.tolist()):
        plain = features.cast_to_python_objects({"x": column}, only_1d_for_numpy=True)
        table = pyarrow.table({"x": plain["x"]})
        assert table.column("x").to_pylist() == x.tolist()
        again = TorchFormatter(dtype=dtype).format_batch(table)["x"]
        assert again.dtype is dtype and torch.equal(again, x)


@every_dtype
def test_numbers_are_written(dtype):
    import json

    x = torch.tensor([1.0, -2.0, 3.5, 0.5], dtype=dtype)
    assert f"{x[2]:.3f} {x[1]:>8.2e} {x[0]:g}" == "3.500 -2.00e+00 1"
    assert "%.2f" % x[3] == "0.50" and int(x[2]) == 3 and float(x[1]) == -2.0  # noqa: UP031
    assert json.loads(json.dumps(x.tolist())) == [1.0, -2.0, 3.5, 0.5]
    with pytest.raises(TypeError, match="not JSON serializable"):  # as of any tensor
        json.dumps({"loss": x[0]})
    with pytest.raises(TypeError, match="unsupported format string"):
        f"{x:.3f}"


# ---- einops ----


@every_dtype
def test_einops_reduces_to_means(dtype):
    einops = needs("einops")
    x = torch.tensor([[1.0, 2.0, 4.0], [3.0, 0.5, 1.0]], dtype=dtype)
    for operation in ("mean", "sum", "amax", "amin", "prod"):
        made, expected = (
            einops.reduce(x, "a b -> a", operation.removeprefix("a")),
            getattr(x, operation)(1),
        )
        assert made.dtype is dtype and torch.equal(made, expected)
    layer = needs("einops.layers.torch").Reduce("(a two) b -> two b", "mean", two=2)
    y = x.clone().requires_grad_()
    layer(y).sum().backward()
    assert y.grad.dtype is dtype and torch.equal(layer(x), x)
    assert (
        einops.einsum(x, x, "a b, c b -> a c").dtype is dtype
        and einops.rearrange(x, "a b -> b a").dtype is dtype
    )
    with pytest.raises(NotImplementedError, match="not available for non-floating"):
        einops.reduce(torch.ones(2, 2, dtype=torch.int64), "a b -> a", "mean")


# ---- torchmetrics ----


@every_dtype
def test_metrics_begin_with_infinities(dtype):
    """Of a posit the first state was NaR, and so was every maximum after it."""
    torchmetrics = needs("torchmetrics")
    x = torch.tensor([1.0, -2.0, 3.5], dtype=dtype)
    for kind, expected in ((torchmetrics.MaxMetric, 3.5), (torchmetrics.MinMetric, -2.0)):
        for metric in (
            kind().to(dtype),
            kind().set_dtype(dtype),
            nn.ModuleList([kind()]).to(dtype)[0],
        ):
            for _ in range(2):
                metric.update(x)
                assert metric.compute().dtype is dtype and metric.compute() == expected
                metric.reset()
        assert kind().type(dtype).dtype is torch.float32  # a cast that torchmetrics leaves out
    assert torchmetrics.MaxMetric().set_dtype(torch.bfloat16).max_value == -float("inf")


# ---- TensorBoard ----


@every_dtype
def test_tensorboard_writes_values(dtype, tmp_path):
    needs("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter
    from torch.utils.tensorboard._convert_np import make_np

    x = torch.tensor([1.0, -2.0, 3.5, 0.1], dtype=dtype)
    with SummaryWriter(str(tmp_path)) as writer:
        writer.add_scalar("scalar", x[3], 1)
        writer.add_histogram("histogram", nn.Parameter(x), 1)
        writer.add_image("image", x.abs().view(1, 2, 2), 1)
        writer.add_hparams({"lr": 0.1}, {"metric": x[0]})
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    assert events.Scalars("scalar")[0].value == torch.tensor(x[3].item()).item()
    found = events.Histograms("histogram")[0].histogram_value
    assert (found.min, found.max, found.num, found.sum) == (-2, 3.5, 4, x.double().sum().item())
    assert (
        make_np(x).dtype == ("float64" if dtype is torch.posit32es2 else "float32")
        and make_np(x).tolist() == x.tolist()
    )
    assert (
        make_np(torch.tensor(1.5, dtype=torch.bfloat16)).dtype == "float16"
    )  # as without this package


# ---- Lightning ----


@pytest.mark.parametrize("package", ["lightning", "pytorch_lightning"])
@pytest.mark.parametrize("precision", ["posit16es2", torch.q43])
@pytest.mark.filterwarnings("ignore")  # Lightning's own
def test_lightning_trains_in_a_precision_of_ours(package, precision, tmp_path):
    lightning = needs(package)
    dtype = torch_dtypes.dtype(precision)

    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer, self.seen = nn.Linear(4, 2), set()

        def training_step(self, batch, _):
            x, t = batch
            y = self.layer(x)
            self.seen |= {x.dtype, y.dtype}
            return nn.functional.cross_entropy(y, t)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    def trainer(precision):
        return lightning.Trainer(
            precision=precision,
            max_epochs=1,
            accelerator="cpu",
            devices=1,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=str(tmp_path),
        )

    model, made = Model(), trainer(precision)
    data = torch.utils.data.TensorDataset(torch.randn(8, 4), torch.randint(0, 2, (8,)))
    made.fit(model, torch.utils.data.DataLoader(data, batch_size=4))
    assert (
        made.precision == str(dtype)[6:]
        and model.seen == {dtype}
        and model.layer.weight.dtype is dtype
    )
    assert (
        torch.get_default_dtype() is torch.float32 and trainer("bf16-true").precision == "bf16-true"
    )
    with pytest.raises(
        ValueError,
        match=r"'posit16es99' is invalid.*Or use the name of a number format, such as 'posit16es2'",
    ):
        trainer("posit16es99")


@pytest.mark.filterwarnings("ignore")
def test_lightning_fabric_in_a_precision_of_ours():
    lightning = needs("lightning")
    fabric = lightning.Fabric(precision="posit16es2", accelerator="cpu", devices=1)
    model = nn.Linear(4, 2)
    model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.1))
    fabric.backward(model(torch.randn(3, 4)).sum())
    optimizer.step()
    assert model.weight.dtype is model.weight.grad.dtype is torch.posit16es2


# ---- checkpoints of torch.distributed, in one process ----


@every_dtype
@pytest.mark.filterwarnings("ignore:torch.distributed")  # that there is one process
def test_distributed_checkpoints_are_exact(dtype, tmp_path):
    checkpoint = needs("torch.distributed.checkpoint")

    def model():
        return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).to(dtype)

    one, other = model(), model()
    optimizer = torch.optim.Adam(one.parameters(), eps=0.5)
    one(torch.rand(5, 3).to(dtype)).sum().backward()
    optimizer.step()
    checkpoint.save(
        {"model": one.state_dict(), "optimizer": optimizer.state_dict()},
        checkpoint_id=tmp_path / "c",
        no_dist=True,
    )
    state = {"model": other.state_dict(), "optimizer": optimizer.state_dict()}
    checkpoint.load(state, checkpoint_id=tmp_path / "c", no_dist=True)
    for name, t in one.state_dict().items():
        assert state["model"][name].dtype is t.dtype and torch.equal(state["model"][name], t)
    stock = {"model": nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).state_dict()}
    checkpoint.load(stock, checkpoint_id=tmp_path / "c", no_dist=True)
    assert torch.equal(stock["model"]["0.weight"], one[0].weight.float())


# ---- autocast as transformers calls it, and transformers ----


def test_autocast_as_rotary_embeddings_call_it():
    x = torch.tensor([[1.0, 2.0]], dtype=torch.posit16es2)
    for arguments in ({}, {"dtype": torch.posit16es2}, {"dtype": torch.bfloat16}):
        with torch.autocast(x.device.type, enabled=False, **arguments):
            assert (x @ x.t()).dtype is torch.posit16es2 and (
                x.float() @ x.float().t()
            ).dtype is torch.float32
    with torch.autocast(x.device.type, dtype=torch.posit16es2):
        assert (x @ x.t()).dtype is torch.posit16es2 and (
            x.float() @ x.float().t()
        ).dtype is torch.posit16es2


@every_dtype
@pytest.mark.filterwarnings("ignore")  # transformers' own
def test_transformers_round_trip(dtype, tmp_path):
    transformers = needs("transformers")
    config = transformers.LlamaConfig(
        vocab_size=16,
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        tie_word_embeddings=True,
    )
    model = transformers.LlamaForCausalLM(config).to(dtype)
    model.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["dtype"] == str(dtype)[6:]
    for asked in ({"dtype": dtype}, {}):
        made = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, **asked).state_dict()
        for name, t in model.state_dict().items():
            assert made[name].dtype is dtype and torch.equal(
                torch_dtypes.codes(made[name]), torch_dtypes.codes(t)
            )
    stock = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path, dtype=torch.float64
    ).state_dict()
    assert all(torch.equal(stock[name], t.double()) for name, t in model.state_dict().items())


def t5(transformers):
    sizes = dict(
        vocab_size=16,
        d_model=8,
        d_kv=4,
        d_ff=8,
        num_layers=1,
        num_heads=2,
        decoder_start_token_id=0,
        dropout_rate=0.0,
    )
    return transformers.T5ForConditionalGeneration(transformers.T5Config(**sizes))


@pytest.mark.parametrize(
    "dtype", thin_out(["posit32es2", "posit16es2", "q43", "posit12es1", "e5m7"], 5), indirect=True
)
@pytest.mark.filterwarnings("ignore")  # transformers' own
def test_norms_of_t5_come_back_from_float32(dtype):
    transformers = needs("transformers")
    stock, ids = t5(transformers), torch.arange(3, 9).view(2, 3)
    model = t5(transformers)
    model.load_state_dict(stock.state_dict())
    model.to(dtype)
    seen = []
    for layer in model.modules():
        layer.register_forward_hook(
            lambda layer, operands, result: seen.append(
                result.dtype if isinstance(result, torch.Tensor) else dtype
            )
        )
    loss, expected = (m(input_ids=ids, labels=ids).loss for m in (model, stock))
    assert (
        set(seen) == {dtype}
        and (loss.double() - expected).abs() <= 1e-5 + 8 * torch.finfo(dtype).eps
    )
    loss.backward()
    expected.backward()
    for p, q in zip(model.parameters(), stock.parameters(), strict=True):
        assert p.grad.dtype is dtype
        if dtype is torch.posit32es2:
            torch.testing.assert_close(p.grad.double(), q.grad.double(), rtol=1e-4, atol=1e-5)
    compiled = torch.compile(stock, backend="eager", fullgraph=True)
    assert torch.equal(compiled(input_ids=ids, labels=ids).loss, expected)


@every_dtype
@pytest.mark.filterwarnings("ignore")
def test_norms_of_diffusers(dtype):
    norm = needs("diffusers.models.normalization").RMSNorm(4, eps=1e-6).to(dtype)
    x = torch.tensor([[1.0, -2.0, 0.5, 3.0]])
    y = norm(x.to(dtype))
    assert y.dtype is dtype
    torch.testing.assert_close(y, nn.functional.rms_norm(x, (4,), eps=1e-6).to(dtype))
    assert norm.float()(x).dtype is torch.float32


@every_dtype
@pytest.mark.filterwarnings("ignore")
def test_trainer_evaluates(dtype, tmp_path):
    transformers = needs("transformers")
    needs("accelerate")
    model = t5(transformers).to(dtype)
    data = [{"input_ids": torch.arange(3, 6), "labels": torch.arange(3, 6)}] * 2
    arguments = transformers.TrainingArguments(
        output_dir=tmp_path, use_cpu=True, report_to=[], disable_tqdm=True
    )
    trainer = transformers.Trainer(model, arguments, eval_dataset=data)
    values = trainer.predict(data).predictions[0]
    made = model.eval()(**{name: torch.stack([t] * 2) for name, t in data[0].items()}).logits
    assert (
        values.dtype == ("float64" if dtype is torch.posit32es2 else "float32")
        and values.tolist() == made.tolist()
    )
    assert trainer.evaluate()["eval_loss"] > 0


@every_dtype
@pytest.mark.filterwarnings("ignore")
def test_pipelines_read_logits(dtype):
    pipeline = needs("transformers.pipelines.image_classification").ImageClassificationPipeline
    model = types.SimpleNamespace(
        config=types.SimpleNamespace(problem_type=None, num_labels=2, id2label={0: "a", 1: "b"})
    )
    (best, other) = pipeline.postprocess(
        types.SimpleNamespace(model=model), {"logits": torch.tensor([[0.0, 1.0]], dtype=dtype)}
    )
    assert best == {"label": "b", "score": pytest.approx(0.7310586)} and other["label"] == "a"


# ---- accelerate ----


@every_dtype
@pytest.mark.filterwarnings("ignore")
def test_accelerate_offloads(dtype, tmp_path):
    accelerate = needs("accelerate")
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).to(dtype).eval()
    size = 28 * dtype.itemsize  # and a counter
    assert accelerate.utils.compute_module_sizes(model)["0"] == 16 * dtype.itemsize
    assert accelerate.infer_auto_device_map(
        model, max_memory={"cpu": size // 2, "disk": 10**6}
    ) == {"": "disk"}
    x = torch.tensor([[1.0, -2.0, 0.5], [0.1, 3.0, 1.0]]).to(dtype)
    expected = model(x)
    offloaded = accelerate.disk_offload(model, tmp_path, "cpu")
    assert offloaded[0].weight.is_meta and offloaded[0].weight.dtype is dtype
    assert torch.equal(offloaded(x), expected)
    index = json.loads((tmp_path / "index.json").read_text())
    assert (
        index["0.weight"] == {"dtype": str(dtype)[6:], "shape": [4, 3]}
        and index["1.num_batches_tracked"]["dtype"] == "int64"
    )

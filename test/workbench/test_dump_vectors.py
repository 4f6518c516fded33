"""dump_vectors: the codes of a model's run, read back by an independent reader."""

import json

import pytest
import torch
from oracle import binary, posit
from spec_formats import name_of

import torch_dtypes


def model(dtype):
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 2, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(8, 3)
    ).to(dtype)


def read(folder, tensor):
    text = (folder / tensor["file"]).read_text()
    codes = (
        json.loads(text)["codes"]
        if text.startswith("{")
        else [int(x, 16) for x in text.splitlines() if not x.startswith(("#", "//"))]
    )
    return codes, tensor["shape"]


@pytest.mark.parametrize("kind", ["hex", "json", "readmemh"])
@pytest.mark.parametrize("spec", [posit(16, 2), binary(4, 3), binary(5, 5)], ids=name_of)
def test_the_last_layer_computes_what_was_written(spec, kind, tmp_path):
    dtype = torch_dtypes.dtype(name_of(spec))
    with torch_dtypes.accumulate("exact"):
        made = torch_dtypes.dump_vectors(
            model(dtype), torch.rand(2, 1, 4, 4).to(dtype), tmp_path, as_=kind
        )
    assert made == json.loads((tmp_path / "manifest.json").read_text())
    assert [(layer["name"], layer["type"]) for layer in made["layers"]] == [
        ("0", "Conv2d"),
        ("1", "ReLU"),
        ("2", "Flatten"),
        ("3", "Linear"),
    ]
    tensors = {t["role"]: t for t in made["layers"][-1]["tensors"]}
    assert set(tensors) == {"input0", "weight", "bias", "output0"} and {
        t["bits"] for t in tensors.values()
    } == {spec.bits}
    read_back = {role: read(tmp_path, t) for role, t in tensors.items()}
    (x, (rows, inner)), (w, (columns, _)), (bias, _), (y, _) = (
        read_back[role] for role in ("input0", "weight", "bias", "output0")
    )
    x, w, bias = ([spec.decode(c) for c in codes] for codes in (x, w, bias))
    for i in range(rows):
        for j in range(columns):
            total = bias[j] + sum(x[i * inner + k] * w[j * inner + k] for k in range(inner))
            assert y[i * columns + j] == spec.encode(total)


def test_stock_tensors_have_their_own_bits(tmp_path):
    made = torch_dtypes.dump_vectors(torch.nn.Embedding(3, 2), torch.tensor([2, -0]), tmp_path)
    tensors = {t["role"]: t for t in made["layers"][0]["tensors"]}
    assert (tensors["input0"]["dtype"], tensors["input0"]["bits"]) == ("int64", 64) and tensors[
        "weight"
    ]["dtype"] == "float32"
    codes, shape = read(tmp_path, tensors["weight"])
    weight = torch.tensor(codes).to(torch.uint32).view(torch.float32).reshape(shape)
    output, _ = read(tmp_path, tensors["output0"])
    assert (
        torch.tensor(output)
        .to(torch.uint32)
        .view(torch.float32)
        .reshape(2, 2)
        .equal(weight[[2, 0]])
    )


def test_a_layer_that_is_called_twice_and_arguments_by_name(tmp_path):
    class Twice(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(2, 2)

        def forward(self, *, x):
            return self.layer(self.layer(x))

    made = torch_dtypes.dump_vectors(
        Twice().to(torch.q43), {"x": torch.ones(1, 2, dtype=torch.q43)}, tmp_path
    )
    assert [(layer["name"], layer["call"]) for layer in made["layers"]] == [
        ("layer", 0),
        ("layer", 1),
    ]
    first, second = (
        {t["role"]: read(tmp_path, t) for t in layer["tensors"]} for layer in made["layers"]
    )
    assert first["output0"] == second["input0"] and first["weight"] == second["weight"]


def test_bad_input_leaves_nothing(tmp_path):
    layer = torch.nn.Linear(2, 2)
    folder = tmp_path / "none"
    for error, words, arguments in (
        (TypeError, "expected a module, but got function", (print_nothing, torch.ones(2), folder)),
        (TypeError, "dict of keyword arguments, but got list", (layer, [torch.ones(2)], folder)),
    ):
        with pytest.raises(error, match=words):
            torch_dtypes.dump_vectors(*arguments)
    with pytest.raises(ValueError, match="expected one of hex, json, readmemh, but got 'csv'"):
        torch_dtypes.dump_vectors(layer, torch.ones(2), folder, as_="csv")
    assert not folder.exists()
    with pytest.raises(OSError):
        torch_dtypes.dump_vectors(layer, torch.ones(2), "/proc/none")
    with pytest.raises(ValueError, match="at least one module without children"):
        torch_dtypes.dump_vectors(Unused(layer), torch.ones(2), tmp_path)
    assert not layer._forward_hooks


class Unused(torch.nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return x


def print_nothing():
    pass


def test_inputs_and_buffers_are_as_the_layer_found_them(tmp_path):
    model = torch.nn.Sequential(
        torch.nn.Linear(4, 4), torch.nn.ReLU(inplace=True), torch.nn.BatchNorm1d(4)
    ).to(torch.q43)
    made = torch_dtypes.dump_vectors(model, torch.randn(3, 4).to(torch.q43), tmp_path)
    linear, relu, norm = (
        {t["role"]: read(tmp_path, t)[0] for t in layer["tensors"]} for layer in made["layers"]
    )
    assert relu["input0"] == linear["output0"] != relu["output0"] == norm["input0"]
    assert (
        set(norm["running_mean"]) == {0}
        and norm["num_batches_tracked"] == [0]
        and model[2].num_batches_tracked == 1
    )

"""safetensors files: codes and the names of their dtypes; files of others, of version 1, of later versions and broken ones."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import safetensors
import safetensors.torch
import torch
from torch import nn

import torch_dtypes

NAMES = "posit16es2 q43 e5m5 posit32es2 tf32 posit8es1 posit12es1 e4m3fn e2m1finite fixed4_3 e11m30".split()
DTYPES = [torch_dtypes.dtype(name) for name in NAMES]
every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=NAMES)
BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
VALUES = [1.0, -2.0, 0.5, 3.0, 0.0, -1.5]
VERSION_1 = Path(__file__).parent / "data" / "version1.safetensors"


@every_dtype
def test_safetensors_hold_codes_and_names(dtype, tmp_path):
    file = tmp_path / "t.safetensors"
    t = torch.tensor(VALUES, dtype=dtype).view(2, 3)
    tensors = {
        "t": t, "stock": torch.ones(3, dtype=torch.bfloat16), "parameter": nn.Parameter(t[0].clone()), "none": t[:0].clone(),
        "number": t[0, 0].clone(), "bits": torch_dtypes.codes(t).clone(),
    }  # fmt: skip
    torch_dtypes.save_safetensors(tensors, file, metadata={"note": "kept"})
    made = torch_dtypes.load_safetensors(file)
    assert made.keys() == tensors.keys()
    for name, t in tensors.items():
        assert type(made[name]) is torch.Tensor and made[name].dtype is t.dtype and made[name].shape == t.shape and made[name].tolist() == t.tolist()
    plain = safetensors.torch.load_file(file)
    assert plain["t"].dtype is BITS[dtype.itemsize] and torch.equal(plain["t"], plain["bits"])
    with safetensors.safe_open(file, "np") as opened:
        assert opened.metadata()["note"] == "kept" and json.loads(opened.metadata()["torch_dtypes"])["dtypes"]["t"] == str(dtype)[6:]
        assert opened.get_tensor("t").tolist() == plain["t"].tolist()
    assert torch_dtypes.load_safetensors(str(file), device=torch.device("cpu"))["t"].dtype is dtype


def test_a_model_in_safetensors(tmp_path):
    model = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 5, bias=False), nn.BatchNorm1d(5)).to(torch.posit16es2)
    model[1].weight = model[0].weight
    torch_dtypes.save_safetensors(model.state_dict(), tmp_path / "m.safetensors")
    made = torch_dtypes.load_safetensors(tmp_path / "m.safetensors")
    assert made["1.weight"] is made["0.weight"] and len(safetensors.torch.load_file(tmp_path / "m.safetensors")) == len(made) - 1
    fresh = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 5, bias=False), nn.BatchNorm1d(5)).to(torch.posit16es2)
    fresh.load_state_dict(made)
    assert all(a.dtype is b.dtype and torch.equal(a, b) for a, b in zip(fresh.state_dict().values(), model.state_dict().values(), strict=True))
    with pytest.raises(RuntimeError, match="share memory"):
        torch_dtypes.save_safetensors({"a": model[0].weight, "b": model[0].weight[1:]}, tmp_path / "n.safetensors")
    with pytest.raises((RuntimeError, NotImplementedError), match="meta"):  # two tensors without memory are not one
        torch_dtypes.save_safetensors({"a": model[0].weight.to("meta"), "b": model[0].weight.to("meta")}, tmp_path / "n.safetensors")
    with pytest.raises(ValueError, match="non contiguous"):
        torch_dtypes.save_safetensors({"a": model[0].weight.t()}, tmp_path / "n.safetensors")


def test_files_of_others_are_read_as_ever(tmp_path):
    tensors = {"a": torch.ones(2), "b": torch.ones(2, dtype=torch.int16)}
    safetensors.torch.save_file(tensors, tmp_path / "t.safetensors")
    made = torch_dtypes.load_safetensors(tmp_path / "t.safetensors")
    assert all(made[name].dtype is t.dtype and torch.equal(made[name], t) for name, t in tensors.items())


def test_plain_safetensors_refuse_and_write_nothing(tmp_path):
    for dtype in DTYPES:
        with pytest.raises(KeyError, match=str(dtype)):
            safetensors.torch.save_file({"t": torch.ones(2, dtype=dtype)}, tmp_path / "t.safetensors")
        with pytest.raises(KeyError, match=str(dtype)):
            safetensors.torch.save_model(nn.Linear(2, 2).to(dtype), tmp_path / "t.safetensors")
    assert not list(tmp_path.iterdir())


def test_a_safetensors_file_of_version_1_loads_for_ever():
    code = f"""
import torch, torch_dtypes
made = torch_dtypes.load_safetensors({str(VERSION_1)!r})
assert made["base"].dtype is torch.posit16es2 and made["base"].tolist() == {VALUES!r} and made["tied"] is made["base"]
assert str(made["runtime"].dtype) == "torch.posit12es1_up" and torch_dtypes.codes(made["runtime"]).tolist() == [[333, 1024], [3764, 1938]]
assert torch.equal(made["stock"], torch.tensor([1.5]))
print("read")
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "read", done.stderr


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({"version": 2, "dtypes": 3}, "expected version 1 of torch_dtypes' metadata in .*but got version 2: update torch-dtypes"),
        ({"version": 1, "dtypes": {"t": "posit16es9"}, "same": {}}, "cannot read 't' of .*'posit16es9', which this version"),
        ({"version": 1, "dtypes": {"t": "q43"}, "same": {}}, r"cannot read 't' of .*expected codes of torch\.q43 as a tensor of torch\.uint8"),
        ({"version": 1, "dtypes": {"t": "posit12es1"}, "same": {}}, "cannot read 't' of .* from 0 to 4095, but got one beyond"),
        ({"version": 1, "dtypes": {"u": "posit16es2"}, "same": {}}, "expected .* to hold 'u'"),
        ({"version": 1, "dtypes": {}, "same": {"u": "v"}}, "expected 'u' to be another name of a tensor in .*but got 'v'"),
        ({"version": 1, "dtypes": ["t"], "same": {}}, "expected names by names under 'dtypes'"),
        ({"version": 1, "dtypes": {}}, "expected names by names under 'same'"),
        ({"dtypes": {}}, "as JSON with a version"),
        ([], "as JSON with a version"),
        ("posit16es2", "as JSON with a version"),
    ],
)
def test_broken_metadata_are_named(header, message, tmp_path):
    text = header if isinstance(header, str) else json.dumps(header)
    safetensors.torch.save_file({"t": torch.full((2,), -1, dtype=torch.int16)}, tmp_path / "t.safetensors", metadata={"torch_dtypes": text})
    with pytest.raises(ValueError, match=message):
        torch_dtypes.load_safetensors(tmp_path / "t.safetensors")


def test_what_safetensors_do_not_take(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="metadata without the key 'torch_dtypes'"):
        torch_dtypes.save_safetensors({}, tmp_path / "t", metadata={"torch_dtypes": "x"})
    with pytest.raises(ValueError, match=r"expected tensors, but got .*float.* for 'a'"):
        torch_dtypes.save_safetensors({"a": 1.0}, tmp_path / "t")
    monkeypatch.setitem(sys.modules, "safetensors", None)
    for call in (lambda: torch_dtypes.save_safetensors({}, tmp_path / "t"), lambda: torch_dtypes.load_safetensors(tmp_path / "t")):
        with pytest.raises(ImportError, match="pip install safetensors"):
            call()

"""Files and their versions: what must load for ever, what is refused and how, and training that
goes on from a file in another process."""

import io
import os
import pickle
import subprocess
import sys
import warnings

import pytest
import torch
from test_serialization import ROOT, VALUES, expect_tensor, fresh_process

import torch_dtypes
from torch_dtypes.storage import pickling


def test_unknown_format_in_a_file_is_named():
    raw = pickle.dumps(torch.tensor(VALUES, dtype=torch.posit16es2)).replace(
        b"posit16es2", b"posit16es9"
    )
    with pytest.raises(
        ValueError,
        match=r"expected a number format that this version of torch_dtypes knows, but got "
        r"'posit16es9' in the file; .*expected es from 0 to 5",
    ):
        pickle.loads(raw)
    raw = pickle.dumps(torch.posit16es2).replace(b"posit16es2", b"takum16es2")
    with pytest.raises(ValueError, match="takum16es2"):
        pickle.loads(raw)
    file = io.BytesIO()
    torch.save(
        torch.tensor(VALUES, dtype=torch.posit16es2), file, _use_new_zipfile_serialization=False
    )
    raw = file.getvalue().replace(b"posit16es2", b"posit16es9")
    for weights_only in (True, False):
        with pytest.raises((ValueError, pickle.UnpicklingError), match="posit16es9"):
            torch.load(io.BytesIO(raw), weights_only=weights_only)


@pytest.mark.parametrize("weights_only", [True, False])
def test_a_future_version_of_the_layout_is_refused(weights_only, monkeypatch):
    message = (
        r"expected a tensor written in version 1 of torch_dtypes' layout, but got version 2; "
        r"update torch-dtypes"
    )
    t, file = torch.ones(2, dtype=torch.posit16es2), io.BytesIO()
    with monkeypatch.context() as later:
        later.setattr(pickling, "FILE_VERSION", 2)
        torch.save(t, file)
        raw = pickle.dumps(t)
    for read in (
        lambda: torch.load(io.BytesIO(file.getvalue()), weights_only=weights_only),
        lambda: pickle.loads(raw),
    ):
        with pytest.raises((ValueError, pickle.UnpicklingError), match=message):
            read()
    with pytest.raises(ValueError, match=message):
        pickling.rebuild_tensor(2, "what a later version writes")


def test_codes_of_another_width_are_refused():
    for codes, found in (
        (torch.zeros(2, dtype=torch.int32), r"torch\.int32"),
        (torch.zeros(2), r"torch\.float32"),
        ([0], "list"),
    ):
        with pytest.raises(
            ValueError,
            match=r"expected the codes of a tensor of torch\.posit16es2 as torch\.int16, but got "
            rf".*{found}",
        ):
            pickling.rebuild_tensor(1, codes, "posit16es2", False, {})


FULL = """
import io, pickle, torch, torch_dtypes

t = torch_dtypes.dtype("posit12es1")
raw, file = pickle.dumps(torch.ones(2, dtype=t)).replace(b"posit12es1", b"posit13es1"), io.BytesIO()
held = []
for bits in range(2, 32):
    for es in (3, 4):
        try:
            held.append(torch_dtypes.posit_format(bits, es))
        except ValueError:
            pass
for load in (
    lambda: pickle.loads(raw),
    lambda: torch_dtypes.storage.pickling.rebuild_dtype("posit13es1"),
):
    try:
        load()
    except ValueError as error:
        print(
            "this version of torch_dtypes knows" in str(error),
            "expected at most 64 number formats in one process" in str(error),
        )
"""


def test_a_process_that_has_all_its_formats_says_so_of_a_file():
    assert fresh_process(FULL).split() == ["False", "True"] * 2


@pytest.mark.parametrize("dtype", [torch.posit16es2, torch.q43])
def test_typed_storages_are_refused_with_what_to_save(dtype, tmp_path):
    storage = torch.storage.TypedStorage(
        wrap_storage=torch.ones(3, dtype=dtype).untyped_storage(), dtype=dtype, _internal=True
    )
    message = (
        rf"expected a typed storage of a stock dtype to save, but got one of {dtype}, .*; save the "
        r"tensor"
    )
    for save in (
        lambda: torch.save(storage, tmp_path / "s.pt"),
        lambda: torch.save([storage], tmp_path / "s.pt", _use_new_zipfile_serialization=False),
        lambda: pickle.dumps(storage),
        lambda: storage.pickle_storage_type(),
    ):
        with pytest.raises(NotImplementedError, match=message), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch warns that typed storages will go
            save()


# test/data/version1.pt: made when version 1 of the layout was the newest one. It must load for
# ever.
VERSION_1 = {
    "base": ("posit16es2", [16384, -18432, 14336, 19456, 0, -17408], VALUES),
    "view": ("posit16es2", [-18432, 14336], [-2.0, 0.5]),
    "parameter": ("q43", [29, 206], [0.1015625, -7.0]),
    "fixed": ("fixed4_3", [2, 192], [0.25, -8.0]),
    "runtime": (
        "posit12es1_up",
        [[333, 3764], [1024, 1938]],
        [[0.10009765625, -0.099609375], [1.0, 100.0]],
    ),
    "wide": ("e11m30", [1094787163750], [0.09999999997671694]),
}
VERSION_1_CHECK = f"""
import sys, torch
mapped = {{"mmap": True}}
for options in ({{}}, {{"weights_only": False}}, mapped, {{**mapped, "map_location": "cpu"}}):
    loaded = torch.load(sys.argv[1], **options)
    for key, (name, codes, values) in {VERSION_1!r}.items():
        t = loaded[key]
        bits = {{1: torch.uint8, 2: torch.int16, 8: torch.int64}}[t.dtype.itemsize]
        assert str(t.dtype) == "torch." + name and t.tolist() == values, (key, t)
        assert t.detach().view(bits).tolist() == codes, (key, t)
    assert loaded["dtype"] is loaded["runtime"].dtype and loaded["runtime"].stride() == (1, 2)
    parameter, base = loaded["parameter"], loaded["base"]
    assert isinstance(parameter, torch.nn.Parameter)
    assert parameter.requires_grad and not base.requires_grad
    assert loaded["view"].untyped_storage().data_ptr() == base.untyped_storage().data_ptr()
    assert torch.equal(loaded["stock"], torch.tensor([1.5]))
print("read")
"""


def test_a_file_of_version_1_loads_for_ever():
    assert fresh_process(VERSION_1_CHECK, ROOT / "test" / "data" / "version1.pt") == "read"


WITHOUT_US = """
import sys, torch
assert "torch_dtypes" not in sys.modules
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch_dtypes":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
for weights_only in (True, False):
    try:
        torch.load(sys.argv[1], weights_only=weights_only)
    except Exception as error:
        print(type(error).__name__, "torch_dtypes" in str(error))
"""


@pytest.mark.whole
def test_without_the_package_a_file_says_what_is_missing():
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    command = [sys.executable, "-c", WITHOUT_US, str(ROOT / "test" / "data" / "version1.pt")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["UnpicklingError", "True", "ModuleNotFoundError", "True"], (
        done.stderr
    )


@pytest.mark.parametrize("name", ["posit16es2", "posit12es1_up", "e4m3fn_bias8_saturate"])
def test_files_load_onto_the_meta_device(name, tmp_path):
    t = torch.tensor(VALUES, dtype=torch_dtypes.dtype(name)).view(2, 3)
    torch.save({"t": t, "row": t[1]}, tmp_path / "t.pt")
    made = torch.load(tmp_path / "t.pt", map_location="meta")
    expect_tensor(made["row"], t.dtype)
    assert (
        made["t"].device.type == "meta"
        and made["t"].shape == (2, 3)
        and made["row"].storage_offset() == 3
    )


# Training goes on in another process, bit for bit. argv: the folder of the files, whether to begin
# or to go on.
TRAINING = """
import sys, torch, torch_dtypes
from torch import nn

folder, part = sys.argv[1:]
torch.set_num_threads(1)
for name, optimizer in (
    ("posit16es2", "Adam"),
    ("e5m7_stochastic", "SGD"),
    ("posit12es1_up", "Adagrad"),
):
    path, dtype = f"{folder}/{name}.pt", torch_dtypes.dtype(name)
    torch.manual_seed(1)
    data = torch.randn(6, 8, 4).to(dtype)
    model = nn.Sequential(
        nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Dropout(0.2), nn.Linear(6, 2)
    ).to(dtype)
    optim = getattr(torch.optim, optimizer)(
        model.parameters(), lr=0.05, **({"momentum": 0.9} if optimizer == "SGD" else {})
    )
    schedule = torch.optim.lr_scheduler.ExponentialLR(optim, 0.9)
    first = 0
    if part == "on":
        state = torch.load(path)
        model.load_state_dict(state["model"])
        optim.load_state_dict(state["optim"])
        schedule.load_state_dict(state["schedule"])
        torch.set_rng_state(state["random"])
        first = 3
    for x in data[first : 3 if part == "begin" else 6]:
        optim.zero_grad()
        (model(x) ** 2).mean().backward()
        optim.step()
        schedule.step()
    if part == "begin":
        states = {
            "model": model.state_dict(),
            "optim": optim.state_dict(),
            "schedule": schedule.state_dict(),
        }
        torch.save({**states, "random": torch.get_rng_state()}, path)
    else:
        states = [
            *model.state_dict().values(),
            *(v for s in optim.state_dict()["state"].values() for v in s.values()),
        ]
        print(
            [
                torch_dtypes.codes(t).tolist()
                if torch_dtypes.is_format_dtype(t.dtype)
                else t.tolist()
                for t in states
                if t is not None
            ]
        )
"""


@pytest.mark.whole
def test_training_goes_on_in_another_process_bit_for_bit(tmp_path):
    fresh_process(TRAINING, tmp_path, "begin")
    resumed = fresh_process(TRAINING, tmp_path, "on").splitlines()
    assert len(resumed) == 3 and all(len(line) > 500 for line in resumed)
    assert resumed == fresh_process(TRAINING, tmp_path, "whole").splitlines()

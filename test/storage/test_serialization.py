"""Pickling, copying, torch.save, and sending tensors to other processes; formats made at run time
included."""

import copy
import dataclasses
import io
import json
import os
import pickle
import subprocess
import sys
from multiprocessing.reduction import ForkingPickler
from pathlib import Path

import new_process
import pytest
import torch
import torch.multiprocessing as mp
from conftest import parametrize_dtypes
from representatives import thin_out
from torch import nn
from torch.utils.data import DataLoader, Dataset

import torch_dtypes
from torch_dtypes import _C

ROOT = Path(__file__).resolve().parents[2]
NAMES = (
    "posit16es2 q43 e5m5 posit32es2 tf32 posit8es1 posit12es1 e4m3fn e11m20 e11m30 "
    "e4m3fn_bias8_saturate"
).split()
every_dtype = parametrize_dtypes(NAMES)
VALUES = [1.0, -2.0, 0.5, 3.0, 0.0, -1.5]


def expect_tensor(t, dtype, values=None):
    assert t.dtype is dtype and _C.is_format_tensor(t)
    if values is not None:
        assert t.tolist() == values


def fresh_process(code, *arguments):
    return new_process.run(
        "-W", "error", "-c", code, *map(str, arguments), cwd=ROOT, check=True
    ).stdout.strip()


def save_and_load(thing, **options):
    file = io.BytesIO()
    torch.save(thing, file)
    file.seek(0)
    return torch.load(file, **options)


WAYS = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    **{
        f"pickle {p}": lambda t, p=p: pickle.loads(pickle.dumps(t, p))
        for p in range(pickle.HIGHEST_PROTOCOL + 1)
    },
    "save": save_and_load,
    "save, loaded in full": lambda t: save_and_load(t, weights_only=False),
    "save, mapped": lambda t: save_and_load(t, map_location="cpu"),
}
every_way = pytest.mark.parametrize("way", WAYS)


@every_dtype
@every_way
def test_tensors(way, dtype):
    t = torch.tensor(VALUES, dtype=dtype)
    made = WAYS[way](t)
    expect_tensor(made, dtype, VALUES)
    assert type(made) is torch.Tensor and made is not t and not made.requires_grad
    assert (made.data_ptr() == t.data_ptr()) == (way == "copy")
    image = torch.ones(2, 3, 4, 5, dtype=dtype).to(memory_format=torch.channels_last)
    for part in (
        t.view(2, 3).t(),
        t[1:3],
        t[::2],
        torch.zeros(0, 3, dtype=dtype),
        torch.tensor(1.5, dtype=dtype),
        image,
    ):
        made = WAYS[way](part)
        expect_tensor(made, dtype, part.tolist())
        assert made.shape == part.shape and (made.stride() == part.stride() or made.numel() == 0)


@every_dtype
@every_way
def test_gradients_and_parameters(way, dtype):
    leaf = torch.tensor(VALUES, dtype=dtype, requires_grad=True)
    made = WAYS[way](leaf)
    expect_tensor(made, dtype, VALUES)
    assert made.requires_grad and made.is_leaf
    parameter = nn.Parameter(torch.tensor(VALUES, dtype=dtype), requires_grad=False)
    made = WAYS[way](parameter)
    expect_tensor(made, dtype, VALUES)
    assert type(made) is nn.Parameter and not made.requires_grad
    made = WAYS[way](nn.Parameter(torch.tensor(VALUES, dtype=dtype)))
    assert type(made) is nn.Parameter and made.requires_grad and made.dtype is dtype
    if way == "deepcopy":
        leaf.sum().backward()
        expect_tensor(copy.deepcopy(leaf).grad, dtype, [1.0] * 6)
        twice = leaf * 2
        with pytest.raises(RuntimeError, match="Only Tensors created explicitly by the user"):
            copy.deepcopy(twice)


@every_dtype
@every_way
def test_containers_keep_shared_storage_shared(way, dtype):
    base = torch.tensor(VALUES, dtype=dtype)
    codes = base.view(
        {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
    )
    made = WAYS[way](
        {"base": base, "view": base[1:3], "codes": codes, "dtype": dtype, "twin": base}
    )
    assert made["dtype"] is dtype
    assert made["base"] is made["twin"]
    expect_tensor(made["view"], dtype, VALUES[1:3])
    if way.startswith("pickle"):
        return  # each tensor has a storage of its own there, as stock tensors have
    made["base"].zero_()
    assert made["view"].tolist() == [0.0, 0.0] and made["codes"].tolist() == [0] * 6
    assert base.tolist() == (VALUES if way != "copy" else [0.0] * 6)


class Tagged(torch.Tensor):
    pass


@parametrize_dtypes(["float32", *NAMES[:4]])
@pytest.mark.parametrize("way", ["deepcopy", "pickle 2", "pickle 5", "save, loaded in full"])
def test_python_attributes_and_subclasses_survive(way, dtype):
    t = torch.tensor(VALUES, dtype=dtype)
    t.note = "kept"
    assert WAYS[way](t).note == "kept"
    if way == "deepcopy":
        return  # stock refuses subclasses without a new_empty of their own
    tagged = t.as_subclass(Tagged)
    tagged.note = "kept"
    made = WAYS[way](tagged)
    assert (
        type(made) is Tagged
        and made.dtype is dtype
        and made.tolist() == VALUES
        and made.note == "kept"
    )


@parametrize_dtypes(NAMES[:4])
@every_way
def test_modules_and_optimizers(way, dtype):
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).to(dtype)
    optim = torch.optim.Adam(model.parameters())
    model(torch.rand(5, 3).to(dtype)).sum().backward()
    optim.step()
    states = WAYS[way]({"model": model.state_dict(), "optim": optim.state_dict()})
    fresh = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).to(dtype)
    fresh.load_state_dict(states["model"])
    twin = torch.optim.Adam(fresh.parameters())
    twin.load_state_dict(states["optim"])
    for a, b in zip(model.state_dict().values(), fresh.state_dict().values(), strict=True):
        assert a.dtype is b.dtype and torch.equal(
            a.double().nan_to_num(7), b.double().nan_to_num(7)
        )
    for p in twin.state.values():
        expect_tensor(p["exp_avg"], dtype)
        assert p["step"].dtype is torch.float32
    if way not in ("save", "save, mapped", "copy"):  # which load weights only
        whole = WAYS[way](model)
        assert all(
            a.tolist() == b.tolist() or a.isnan().any()
            for a, b in zip(model.state_dict().values(), whole.state_dict().values(), strict=True)
        )
        expect_tensor(whole[0].weight, dtype)
        assert all(isinstance(p, nn.Parameter) for p in whole.parameters())


@every_dtype
def test_files_on_disk(tmp_path, dtype):
    t = torch.tensor(VALUES * 100, dtype=dtype)
    torch.save({"t": t, "half": t[300:]}, tmp_path / "t.pt")
    for options in (
        {},
        {"weights_only": True},
        {"weights_only": False},
        {"mmap": True},
        {"mmap": True, "weights_only": True, "map_location": "cpu"},
    ):
        made = torch.load(tmp_path / "t.pt", **options)
        expect_tensor(made["t"], dtype, VALUES * 100)
        expect_tensor(made["half"], dtype, (VALUES * 100)[300:])
        assert made["half"].untyped_storage().data_ptr() == made["t"].untyped_storage().data_ptr()
    torch.save(t, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    expect_tensor(torch.load(tmp_path / "old.pt"), dtype, VALUES * 100)
    assert (tmp_path / "t.pt").stat().st_size < 600 * dtype.itemsize + 4000


def test_a_fresh_process_knows_the_formats_of_a_file(tmp_path):
    tensors = {name: torch.tensor(VALUES, dtype=torch_dtypes.dtype(name)) for name in NAMES}
    torch.save(
        {
            **tensors,
            "parameter": nn.Parameter(tensors["posit12es1"]),
            "dtype": torch_dtypes.dtype("posit12es1"),
        },
        tmp_path / "all.pt",
    )
    (tmp_path / "all.pkl").write_bytes(
        pickle.dumps(
            [
                *tensors.values(),
                *(t.dtype for t in tensors.values()),
                nn.Parameter(tensors["e4m3fn"]),
            ]
        )
    )
    code = f"""
import pickle, sys, torch
VALUES, NAMES = {VALUES!r}, {NAMES!r}
def check(t, name):
    assert str(t.dtype) == "torch." + name and t.tolist() == VALUES, (name, t)
    assert torch.equal((t + t) / 2, t)
for options in ({{"weights_only": True}}, {{"weights_only": False}}, {{"mmap": True}}):
    loaded = torch.load(sys.argv[1], **options)
    for name in NAMES:
        check(loaded[name], name)
    check(loaded["parameter"], "posit12es1")
    assert loaded["dtype"] is loaded["posit12es1"].dtype
    assert isinstance(loaded["parameter"], torch.nn.Parameter)
listed = pickle.load(open(sys.argv[2], "rb"))
for name, t, dtype in zip(NAMES, listed, listed[len(NAMES):]):
    check(t, name)
    assert dtype is t.dtype and eval(repr(dtype)) is dtype
check(listed[-1], "e4m3fn")
print("read")
"""
    assert fresh_process(code, tmp_path / "all.pt", tmp_path / "all.pkl") == "read"


def test_a_file_from_a_fresh_process_is_read_here(tmp_path):
    code = (
        "import sys, torch, torch_dtypes; torch.save(torch.tensor([1.0, -2.0], "
        "dtype=torch_dtypes.posit_format(10, 1)), sys.argv[1])"
    )
    fresh_process(code, tmp_path / "t.pt")
    expect_tensor(torch.load(tmp_path / "t.pt"), torch_dtypes.dtype("posit10es1"), [1.0, -2.0])


@pytest.mark.whole
def test_stock_tensors_are_written_as_ever(tmp_path):
    # A file of stock tensors must load where this package is not installed.
    torch.save(
        {
            "w": torch.ones(2),
            "p": nn.Parameter(torch.ones(1, dtype=torch.bfloat16)),
            "dtype": torch.float16,
        },
        tmp_path / "t.pt",
    )
    (tmp_path / "t.pkl").write_bytes(pickle.dumps([torch.ones(2), torch.int64]))
    code = """
import pickle, sys, torch
assert "torch_dtypes" not in sys.modules
loaded = torch.load(sys.argv[1])
print(loaded["p"].dtype, loaded["dtype"], pickle.load(open(sys.argv[2], "rb")))
"""
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    command = [sys.executable, "-c", code, str(tmp_path / "t.pt"), str(tmp_path / "t.pkl")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout.strip()) == (
        0,
        "torch.bfloat16 torch.float16 [tensor([1., 1.]), torch.int64]",
    ), done.stderr


@dataclasses.dataclass
class Settings:
    dtype: torch.dtype
    accumulator: torch.dtype | None = None


def _name_of(dtype):
    return str(dtype), dtype


@pytest.mark.parametrize("start", thin_out(["fork", "spawn"]))
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_dtypes_go_to_other_processes(start):
    with mp.get_context(start).Pool(1) as pool:
        for dtype in (
            torch.posit16es2,
            torch_dtypes.dtype("posit13es1_stochastic"),
            torch_dtypes.dtype("ufixed3_4_wrap"),
        ):
            name, back = pool.apply(_name_of, (dtype,))
            assert name == str(dtype) and back is dtype


def test_dtypes_in_settings():
    for dtype in (
        torch.posit16es2,
        torch_dtypes.dtype("posit13es1_stochastic"),
        torch_dtypes.dtype("e4m3fn_bias8_saturate"),
    ):
        settings = Settings(dtype, torch.float32)
        for made in (
            copy.copy(settings),
            copy.deepcopy(settings),
            pickle.loads(pickle.dumps(settings)),
            Settings(**dataclasses.asdict(settings)),
        ):
            assert made.dtype is dtype and made.accumulator is torch.float32
        text = json.dumps({"dtype": str(dtype)})
        assert torch_dtypes.dtype(json.loads(text)["dtype"]) is torch_dtypes.dtype(dtype) is dtype
        assert eval(repr(dtype)) is getattr(torch, str(dtype).removeprefix("torch.")) is dtype
        assert {dtype: 1}[torch_dtypes.dtype(str(dtype))] == 1
    with pytest.raises(
        TypeError, match=r"expected a dtype of a number format, but got torch\.float32"
    ):
        torch_dtypes.dtype(torch.float32)
    with pytest.raises(
        ValueError, match=r"expected the name of a number format, but got 'torch\.float32'"
    ):
        torch_dtypes.dtype("torch.float32")


@every_way
def test_formats_and_cards(way):
    for name in (
        "posit16es2",
        "q43_stochastic_b4",
        "e4m3fn_bias8_saturate",
        "ufixed3_4_wrap",
        "fixedminus3_6",
        "nf4",
        "takum12_log",
    ):
        fmt = torch_dtypes.format_of(name)
        made = WAYS[way](fmt)
        assert (
            type(made) is _C.Format and made is not fmt and made == fmt and repr(made) == repr(fmt)
        )
        made.rounding = _C.Rounding.to_odd
        assert torch_dtypes.format_of(name) == fmt != made
        if not way.startswith("save") or "full" in way:  # a Card is no weight
            assert WAYS[way](torch_dtypes.card(name)) == torch_dtypes.card(name)


def test_a_format_that_no_name_describes():
    fmt = torch_dtypes.format_of("q43")
    fmt.random_bits = 4  # which the mode nearest_even draws none of
    assert copy.copy(fmt) == copy.deepcopy(fmt) == fmt
    with pytest.raises(
        ValueError,
        match=r"expected a format that a name describes, but got <Format q43: .*, since 'q43' "
        r"means another one",
    ):
        pickle.dumps(fmt)


# Other processes


class Samples(Dataset):
    def __init__(self, dtype):
        self.x = torch.arange(24.0).reshape(8, 3).div(4).to(dtype)

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return (
            self.x[index],
            index,
            {"twice": self.x[index] * 2, "fresh": torch.ones(2, dtype=self.x.dtype)},
        )


LOADERS = [(None, "q43"), (None, "e5m5"), ("spawn", "posit12es1"), ("spawn", "posit8es1")]
LOADERS += [
    ("fork", name) for name in ("posit16es2", "q43", "e5m5", "tf32", "posit12es1", "e11m30")
]


@pytest.mark.parametrize(("start", "name"), thin_out(LOADERS, 4))
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_data_loader(start, name):
    data = Samples(torch_dtypes.dtype(name))
    workers = {} if start is None else {"num_workers": 2, "multiprocessing_context": start}
    count = 0
    for x, index, more in DataLoader(data, batch_size=4, **workers):
        expect_tensor(x, data.x.dtype, data.x[index].tolist())
        expect_tensor(more["twice"], data.x.dtype, (data.x[index] * 2).tolist())
        expect_tensor(more["fresh"], data.x.dtype, [[1.0, 1.0]] * 4)
        count += len(index)
    assert count == 8


def _worker(queue, answers):
    t = queue.get(timeout=60)
    t.mul_(2)  # in shared memory
    answers.put((str(t.dtype), t.tolist(), t.requires_grad, type(t).__name__))
    answers.put(torch.full((3,), 1.5, dtype=t.dtype))
    queue.get(timeout=60)


@pytest.mark.parametrize("start", thin_out(["fork", "spawn"]))
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_queues_share_the_memory_of_tensors(start):
    context = mp.get_context(start)
    t = torch.tensor(VALUES, dtype=torch_dtypes.dtype("posit12es1"))
    queue, answers = context.Queue(), context.Queue()
    process = context.Process(target=_worker, args=(queue, answers), daemon=True)
    process.start()
    queue.put(t)
    doubled = [2 * v for v in VALUES]
    assert answers.get(timeout=60) == ("torch.posit12es1", doubled, False, "Tensor")
    expect_tensor(answers.get(timeout=60), t.dtype, [1.5] * 3)
    queue.put("done")
    process.join(60)
    assert process.exitcode == 0
    assert t.is_shared() and t.tolist() == doubled


def _parameter_worker(rank, parameter):
    assert (
        isinstance(parameter, nn.Parameter)
        and parameter.requires_grad
        and parameter.dtype is torch.posit16es2
    )
    with torch.no_grad():
        parameter.fill_(4)


@pytest.mark.whole
def test_parameters_are_shared_with_spawned_processes():
    parameter = nn.Parameter(torch.tensor(VALUES, dtype=torch.posit16es2))
    parameter.share_memory_()
    mp.spawn(_parameter_worker, args=(parameter,), nprocs=1)
    assert parameter.tolist() == [4.0] * 6


def test_a_non_leaf_is_not_sent():
    t = torch.ones(2, dtype=torch.posit16es2, requires_grad=True) * 2
    with pytest.raises(RuntimeError, match="non-leaf tensor which requires_grad"):
        ForkingPickler.dumps(t)

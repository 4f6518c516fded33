"""safetensors files: values and the names of their dtypes; safetensors' own functions; files of
others, of other versions and broken ones."""

import io
import json
import pickle
import sys
from pathlib import Path

import new_process
import numpy as np
import pytest
import safetensors
import safetensors.torch
import torch
from conftest import BITS, parametrize_dtypes
from torch import nn

import torch_dtypes

every_dtype = parametrize_dtypes(
    "posit16es2 q43 e5m5 posit32es2 tf32 posit8es1 posit12es1 e4m3fn e2m1finite fixed4_3 e11m30"
)
VALUES = [1.0, -2.0, 0.5, 3.0, 0.0, -1.5]
# Stock dtypes in which files hold each format's values; built-in and run-time formats, with every
# kind of special codes.
WRITTEN = {
    "q43": torch.float16,                 "q52": torch.float8_e5m2,
    "posit8es0": torch.float16,           "posit8es2": torch.bfloat16,
    "posit16es1": torch.float32,          "posit16es2": torch.float32,
    "posit32es2": torch.float64,          "tf32": torch.float32,
    "e5m5": torch.float16,                "e5m7": torch.float16,
    "e8m4": torch.bfloat16,               "posit12es1": torch.float32,
    "e4m3fn": torch.float8_e4m3fn,        "e5m2_saturate": torch.float8_e5m2,
    "e2m1finite": torch.float8_e4m3fn,    "e4m3fnuz": torch.float16,
    "binary8p3se": torch.float16,         "fixed4_3": torch.float16,
    "fixed4_3_symmetric": torch.float16,  "ufixed8_8": torch.float32,
    "fixedminus3_6": torch.float8_e4m3fn, "fixed9_minus1": torch.float16,
    "e8m23": torch.float32,               "e11m30": torch.float64,
    "q43_up_down": torch.float16,
}  # fmt: skip
STOCK = [
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
]
VERSION_1 = Path(__file__).resolve().parents[1] / "data" / "version1.safetensors"


def every_code(dtype):
    """All codes of a dtype, or of a wide one a sample with the infinities and NaNs of both
    signs."""
    fmt = torch_dtypes.format_of(dtype)
    if fmt.bits <= 16:
        codes = torch.arange(2**fmt.bits)
    else:
        special = fmt.max_code + torch.arange(-100, 101)
        random = torch.randint(
            -(2**63), 2**63 - 1, (2000,), generator=torch.Generator().manual_seed(1)
        )
        codes = torch.cat(
            [random, special, special + fmt.max_code + 2, torch.tensor([0, 1, -1])]
        ) & (2**fmt.bits - 1)
    return torch_dtypes.from_codes(codes.to(BITS[dtype.itemsize]), dtype)


@pytest.mark.parametrize("name", WRITTEN)
def test_every_code_comes_back_from_the_narrowest_stock_dtype_that_has_every_value(name, tmp_path):
    dtype = torch_dtypes.dtype(name)
    t = every_code(dtype)
    torch_dtypes.save_safetensors({"t": t}, tmp_path / "t.safetensors")
    plain, exact = safetensors.torch.load_file(tmp_path / "t.safetensors")["t"], t.double()
    assert plain.dtype is WRITTEN[name]
    # Infinities become float64's outermost number.
    assert torch.equal(plain.double().nan_to_num(nan=1e300), exact.nan_to_num(nan=1e300))
    for narrower in [
        d for d in STOCK[: STOCK.index(plain.dtype)] if d.itemsize < plain.dtype.itemsize
    ]:
        assert not torch.equal(
            exact.to(narrower).double().nan_to_num(nan=1e300), exact.nan_to_num(nan=1e300)
        ), narrower
    with torch_dtypes.rounding("up_down"):
        made = torch_dtypes.load_safetensors(tmp_path / "t.safetensors")["t"]
    assert made.dtype is dtype and torch.equal(torch_dtypes.codes(made), torch_dtypes.codes(t))


INF, NAN = float("inf"), float("nan")
TABLES = {
    "infinities and saturates": ([0.0, 1.0, INF, -INF], {"overflow": "saturate"}),
    "code beyond its values": ([5.0, 1.0, 2.0], {}),
    "two NaNs": ([0.0, 1.0, NAN, NAN], {}),
    "NaN of casts second": ([-0.0, 1.5, NAN, NAN, NAN], {"nan": 3}),
    "more NaNs than float8 has": ([1.0, 2.0, *[NAN] * 14], {}),
    "16 bits": ([2.0**-9, -0.0, INF, 1 / 3, *[NAN] * 40_000], {"overflow": "saturate"}),
}


@pytest.mark.parametrize("case", TABLES)
def test_every_code_of_a_table_comes_back(case, tmp_path):
    values, options = TABLES[case]
    dtype = torch_dtypes.table_format(values, **options)
    t = every_code(dtype)
    torch_dtypes.save_safetensors({"t": t}, tmp_path / "t.safetensors")
    plain = safetensors.torch.load_file(tmp_path / "t.safetensors")["t"].double()[: len(values)]
    expected = torch.tensor(values, dtype=torch.float64)
    assert torch.equal(plain.nan_to_num(7.0, 8.0, 9.0), expected.nan_to_num(7.0, 8.0, 9.0))
    assert torch.equal(plain.signbit()[expected == 0], expected.signbit()[expected == 0])
    made = torch_dtypes.load_safetensors(tmp_path / "t.safetensors")["t"]
    assert made.dtype is dtype and torch.equal(torch_dtypes.codes(made), torch_dtypes.codes(t))


def test_what_keeps_the_further_nans_of_a_table(tmp_path):
    dtype = torch_dtypes.table_format([0.0, 1.0, NAN, NAN, -2.0], nan=3)  # and the codes 5 to 7
    x, file, saved = every_code(dtype), tmp_path / "t.safetensors", io.BytesIO()
    torch.save(x, saved)
    saved.seek(0)
    for codes in (True, False):
        torch_dtypes.save_safetensors({"x": x}, file, codes=codes)
        assert torch_dtypes.codes(torch_dtypes.load_safetensors(file)["x"]).tolist() == [*range(8)]
    for made in (
        torch.load(saved),
        pickle.loads(pickle.dumps(x)),
        torch.cat([x[:3], x.clone()[3:]]),
    ):
        assert torch_dtypes.codes(made).tolist() == [*range(8)]
    stored = safetensors.torch.load_file(file)["x"].view(torch.int16).int() & 0xFFFF
    assert stored.tolist() == [0, 0x3C00, 0xFE00, 0x7E00, 0xC000, 0x7E01, 0xFE01, 0x7E02]
    up = torch_dtypes.with_rounding(dtype, "up")
    for made in (
        x * 1,
        x.to(up),
        x.double().to(dtype),
        torch.from_numpy(np.asarray(x)).to(dtype),
        torch.tensor(x.tolist()).to(dtype),
    ):
        assert torch_dtypes.codes(made).tolist() == [0, 1, 3, 3, 4, 3, 3, 3]
    for exchange in (x.numpy, lambda: np.from_dlpack(x)):
        with pytest.raises((TypeError, BufferError), match="has a type for, but got"):
            exchange()


def test_values_that_a_table_does_not_have(tmp_path):
    dtype = torch_dtypes.table_format([0.0, 1.0, 2.0, 3.0])
    torch_dtypes.save_safetensors(
        {"t": torch.tensor([1.0, 0.0]).to(dtype)}, tmp_path / "t.safetensors"
    )
    with safetensors.safe_open(tmp_path / "t.safetensors", "pt") as file:
        metadata, stock = file.metadata(), file.get_tensor("t").dtype
    for value in (NAN, 0.5):
        safetensors.torch.save_file(
            {"t": torch.tensor([value, 0.0]).to(stock)}, tmp_path / "t.safetensors", metadata
        )
        with pytest.raises(
            ValueError, match=f"expected values of {dtype}, but got {value}, which it lacks"
        ):
            torch_dtypes.load_safetensors(tmp_path / "t.safetensors")
    safetensors.torch.save_file(
        {"t": torch.tensor([-0.0]).to(stock)}, tmp_path / "t.safetensors", metadata
    )
    assert (
        torch_dtypes.codes(torch_dtypes.load_safetensors(tmp_path / "t.safetensors")["t"]).item()
        == 0
    )


def test_codes_that_repeat_another_s_zero_come_back_as_that(tmp_path):
    flush = torch_dtypes.dtype("e4m3_flush")
    t = every_code(flush)
    torch_dtypes.save_safetensors({"t": t}, tmp_path / "t.safetensors")
    codes = torch_dtypes.codes(t)
    expected = torch.where((codes & 0x78) == 0, codes & 0x80, codes)
    assert torch.equal(
        torch_dtypes.codes(torch_dtypes.load_safetensors(tmp_path / "t.safetensors")["t"]), expected
    )


@every_dtype
def test_safetensors_hold_values_and_names(dtype, tmp_path):
    file = tmp_path / "t.safetensors"
    t = torch.tensor(VALUES, dtype=dtype).view(2, 3)
    tensors = {
        "t": t,
        "stock": torch.ones(3, dtype=torch.bfloat16),
        "parameter": nn.Parameter(t[0].clone()),
        "none": t[:0].clone(),
        "number": t[0, 0].clone(),
        "bits": torch_dtypes.codes(t).clone(),
    }
    expected = torch.tensor(VALUES).view(2, 3)
    for codes in (False, True):
        torch_dtypes.save_safetensors(tensors, file, metadata={"note": "kept"}, codes=codes)
        made = torch_dtypes.load_safetensors(file)
        assert made.keys() == tensors.keys()
        for name, t in tensors.items():
            assert (
                type(made[name]) is torch.Tensor
                and made[name].dtype is t.dtype
                and made[name].shape == t.shape
            )
            assert made[name].tolist() == t.tolist()
        plain = safetensors.torch.load_file(file)
        with safetensors.safe_open(file, "pt") as opened:
            assert (
                opened.metadata()["note"] == "kept"
                and json.loads(opened.metadata()["torch_dtypes"])["dtypes"]["t"] == str(dtype)[6:]
            )
        if codes:
            assert torch.equal(plain["torch_dtypes codes of t"], plain["bits"])
        else:
            assert torch.equal(plain["t"].float(), expected) and not torch_dtypes.is_format_dtype(
                plain["t"].dtype
            )
        assert (
            torch_dtypes.load_safetensors(str(file), device=torch.device("cpu"))["t"].dtype is dtype
        )


def test_codes_are_no_state_dict(tmp_path):
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).to(torch.posit16es2)
    torch_dtypes.save_safetensors(model.state_dict(), tmp_path / "m.safetensors", codes=True)
    for other in (model, nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))):
        with pytest.raises(
            RuntimeError,
            match=r"Missing key\(s\).*\n.*Unexpected key\(s\).*torch_dtypes codes of 0.weight",
        ):
            other.load_state_dict(safetensors.torch.load_file(tmp_path / "m.safetensors"))
        other.load_state_dict(torch_dtypes.load_safetensors(tmp_path / "m.safetensors"))


@every_dtype
def test_safetensors_own_functions_write_values_and_names(dtype, tmp_path):
    file = tmp_path / "t.safetensors"
    model = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 5, bias=False), nn.BatchNorm1d(5)).to(
        dtype
    )
    model[1].weight = model[0].weight
    own = model.state_dict()
    state = {name: t for name, t in own.items() if name != "1.weight"}

    def expect(loaded):
        with safetensors.safe_open(file, "pt") as opened:
            assert opened.metadata()["format"] == "pt"
        made = torch_dtypes.load_safetensors(file)
        assert loaded.keys() == made.keys()
        for name, t in made.items():
            assert t.dtype is own[name].dtype and torch.equal(t, own[name]), name
            assert torch.equal(
                loaded[name].double(), own[name].double()
            ) and not torch_dtypes.is_format_dtype(loaded[name].dtype)

    safetensors.torch.save_file(state, file, metadata={"format": "pt"})
    expect(safetensors.torch.load_file(file))
    file.write_bytes(safetensors.torch.save(state, {"format": "pt"}))
    expect(safetensors.torch.load(file.read_bytes()))
    safetensors.torch.save_model(model, str(file), {"format": "pt"})
    expect(safetensors.torch.load_file(file))
    fresh = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 5, bias=False), nn.BatchNorm1d(5)).to(
        dtype
    )
    fresh[1].weight = fresh[0].weight
    assert safetensors.torch.load_model(fresh, file) == (set(), [])
    assert all(
        torch.equal(a, b) for a, b in zip(fresh.state_dict().values(), own.values(), strict=True)
    )


def test_safetensors_own_functions_refuse_what_they_refuse(tmp_path):
    file, t = tmp_path / "t.safetensors", torch.ones(2, 3, dtype=torch.q43)
    for tensors, error, message in (
        ({"a": t, "b": t[1:]}, RuntimeError, "share memory.*'a', 'b'"),
        ({"a": t.t()}, ValueError, "non contiguous one for 'a'"),
        ({"a": t[0].expand(2, 3)}, ValueError, "non contiguous one for 'a'"),
        ({"a": t, "b": 3}, ValueError, "Key `b` is invalid"),
        ([t], ValueError, "Expected a dict"),
        ({"a": torch.ones(2), "b": t.float().to_sparse()}, ValueError, "sparse"),
    ):
        with pytest.raises(error, match=message):
            safetensors.torch.save_file(tensors, file)
    with pytest.raises(ValueError, match="metadata without the key 'torch_dtypes'"):
        safetensors.torch.save_file({"a": t}, file, {"torch_dtypes": "x"})
    assert not list(tmp_path.iterdir())


def fresh(code, *arguments):
    return new_process.run(
        "-W", "error", "-c", code, *map(str, arguments), check=True
    ).stdout.strip()


@pytest.mark.parametrize(
    "first",
    [
        "import torch",
        "import safetensors.torch",
        "from safetensors.torch import save_file",
        "import safetensors",
    ],
)
def test_whichever_is_imported_first(first, tmp_path):
    code = f"""
{first}
import sys, torch
if sys.argv[2] == "import torch":
    assert not {{"safetensors", "torch_dtypes.integrations.safetensors"}} & set(sys.modules)
from safetensors.torch import load_file, save_file
save_file({{"t": torch.ones(2, dtype=torch.posit16es2)}}, sys.argv[1])
print(load_file(sys.argv[1])["t"].tolist())
import safetensors.torch
assert type(safetensors.torch.__spec__).__name__ == "ModuleSpec"
assert save_file is safetensors.torch.save_file
"""
    assert fresh(code, tmp_path / "t.safetensors", first) == "[1.0, 1.0]"


def test_a_library_that_is_not_what_is_expected_is_imported_and_named(tmp_path):
    (tmp_path / "safetensors").mkdir()
    (tmp_path / "safetensors" / "__init__.py").write_text("")
    (tmp_path / "safetensors" / "torch.py").write_text(
        "def save(everything): pass\ndef save_file(everything): pass\n"
    )
    code = """
import sys, warnings, torch, torch_dtypes
sys.path.insert(0, sys.argv[1])
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    import safetensors.torch
print(safetensors.torch.save.__code__.co_varnames, *(w.message for w in said))
"""
    assert (
        "('everything',) expected a supported release of safetensors.torch, but got one that "
        "torch_dtypes cannot hook"
    ) in fresh(code, tmp_path)


def test_an_import_that_fails_may_succeed_later(tmp_path):
    (tmp_path / "safetensors").mkdir()
    (tmp_path / "safetensors" / "__init__.py").write_text("")
    (tmp_path / "safetensors" / "torch.py").write_text("raise ValueError('not today')")
    code = """
import sys, torch
sys.path.insert(0, sys.argv[1])
try:
    import safetensors.torch
except ValueError:
    pass
del sys.modules["safetensors"]
sys.path.remove(sys.argv[1])
from safetensors.torch import save
print(len(save({"t": torch.ones(2, dtype=torch.q43)})) > 8)
"""
    assert fresh(code, tmp_path) == "True"


def test_a_model_in_safetensors(tmp_path):
    model = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 5, bias=False), nn.BatchNorm1d(5)).to(
        torch.posit16es2
    )
    model[1].weight = model[0].weight
    torch_dtypes.save_safetensors(model.state_dict(), tmp_path / "m.safetensors")
    made = torch_dtypes.load_safetensors(tmp_path / "m.safetensors")
    assert (
        made["1.weight"] is made["0.weight"]
        and len(safetensors.torch.load_file(tmp_path / "m.safetensors")) == len(made) - 1
    )
    fresh = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 5, bias=False), nn.BatchNorm1d(5)).to(
        torch.posit16es2
    )
    fresh.load_state_dict(made)
    assert all(
        a.dtype is b.dtype and torch.equal(a, b)
        for a, b in zip(fresh.state_dict().values(), model.state_dict().values(), strict=True)
    )
    with pytest.raises(RuntimeError, match="share memory"):
        torch_dtypes.save_safetensors(
            {"a": model[0].weight, "b": model[0].weight[1:]}, tmp_path / "n.safetensors"
        )
    # Two tensors without memory are not one.
    with pytest.raises((RuntimeError, NotImplementedError), match="meta"):
        torch_dtypes.save_safetensors(
            {"a": model[0].weight.to("meta"), "b": model[0].weight.to("meta")},
            tmp_path / "n.safetensors",
        )
    with pytest.raises(ValueError, match="non contiguous"):
        torch_dtypes.save_safetensors({"a": model[0].weight.t()}, tmp_path / "n.safetensors")


def test_files_of_others_are_read_as_ever(tmp_path):
    tensors = {"a": torch.ones(2), "b": torch.ones(2, dtype=torch.int16)}
    safetensors.torch.save_file(tensors, tmp_path / "t.safetensors")
    made = torch_dtypes.load_safetensors(tmp_path / "t.safetensors")
    assert all(
        made[name].dtype is t.dtype and torch.equal(made[name], t) for name, t in tensors.items()
    )


def test_a_safetensors_file_of_version_1_loads_for_ever():
    code = f"""
import torch, torch_dtypes
made = torch_dtypes.load_safetensors({str(VERSION_1)!r})
base, runtime = made["base"], made["runtime"]
assert base.dtype is torch.posit16es2 and base.tolist() == {VALUES!r} and made["tied"] is base
assert str(runtime.dtype) == "torch.posit12es1_up"
assert torch_dtypes.codes(runtime).tolist() == [[333, 1024], [3764, 1938]]
assert torch.equal(made["stock"], torch.tensor([1.5]))
print("read")
"""
    done = new_process.run("-W", "error", "-c", code, timeout=120)
    assert done.stdout.strip() == "read", done.stderr


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (
            {"version": 3, "dtypes": 3},
            "expected version 1 to 2 of torch_dtypes' metadata in .*but got version 3; update "
            "torch-dtypes",
        ),
        (
            {"version": 2, "dtypes": {"t": "posit16es2"}, "same": {}},
            "expected 'values' or 'codes' under 'holds'",
        ),
        (
            {"version": 2, "dtypes": {"t": "posit16es2"}, "same": {}, "holds": "codes"},
            "expected .* to hold 't'",
        ),
        (
            {"version": 2, "dtypes": {"t": "q43"}, "same": {}, "holds": "values"},
            r"expected the values of .* as torch\.float16, .* torch\.int16",
        ),
        (
            {"version": 2, "dtypes": {"h": "q43"}, "same": {}, "holds": "values"},
            r"cannot read 'h' of .*expected values of torch\.q43, but got 1\.03",
        ),
        (
            {"version": 1, "dtypes": {"t": "posit16es9"}, "same": {}},
            "cannot read 't' of .*this version of torch_dtypes knows, but got 'posit16es9'",
        ),
        (
            {"version": 1, "dtypes": {"t": "q43"}, "same": {}},
            r"cannot read 't' of .*expected codes of torch\.q43 as a tensor of torch\.uint8",
        ),
        (
            {"version": 1, "dtypes": {"t": "posit12es1"}, "same": {}},
            "cannot read 't' of .* from 0 to 4095, but got one beyond",
        ),
        ({"version": 1, "dtypes": {"u": "posit16es2"}, "same": {}}, "expected .* to hold 'u'"),
        (
            {"version": 1, "dtypes": {}, "same": {"u": "v"}},
            "expected 'u' to be another name of a tensor in .*but got 'v'",
        ),
        ({"version": 1, "dtypes": ["t"], "same": {}}, "expected names by names under 'dtypes'"),
        ({"version": 1, "dtypes": {}}, "expected names by names under 'same'"),
        ({"dtypes": {}}, "as JSON with a version"),
        ([], "as JSON with a version"),
        ("posit16es2", "as JSON with a version"),
    ],
)
def test_broken_metadata_are_named(header, message, tmp_path):
    text = header if isinstance(header, str) else json.dumps(header)
    tensors = {
        "t": torch.full((2,), -1, dtype=torch.int16),
        "h": torch.tensor([1.0, 1.03125], dtype=torch.float16),
    }
    safetensors.torch.save_file(
        tensors, tmp_path / "t.safetensors", metadata={"torch_dtypes": text}
    )
    with pytest.raises(ValueError, match=message):
        torch_dtypes.load_safetensors(tmp_path / "t.safetensors")


def test_what_safetensors_do_not_take(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="metadata without the key 'torch_dtypes'"):
        torch_dtypes.save_safetensors({}, tmp_path / "t", metadata={"torch_dtypes": "x"})
    with pytest.raises(ValueError, match=r"expected tensors, but got .*float.* for 'a'"):
        torch_dtypes.save_safetensors({"a": 1.0}, tmp_path / "t")
    monkeypatch.setitem(sys.modules, "safetensors", None)
    for call in (
        lambda: torch_dtypes.save_safetensors({}, tmp_path / "t"),
        lambda: torch_dtypes.load_safetensors(tmp_path / "t"),
    ):
        with pytest.raises(ImportError, match="pip install safetensors"):
            call()

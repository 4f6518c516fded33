"""Tables of values: their names and files, and invalid tables."""

import math
import pickle

import new_process
import numpy as np
import pytest
import torch
from conftest import codes_of

import torch_dtypes
from torch_dtypes.formats.tables import custom, making


def test_names_and_files():
    made = torch_dtypes.table_format([0.0, 1.0, -1.0, 0.1])
    again = torch_dtypes.table_format(torch.tensor([0.0, 1.0, -1.0, 0.1], dtype=torch.float64))
    assert (
        made is again
        and made is not torch_dtypes.table_format([0.0, 1.0, -1.0, 0.25])
        and torch_dtypes.dtype(str(made)) is made
    )
    assert pickle.loads(pickle.dumps(made)) is made
    up = torch_dtypes.with_rounding(made, "up")
    assert str(up) == f"{made}_up" and torch_dtypes.dtype(str(up)[6:]) is up


def test_a_fresh_process_loads_a_table(tmp_path):
    dtype = torch_dtypes.table_format([0.0, 1.0, -1.0, 0.1], ties="away", rounding="to_odd")
    x = torch.tensor([0.07, 0.9, -3.0]).to(dtype)
    torch.save(
        {
            "x": x,
            "layer": torch.nn.Linear(2, 2).to(dtype).state_dict(),
            "h": torch.ones(1, dtype=torch_dtypes.dtype("hif8")),
        },
        tmp_path / "t.pt",
    )
    code = f"""
import torch
loaded = torch.load({str(tmp_path / "t.pt")!r}, weights_only=True)
x, weight = loaded["x"], loaded["layer"]["weight"]
print(x.dtype, x.float().tolist(), weight.dtype, loaded["h"].dtype)
print(torch.tensor([0.05]).to(x.dtype).item())
"""
    done = new_process.run("-c", code, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"{dtype} {x.float().tolist()} {dtype} torch.hif8", "0.1"]
    with pytest.raises(ValueError, match="damaged"):
        torch_dtypes.dtype(
            f"table2_0000000000000000:{making.written_name(str(dtype)[6:]).partition(':')[2]}"
        )


def test_a_fresh_process_reads_a_table_s_format_and_card(tmp_path):
    fmt = torch_dtypes.format_of(
        torch_dtypes.table_format([0.0, 1.0, -1.0, 0.3], ties="away", rounding="to_odd")
    )
    file = tmp_path / "t.pkl"
    file.write_bytes(pickle.dumps((fmt, torch_dtypes.card(fmt))))
    code = (
        f"import pickle, torch; fmt, card = pickle.load(open({str(file)!r}, 'rb')); print(fmt, "
        "card.format == fmt, card.values().tolist())"
    )
    done = new_process.run("-c", code, timeout=120)
    assert (done.returncode, done.stdout.strip()) == (0, f"{fmt} True [0.0, 1.0, -1.0, 0.3]"), (
        done.stderr
    )


def test_unknown_content_says_what_to_do():
    with pytest.raises(ValueError, match="table_format"):
        torch_dtypes.dtype("table4_0123456789abcdef")


def test_a_name_that_was_unknown_is_known_once_its_table_is_made():
    name = custom.define([0.0, 1.0, 3.5, -7.0]).name()
    with pytest.raises(ValueError, match="table_format"):
        torch_dtypes.dtype(name)
    made = torch_dtypes.table_format([0.0, 1.0, 3.5, -7.0])
    assert (
        torch_dtypes.dtype(name) is made
        and torch_dtypes.chop(torch.tensor([3.0]), name).item() == 3.5
    )


def test_values_from_files(tmp_path):
    (tmp_path / "v.txt").write_text("0, 0x1.8p1\n-2.5 nan")
    np.save(tmp_path / "v.npy", np.array([0.0, 3.0, -2.5, math.nan]))
    torch.save(torch.tensor([0.0, 3.0, -2.5, math.nan]), tmp_path / "v.pt")
    made = [torch_dtypes.table_format(tmp_path / name) for name in ("v.txt", "v.npy", "v.pt")]
    assert (
        made[0] is made[1] is made[2] and codes_of(torch.tensor([math.nan]).to(made[0])).item() == 3
    )


@pytest.mark.parametrize(
    ("name", "content", "what"),
    [
        ("v.txt", b"1 2 x", "text, numbers with blanks"),
        ("v.bin", bytes(range(256)), "text, numbers with blanks"),
        ("v.txt", b"0x1p99999 1", "text, numbers with blanks"),
        ("v.npy", b"1234", "an array of numbers, as numpy.save"),
        ("v.npy", b"", "an array of numbers, as numpy.save"),
        ("v.pt", b"1234", "a tensor or a list of numbers, as torch.save"),
    ],
)
def test_files_that_hold_no_values(name, content, what, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=f"expected {what}.*{name}.* but got another content"):
        torch_dtypes.table_format(tmp_path / name)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (([1.0, 2.0, 1.0],), ValueError, "different values, but got 1.0 for the codes 0 and 2"),
        (([1.0],), ValueError, "two finite values"),
        ((range(2**16 + 1),), ValueError, "at most 65536 values"),
        (([1.0, 2.0**-1030],), ValueError, "normal numbers"),
        ((["a", 1.0],), TypeError, "'a' in place 0"),
        (([0.0, 2**60 + 1],), ValueError, "round it first"),
        (
            (torch.tensor([0, 2**60 + 1]),),
            ValueError,
            f"but got {2**60 + 1} in place 1; round it first",
        ),
        (
            (np.array([0, 2**60 + 1]),),
            ValueError,
            f"but got {2**60 + 1} in place 1; round it first",
        ),
        (([0, 10**400],), ValueError, "round it first"),
        (("nowhere.txt",), ValueError, "a file of values"),
        ((3.0,), TypeError, "list, a tensor"),
        (([0.0, 1.0], 2), ValueError, "a code from 0 to 1 for nan"),
        (([0.0, 1.0], None, "odd"), ValueError, "ties as one of"),
    ],
)
def test_impossible_tables(arguments, error, message):
    with pytest.raises(error, match=message):
        torch_dtypes.table_format(*arguments)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"boundaries": [0.5]}, "2 boundaries"),
        ({"boundaries": [1.5, 1.6]}, "1.5 between 0.0 and 1.0"),
        ({"boundaries": [0.5, 0.5, 1.5, 3.0]}, "beyond all values"),
        (
            {"boundaries": [-0.5, 0.5, 1.5, 3.0]},
            r"with boundaries beyond the outermost values, but got \(-0.5, 3.0\)",
        ),
        ({"overflow": "infinity"}, "inf and -inf among the values"),
        ({"overflow": "nan"}, "a NaN among the values"),
        ({"overflow": 3}, "a code from 0 to 2 for overflow"),
        ({"overflow": (0, 1, 2)}, "overflow as one code or two"),
    ],
)
def test_impossible_options(options, message):
    with pytest.raises(ValueError, match=message):
        torch_dtypes.table_format([0.0, 1.0, 2.0], **options)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: torch_dtypes.takum_format(33), "nbits from 6 to 32"),
        (lambda: torch_dtypes.takum_format(5), "nbits from 6 to 32"),
        (lambda: torch_dtypes.takum_format(33, linear=False), "nbits from 6 to 32"),
        (lambda: torch_dtypes.dtype("takum33_log"), "nbits from 6 to 32"),
        (
            lambda: torch_dtypes.dtype("takum17_log"),
            "logarithmic takums of at most 16 bits, but got nbits=17; use linear=True",
        ),
        (lambda: torch_dtypes.dtype("takum33_linear"), "nbits from 6 to 32"),
        (lambda: torch_dtypes.lns_format(8, 8), "3 to 16 bits"),
        (lambda: torch_dtypes.posit_format(8, 2, regime_max=8), "regime_max from 2 to 7"),
        (
            lambda: torch_dtypes.posit_format(8, 2, regime_max=3, infinity="saturate"),
            "with regime_max",
        ),
        (lambda: torch_dtypes.float_format(8, 10, signed=False), "at most 16 bits"),
        (
            lambda: torch_dtypes.float_format(4, 3, signed=False, specials="fnuz"),
            "specials other than 'fnuz'",
        ),
        (
            lambda: torch_dtypes.float_format(4, 3, specials="fn", overflow="propagate"),
            "specials 'ieee' or 'p3109'",
        ),
        (
            lambda: torch_dtypes.float_format(4, 3, subnormals="flush"),
            "subnormals to be True, False or 'normal', but got 'flush'",
        ),
        (
            lambda: torch_dtypes.dtype("takum12"),
            "give 'takum12_linear' or 'takum12_log'",
        ),
        (
            lambda: torch_dtypes.dtype("aetherfloat8"),
            "AetherFloat-8 has no name here, since .* its bias, .*table_format",
        ),
        (lambda: torch_dtypes.dtype("float32"), "that is a stock dtype.*'fp32'"),
        (lambda: torch_dtypes.dtype("int8"), "with a scale by torch_dtypes.chop\\(x, 'int8'\\)"),
        (lambda: torch_dtypes.chop(1.0, "takum9"), "'takum9_linear' or"),
        (lambda: torch_dtypes.posit_format(64, 2), "at most 53 significant bits"),
    ],
)
def test_impossible_parameters(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("values", [[-1.0, -0.3, 0.0, 0.3, 1.0], [5.0, 1.0, 0.0, 2.0]], ids=str)
def test_zeros_where_code_0_is_another_number(values):
    """Compare two tables of the same values, one with 0 at code 0."""
    dtype, usual = (
        torch_dtypes.table_format(v, ties="away") for v in (values, sorted(values, key=abs))
    )
    ones = torch.ones(2, 2, dtype=dtype)
    assert (
        torch.zeros(2, dtype=dtype).tolist()
        == ones.new_zeros(2).tolist()
        == torch.zeros_like(ones)[0].tolist()
        == [0, 0]
    )
    for f in (
        torch.tril,
        torch.triu,
        torch.diag,
        torch.diagflat,
        torch.diag_embed,
        lambda x: x.clone().tril_(),
    ):
        assert f(ones).tolist() == f(torch.ones(2, 2, dtype=usual)).tolist()
    x = ones.clone().requires_grad_()
    x.tril().sum().backward()
    assert x.grad.tolist() == [[1, 0], [1, 1]]
    torch.manual_seed(0)
    cell = torch.nn.RNN(2, 2, batch_first=True).to(dtype)
    assert torch.equal(cell(ones[None])[0], cell(ones[None], torch.zeros(1, 1, 2).to(dtype))[0])

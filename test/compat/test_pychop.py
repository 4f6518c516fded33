"""The door for Pychop: the results of the original, and where they differ the right ones."""

import copy
import importlib.util
import json
import math
import os
import pickle
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from door_cases import differing, unpack
from pychop_cases import collect

import torch_dtypes
from torch_dtypes.compat import pychop
from torch_dtypes.compat.pychop import builtin, layers

ROOT = Path(__file__).parents[2]
RECORDED = json.loads((ROOT / "test/data/pychop.json").read_text())["door"]
PAGE = (ROOT / "docs/tutorials/coming_from.py").read_text()
ROWS = re.findall(r"^# \| `([^|]+)` \|(?: `([^|]+)`)? \| `([^|]+)` \| `([^|]+)` \|$", PAGE, re.M)
NAMES = {"np": np, "torch": torch, "inf": math.inf, "nan": math.nan}
beside = pytest.mark.skipif(
    not importlib.util.find_spec("pychop"), reason="pip install --no-deps pychop==0.6.2"
)


@pytest.fixture(autouse=True)
def restore_backend(monkeypatch):
    monkeypatch.setenv("chop_backend", "auto")


def test_results_are_pychops():
    ours = {name: [t.float() for t in results] for name, results in collect(pychop).items()}
    theirs = {name: unpack(text, ours[name]) for name, text in RECORDED.items()}
    assert len(theirs) > 300 and differing(ours, theirs) == []


@pytest.mark.whole
@beside
def test_results_are_those_of_pychop_beside_it():
    import pychop as original

    for seed in (1, 2):
        assert differing(collect(pychop, seed), collect(original, seed)) == []


def evaluate(row, module, more):
    """Return the result of a row's call as plain numbers, or the name of its error."""
    call, x, *_ = row
    names = NAMES | vars(module) | vars(more)
    names["c"] = module.Chop(5, 10)
    x = eval(x, NAMES) if x else 0.0
    names["x"] = x if isinstance(x, torch.Tensor) else np.array(x)
    try:
        names["c"](names["x"])  # Pychop's choppers have their functions after a call
        result = eval(call, names)
    except Exception as error:
        return next(e.__name__ for e in type(error).__mro__ if e.__module__ == "builtins")
    if isinstance(result, (torch.Tensor, np.ndarray, np.generic)):
        plain = np.asarray(result)
        return (plain.astype(float) if plain.dtype == object else plain).tolist()
    return result


def read(cell):
    return cell if cell.endswith("Error") else eval(cell, NAMES)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]} {row[1]}")
def test_where_pychop_is_wrong_the_door_is_right(row):
    assert repr(evaluate(row, pychop, builtin)) == repr(read(row[3]))


@pytest.mark.whole
@beside
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]} {row[1]}")
def test_the_page_says_what_pychop_gives(row):
    import pychop as original
    import pychop.builtin

    original.backend("auto")
    assert repr(evaluate(row, original, original.builtin)) == repr(read(row[2]))


def test_the_page_has_all_rows():
    assert len(ROWS) > 45


def test_every_name_is_there():
    names = """
        BFPSpec BFPTensor BFP_FORMATS Bitchop CPArray CPFloat CPTensor Chop ChopSTE Chopf ChopfSTE
        Chopi ChopiSTE Customs FaultChop LightChop LightChopSTE MXSpec MXTensor MX_FORMATS Options
        P3109 P3109Format Simulate backend bfp_quantize compare_mx_formats create_bfp_spec
        create_mx_spec float_params get_backend mx_quantize optimizers p3109_decode p3109_encode
        p3109_quantize print_bfp_format_table print_mx_format_table ptq
    """.split()
    assert [name for name in names if not hasattr(pychop, name)] == []
    assert len(pychop.math_func.FUNCTIONS) == 65


MAKERS = {
    "Chop": lambda: pychop.Chop(4, 3, rmode=5, random_state=3),
    "FaultChop": lambda: pychop.FaultChop("q43", rmode=6, random_state=3),
    "explim": lambda: pychop.FaultChop("q43", rmode=5, explim=0, random_state=3),
    "Bitchop": lambda: pychop.Bitchop(4, 3, 5),
    "cadna": lambda: pychop.Chop(4, 3, rmode=10),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_random_modes_draw_from_the_choppers_own_seed(make):
    x, before = torch.full((4000,), 1.03125), torch.get_rng_state()
    chop, again = make(), make()
    first, second = chop(x), chop(x)
    assert torch.equal(first, again(x)) and not torch.equal(first, second)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(copy.deepcopy(chop)(x), pickle.loads(pickle.dumps(chop))(x))
    assert set(first.tolist()) == {1.0, 1.125}
    share = 0.25 if getattr(chop, "_mode", "") == "stochastic" else 0.5
    assert abs((first > 1).double().mean() - share) < 5 * 0.5 / 4000**0.5


def test_fixed_point_keeps_representable_numbers_and_follows_torchs_seed():
    chop = pychop.Chopf(4, 4, rmode=6)
    torch.manual_seed(1)
    first = chop(np.full(1000, 1.01))
    torch.manual_seed(1)
    assert (chop(np.full(1000, 1.01)) == first).all() and set(first) == {1.0, 1.0625}
    assert (chop(np.full(100, 1.0625)) == 1.0625).all()


@pytest.mark.parametrize("explim", [0, 1])
@pytest.mark.parametrize("kind", [torch.from_numpy, np.asarray], ids=["torch", "numpy"])
def test_bits_flip_with_probability_p(kind, explim):
    x = kind(np.full(20000, 1.5))
    flipped = pychop.FaultChop("q43", flip=True, p=0.2, explim=explim)(x)
    values, counts = np.unique(np.asarray(flipped), return_counts=True)
    assert values.tolist() == [1.0, 1.5, 1.625, 1.75]  # the fraction 100 with one bit changed
    assert abs(counts[1] / 20000 - 0.8) < 5 * 0.4 / 20000**0.5
    assert (pychop.FaultChop("q43", flip=False, p=0.2)(x) == 1.5).all()


def test_a_function_of_random_numbers_decides():
    x = np.array([1.0, 1.0625, -1.09375, 1.03125])
    for mode, above in ((5, [1.0, 1.125, -1.125, 1.0]), (6, [1.0, 1.125, -1.125, 1.125])):
        chop = pychop.FaultChop("q43", rmode=mode, randfunc=lambda n: np.full(n, 0.4))
        assert chop(x).tolist() == above
        on_device = pychop.FaultChop(
            "q43", rmode=mode, randfunc=lambda n, device: torch.full((n,), 0.4, device=device)
        )
        assert on_device(torch.from_numpy(x)).tolist() == above
    nearest = pychop.FaultChop("q43", rmode=1, randfunc=lambda n: 1 / 0)
    assert nearest(x).tolist() == [1.0, 1.0, -1.125, 1.0]


@pytest.mark.parametrize(
    "chop",
    [
        pychop.ChopSTE(5, 2),
        pychop.ChopfSTE(4, 4),
        pychop.ChopiSTE(8),
        pychop.FaultChop("q52", explim=0),
        pychop.bfp_quantize,
        pychop.mx_quantize,
        lambda x: pychop.p3109_quantize(x, ste=True),
        lambda x: pychop.CPTensor(x, pychop.Chop(5, 2)),
    ],
)
def test_gradients_pass_straight_through(chop):
    x = torch.tensor([[1.1, -0.3]], requires_grad=True)
    y = chop(x)
    y.backward(torch.tensor([[2.0, 3.0]]))
    assert x.grad.tolist() == [[2.0, 3.0]] and not torch.equal(y.detach(), x.detach())


def test_backends_choose_the_arrays():
    chop = pychop.Chop(5, 2)
    assert isinstance(chop([1.1, 2]), np.ndarray) and chop(1.1) == 1.0
    assert chop(torch.tensor([3, 9])).dtype == torch.float32
    pychop.backend("numpy")
    assert isinstance(chop(torch.ones(2)), np.ndarray)
    assert pychop.mx_quantize([1.0, 2.0], backend="numpy").tolist() == [1.0, 2.0]
    pychop.backend("torch", verbose=1)
    assert torch.equal(pychop.bfp_quantize([1.0, 2.0], backend="torch"), torch.tensor([1.0, 2.0]))
    assert pychop.get_backend() == "torch" == os.environ["chop_backend"]
    assert pychop.CPFloat(1.1, chop).value == 1.0
    with pytest.raises(TypeError, match=r"expected a torch tensor .* but got a ndarray"):
        chop(np.ones(2))
    os.environ["chop_backend"] = "tensorflow"
    with pytest.raises(ValueError, match=r"expected a backend .* but got 'tensorflow'"):
        chop(np.ones(2))


@pytest.mark.whole
@pytest.mark.skipif(not importlib.util.find_spec("jax"), reason="pip install jax")
@pytest.mark.filterwarnings("ignore")
def test_jax_arrays_are_rounded_as_numpys():
    import jax

    x = np.linspace(-3, 3, 64, dtype=np.float32)
    y = jax.numpy.asarray(x)
    for call in (
        pychop.Chop(5, 2),
        pychop.Chopf(4, 4),
        pychop.FaultChop("h", explim=0),
        pychop.FaultChop("q43", rmode=5, randfunc=lambda n: np.full(n, 0.3)),
        pychop.Chopi(8),
        pychop.Chopi(8).quantize,
        pychop.bfp_quantize,
        pychop.mx_quantize,
        pychop.p3109_quantize,
        pychop.p3109_encode,
        pychop.Chop(8, 7).gamma,
        pychop.Chop(8, 7).sin,
        lambda x: pychop.power(x, 2.0, pychop.Chop(5, 2)),
    ):
        rounded = call(y)
        assert isinstance(rounded, jax.Array) and np.array_equal(rounded, call(x), equal_nan=True)
    chop = pychop.Chop(5, 2)
    assert (jax.jit(chop)(y) == chop(x)).all()
    assert (jax.grad(lambda y: chop(y).sum())(y) == 1).all()
    pychop.backend("jax")
    assert isinstance(chop(torch.ones(2)), jax.Array)


def test_functions_are_methods_of_every_chopper():
    x = np.array([0.3, 0.7])
    for chop in (pychop.Chop(5, 2), pychop.Chopf(4, 4), pychop.FaultChop("q43"), pychop.Chopi(8)):
        by_hand = chop(np.sin(chop(x)))
        assert (chop.sin(x) == by_hand).all() and (pychop.sin(x, chop) == by_hand).all()
        assert (pychop.math_func.sin(x=x, chop=chop) == by_hand).all()
        assert (chop.sin(x=x) == by_hand).all()
    assert chop.clip(x, a_max=0.5, a_min=0.4).tolist() == pychop.clip(x, 0.4, 0.5, chop).tolist()
    with pytest.raises(
        TypeError, match=r"expected 2 array\(s\) and a chopper for power, but got 2"
    ):
        pychop.power(x, x)


def test_the_gamma_function_and_the_cube_root_are_exact_where_they_can_be():
    up = pychop.Chop(8, 23, rmode=2)
    x = torch.arange(-3.0, 11.0)
    assert up.cbrt(x**3).tolist() == x.tolist()
    expected = [math.factorial(n - 1) for n in range(1, 11)]
    assert up.gamma(torch.arange(1.0, 11.0)).tolist() == expected
    special = torch.tensor([0.0, -0.0, -1.0, 300.0, math.inf, -math.inf])
    assert str(up.gamma(special).tolist()) == "[inf, -inf, nan, inf, inf, nan]"


def test_integers_keep_a_calibration():
    x = np.array([[0.1, -0.2], [0.3, 0.4]])
    chop = pychop.Chopi(8)
    q = chop.quantize(x)
    assert q.dtype == np.int8 and q.tolist() == [[0, -128], [85, 127]]
    assert np.abs(chop.dequantize(q) - x).max() < 0.6 / 255
    assert chop.quantize(np.array([9.0])).tolist() == [127]  # an array has the same scale
    chop.calibrate(np.array([0.0, 9.0]))
    assert chop.dequantize(chop.quantize(np.array([9.0]))).tolist() == [9.0]
    channels = pychop.Chopi(4, symmetric=True, per_channel=True, axis=1)
    scales = torch.tensor([0.31, 0.41], dtype=torch.float64) / 7
    assert channels.quantize(torch.from_numpy(x + 0.01)).tolist() == [[2, -3], [7, 7]]
    assert torch.equal(channels.scale.flatten(), scales.float())


def test_fields_of_codes_are_those_of_the_dtype():
    x = np.array([3.14159, -0.1, 1e-5, 0.0])
    chop = pychop.Bitchop(5, 4)
    rounded = torch.from_numpy(chop(x)).to(torch_dtypes.dtype("e5m4"))
    codes = torch_dtypes.codes(rounded).numpy().astype(int)
    fields = (chop.sign.astype(int) << 9) + (chop.exponent << 4) + chop.significand
    assert fields.tolist() == codes.tolist() and chop.is_denormal.tolist() == [0, 0, 1, 0]
    assert "sig: 1001" in str(chop)


def test_sizes_and_tables(capsys):
    tensor = pychop.MXTensor(np.ones((5, 7)), "mxfp4_e2m1", 16)
    expected = {
        "num_blocks": 3,
        "bits_per_element": 3 * 72 / 35,
        "compression_ratio_fp16": 16 / 4.5,
    }
    statistics = tensor.statistics()
    assert statistics["num_blocks"] == expected["num_blocks"]
    assert statistics["bits_per_element"] == expected["bits_per_element"]
    assert pychop.BFP_FORMATS["bfp8"].compression_vs_fp16 == 512 / 264
    pychop.print_mx_format_table()
    pychop.print_bfp_format_table()
    pychop.compare_mx_formats(np.linspace(0, 1, 64))
    pychop.Chop(5, 10, verbose=1)
    printed = capsys.readouterr().out
    assert "MXFP4_E2M1" in printed and "flexpoint8" in printed and "4.882812e-04" in printed


def test_the_table_of_formats():
    pytest.importorskip("pandas")
    table = pychop.float_params(binary=True).set_index("")
    assert table.loc["fp16", "u"] == "2^-11" and table.loc["mxint8", "element_bits"] == 8


def test_layers_and_optimizers_name_quantize():
    from torch_dtypes.compat.pychop.layers import QuantizedLinear
    from torch_dtypes.compat.pychop.optimizers import QuantizedSGD
    from torch_dtypes.compat.pychop.ptq import post_quantization

    for refused in (QuantizedLinear, QuantizedSGD, post_quantization, layers.IQuantizedConv2d):
        with pytest.raises(NotImplementedError, match=r"expected PyTorch's own .*quantize_"):
            refused(3, 4)


@pytest.mark.parametrize(
    ("error", "call"),
    [
        (NotImplementedError, lambda: pychop.FaultChop("h", rmode=99)),
        (ValueError, lambda: pychop.Chop(5, 10, rmode=99)),
        (ValueError, lambda: pychop.Chopf(4, 4, rmode=0)),
        (ValueError, lambda: pychop.Chopf(40, 4)),
        (ValueError, lambda: pychop.Chop(1, 10)),
        (TypeError, lambda: pychop.Chop(5, "10")),
        (TypeError, lambda: pychop.Chop(5, 10)(["a"])),
        (TypeError, lambda: pychop.Chop(5, 10, random_state="a")),
        (ValueError, lambda: pychop.FaultChop("z")),
        (ValueError, lambda: pychop.FaultChop("h", rmode=5, randfunc=lambda n: [0.1])(np.ones(2))),
        (TypeError, lambda: pychop.FaultChop("h", explim=0)(np.ones(1, complex))),
        (ValueError, lambda: pychop.float_params("z")),
        (ValueError, lambda: pychop.backend("z")),
        (ValueError, lambda: pychop.bfp_quantize(np.ones(1), "z")),
        (TypeError, lambda: pychop.bfp_quantize(np.ones(1), 3)),
        (ValueError, lambda: pychop.mx_quantize(np.ones(1), backend="tf")),
        (TypeError, lambda: pychop.mx_quantize(np.ones(1), 3)),
        (ValueError, lambda: pychop.P3109Format(2)),
        (TypeError, lambda: pychop.P3109Format(8, 4, 1)),
        (ValueError, lambda: pychop.P3109Format(8, 4, True, "x")),
        (ValueError, lambda: pychop.P3109(rounding="x")),
        (ValueError, lambda: pychop.P3109(saturate="x")),
        (TypeError, lambda: pychop.P3109(format="x")),
        (ValueError, lambda: pychop.P3109.from_dict({})),
        (ValueError, lambda: pychop.p3109_decode(np.array([300]))),
        (TypeError, lambda: pychop.p3109_decode(np.array([0.5]))),
        (ValueError, lambda: pychop.p3109_quantize(np.ones(1), srbits=[1])),
        (ValueError, lambda: pychop.p3109_quantize(np.ones(1), ste=True)),
        (TypeError, lambda: pychop.p3109_quantize(np.array([1j]))),
        (ValueError, lambda: pychop.CPArray([1.0])),
        (ValueError, lambda: pychop.CPTensor([1.0])),
        (TypeError, lambda: builtin.cast("a", pychop.Chop(5, 2))),
        (ValueError, lambda: pychop.Chopi(8).dequantize(np.array([1]))),
        (ValueError, lambda: pychop.Simulate(2, 3, 4, rmode=7)),
        (ValueError, lambda: pychop.Simulate(1, 3, 4)),
        (ValueError, lambda: pychop.Simulate(2, 20, 100)),
        (ValueError, lambda: pychop.Chopi(8)(np.array([]))),
        (TypeError, lambda: pychop.Chopi(8)(np.array([1j]))),
        (IndexError, lambda: pychop.Chopi(8, per_channel=True, axis=2)(np.ones((2, 2)))),
        (ValueError, lambda: pychop.bfp_quantize(np.ones(1), (1, 4))),
        (TypeError, lambda: pychop.mx_quantize(np.ones(1), (4, 3, 2))),
        (ValueError, lambda: pychop.mx_quantize(np.ones(1), (0, 0))),
        (TypeError, lambda: pychop.clip(np.ones(1), chop=pychop.Chop(5, 2))),
        (ValueError, lambda: pychop.Bitchop(5, 4)(np.array([1]))),
        (OverflowError, lambda: pychop.Bitchop(5, 4)(np.array([1e9]))),
        (ValueError, lambda: pychop.sqrt(np.array([-1.0]), pychop.Chop(5, 2))),
        (ValueError, lambda: pychop.divide(1.0, np.array([0.0]), pychop.Chop(5, 2))),
    ],
)
def test_bad_arguments_raise_the_originals_errors(error, call):
    with pytest.raises(error, match=r"expected .* but got"):
        call()

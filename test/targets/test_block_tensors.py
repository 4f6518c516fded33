"""Packed blocks: codes and scales decoded by other means, the numbers of ``Target.quantize``,
products, files."""

import copy
import io
import math
import pickle

import numpy as np
import oracle
import pytest
import torch
from conftest import parametrize_dtypes
from oracle_blocks import SPECS

import torch_dtypes
from torch_dtypes import quantize, target
from torch_dtypes.targets.block_targets import PRESETS
from torch_dtypes.targets.packing import pack, unpack

FORMATS = [
    *SPECS,
    "nvfp4",
    "hif4",
    "bfp8",
    "bfp8_dim0",
    "bfp5_size7",
    "mxfp4_axis0_rceil",
    "block<e3m4,e8m0,16x16>_axis0xminus1",
    "block<e2m1finite,e5m3,all>",
    "block<posit8es1,e8m0,32>_emax0",
    "bfp24_size8",
]


def numbers(*shape, dtype=torch.float32):
    generator = torch.Generator().manual_seed(math.prod(shape))
    x = torch.randn(shape, generator=generator) * torch.exp(
        3 * torch.randn(shape, generator=generator)
    )
    return x.to(dtype)


def same(a, b):
    torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)


def bits_of(data: torch.Tensor, bits: int, count: int) -> list[int]:
    """Read codes from bytes as one long number."""
    whole = int.from_bytes(bytes(data.tolist()), "little")
    return [whole >> i * bits & (1 << bits) - 1 for i in range(count)]


@pytest.mark.parametrize("bits", range(1, 17))
def test_codes_without_gaps(bits):
    for count in (0, 1, 2, 7, 8, 9, 100):
        codes = torch.randint(
            0, 1 << bits, (count,), generator=torch.Generator().manual_seed(count)
        )
        codes = codes.to(torch.uint8 if bits <= 8 else torch.int16)
        data = pack(codes, bits)
        assert data.dtype == torch.uint8 and len(data) == -(-count * bits // 8)
        assert bits_of(data, bits, count) == [c % (1 << bits) for c in codes.tolist()]
        assert torch.equal(unpack(data, bits, count, codes.dtype), codes)


@pytest.mark.parametrize("bits", [6, 11])
def test_codes_in_many_chunks(bits, monkeypatch):
    monkeypatch.setattr("torch_dtypes.targets.packing._CHUNK", 16)
    codes = torch.arange(1000, dtype=torch.int16) % (1 << bits)
    data = pack(codes, bits)
    assert bits_of(data, bits, 1000) == codes.tolist()
    assert torch.equal(unpack(data, bits, 1000, torch.int16), codes)


@parametrize_dtypes("float32 float64 bfloat16 float16")
@pytest.mark.parametrize("name", FORMATS)
def test_numbers_are_those_of_the_target(name, dtype):
    t = target(name)
    for shape in ((3, 5, 70), (33, 64), (2, 0, 3), (40,), ()):
        x = numbers(*shape, dtype=dtype)
        if any(not -len(shape or (1,)) <= a < len(shape or (1,)) for a in t.shape.axis) or (
            t.shape.axis == (0, -1) and len(shape) < 2
        ):
            with pytest.raises(ValueError, match="dimension"):
                quantize(x, name)
            continue
        if t.shape.dim is not None and not shape:
            continue
        packed = quantize(x, name)
        assert (packed.shape, packed.dtype, packed.format) == (x.shape, dtype, t)
        same(packed.dequantize(), t.quantize(x))
        if x.numel():
            same(packed.scales.flatten(), t.scales(x).flatten())


@pytest.mark.parametrize("name", [name for name in SPECS if name != "mxint8"])
def test_bytes_by_ocp(name):
    """Decode elements and E8M0 scales of the MX formats from the bytes, by exact tables."""
    values, bits = oracle.table(SPECS[name]).decode(), target(name).bits
    x = numbers(6, 50)
    packed = quantize(x, name)
    elements = np.array([values[c] for c in bits_of(packed.data, bits, 300)]).reshape(6, 50)
    scales = np.exp2(packed.scale_codes.numpy().astype(float) - 127)
    assert packed.scale_codes.shape == (6, 2) and packed.scale_codes.dtype == torch.uint8
    assert np.array_equal(
        elements * np.repeat(scales, 32, axis=1)[:, :50], packed.dequantize().double().numpy()
    )


def test_every_scale_and_nan():
    x = torch.ldexp(torch.ones(255, 1, dtype=torch.float64), torch.arange(-127, 128).view(-1, 1))
    packed = quantize(x, "block<e2m1finite,e8m0,1>_emax0")
    assert packed.scale_codes.flatten().tolist() == list(range(255))
    same(packed.dequantize(), x)
    bad = torch.tensor([[1.0, 2.0], [math.nan, 1.0], [math.inf, 1.0], [0.0, -0.0]])
    packed = quantize(bad, "mxfp4")
    assert packed.scale_codes.flatten().tolist() == [126, 255, 255, 0]
    same(packed.dequantize(), target("mxfp4").quantize(bad))
    assert packed.dequantize()[3].signbit().tolist() == [False, True]


def test_nvfp4_has_three_parts():
    x = numbers(4, 64)
    packed = quantize(x, "nvfp4")
    assert packed.tensor_scale.shape == () and packed.scale_codes.shape == (4, 4)
    assert packed.nbytes == 4 * 64 // 2 + 16 + 4
    e4m3 = oracle.table(oracle.binary(4, 3, specials="fn", overflow="saturate")).decode()
    own = e4m3[packed.scale_codes.numpy()].astype(np.float32)
    assert np.array_equal(own * packed.tensor_scale.numpy(), packed.scales.numpy())
    same(quantize(x, "nvfp4", scale=0.5).dequantize(), target("nvfp4").quantize(x, scale=0.5))


def test_size():
    assert quantize(torch.zeros(64, 128), "mxfp4").nbytes == 64 * 128 // 2 + 64 * 4
    for name, bits in {
        "mxfp8_e4m3": 8.25,
        "mxfp6_e3m2": 6.25,
        "mxfp4": 4.25,
        "mxint8": 8.25,
        "bfp8_size16": 8.5,
    }.items():
        assert (
            quantize(torch.zeros(64, 128), name).bits_per_value
            == bits
            == target(name).bits_per_value
        )


def test_rounding_and_generator():
    x = numbers(16, 64)
    same(
        quantize(x, "mxfp4", rounding="up").dequantize(), target("mxfp4").quantize(x, rounding="up")
    )
    with torch_dtypes.rounding("toward_zero"):
        same(quantize(x, "mxfp4").dequantize(), target("mxfp4_toward_zero").quantize(x))
    drawn = [torch.Generator().manual_seed(3) for _ in range(2)]
    same(
        quantize(x, "mxfp4_stochastic", generator=drawn[0]).dequantize(),
        target("mxfp4_stochastic").quantize(x, generator=drawn[1]),
    )


@pytest.mark.parametrize("name", ["mxfp4", "bfp8_dim0", "nvfp4", "mxfp6_e3m2_axis0", "bfp8"])
def test_transposition_keeps_numbers(name):
    x = numbers(6, 70)
    packed = quantize(x, name)
    same(packed.T.dequantize(), packed.dequantize().T)
    same(packed.T.scales, packed.scales.T)
    back = packed.T.mT
    assert torch.equal(back.data, packed.data) and torch.equal(
        back.dequantize(), packed.dequantize()
    )
    same(quantize(x, name).transpose(0, -1).dequantize(), packed.dequantize().T)


def test_products():
    x, w, b = numbers(5, 64).requires_grad_(), quantize(numbers(7, 64), "mxfp8_e4m3"), numbers(7)
    # Of the same layout: on some processors sums differ between layouts
    want = x @ w.T.dequantize()
    assert torch.equal(w.T.dequantize(), w.dequantize().T)
    assert (
        torch.equal(x @ w.T, want)
        and torch.equal(torch.matmul(x, w.T), want)
        and torch.equal(torch.mm(x, w.T), want)
    )
    assert torch.equal(
        torch.nn.functional.linear(x, w, b), torch.nn.functional.linear(x, w.dequantize(), b)
    )
    assert torch.equal(
        w @ quantize(numbers(64, 3), "mxfp4_axis0"),
        w.dequantize() @ target("mxfp4_axis0").quantize(numbers(64, 3)),
    )
    assert (x.double() @ w.T).dtype == torch.float64
    (x @ w.T).sum().backward()
    assert torch.equal(x.grad, torch.ones(5, 7) @ w.dequantize())


def test_products_obey_the_accumulation_policy():
    """1 + 2^-24 + 2^-24 in float32 steps stays 1; a quire gives the exact sum."""
    row, ones = (
        quantize(torch.tensor([[1.0, 2**-24, 2**-24]]), "block<e5m10,e8m0,1>"),
        torch.ones(3, 1),
    )
    with torch_dtypes.accumulate("format"):
        assert (row @ ones).item() == 1
    with torch_dtypes.accumulate("exact"):
        assert (row @ ones).item() == 1 + 2**-23
    with torch_dtypes.accumulate("format", accumulator="e5m2"):
        assert (quantize(torch.ones(1, 32), "mxfp4") @ torch.ones(32, 1)).item() == 8


def test_files_and_copies(tmp_path):
    for name in ("nvfp4", "hif4", "mxfp6_e2m3", "bfp24_size8"):
        packed = quantize(numbers(9, 40), name)
        torch.save({"w": packed}, tmp_path / "w.pt")
        for back in (
            torch.load(tmp_path / "w.pt", weights_only=True)["w"],
            copy.deepcopy(packed),
            pickle.loads(pickle.dumps(packed)),
        ):
            assert (
                back.format == packed.format
                and torch.equal(back.data, packed.data)
                and torch.equal(back.dequantize(), packed.dequantize())
            )


def test_a_damaged_file_is_refused():
    packed = quantize(numbers(4, 32), "mxfp4")
    function, (name, shape, *rest) = packed.__reduce__()
    with pytest.raises(ValueError, match="expected 80 bytes of codes and scales of shape"):
        function(name, (5, 32), *rest)
    with pytest.raises(ValueError, match="expected a block format"):
        function("q43", shape, *rest)
    function, (name, shape, dtype, data, scale_codes, above) = quantize(
        numbers(4, 64), "hif4"
    ).__reduce__()
    with pytest.raises(ValueError, match="expected scale codes of int32 for hif4"):
        function(name, shape, dtype, data, scale_codes.to(torch.uint8), above)
    stream = io.BytesIO()
    torch.save(packed, stream)
    assert torch.load(io.BytesIO(stream.getvalue()), weights_only=True).shape == (4, 32)


def test_what_does_not_pad_is_kept_so(tmp_path):
    packed = quantize(numbers(6, 64), "nvfp4_nopad")
    torch.save(packed, tmp_path / "w.pt")
    for back in (
        torch.load(tmp_path / "w.pt", weights_only=True),
        copy.deepcopy(packed),
        packed.T.mT,
    ):
        assert back.format == packed.format == target("nvfp4_nopad") and torch.equal(
            back.dequantize(), packed.dequantize()
        )
    assert packed.T.format.name == "nvfp4_axisminus2_nopad"
    same(packed.dequantize(), quantize(numbers(6, 64), "nvfp4").dequantize())
    function, (name, _, *rest) = packed.__reduce__()
    with pytest.raises(
        ValueError, match="expected whole blocks of 16 along dimension -1 for nvfp4_nopad"
    ):
        function(name, (16, 24), *rest)


def test_errors():
    x = torch.ones(2, 32)
    packed = quantize(x, "mxfp4")
    with pytest.raises(
        TypeError,
        match=r"expected a block format.* but got 'q43'; a tensor of that dtype is "
        r"x.to\(torch.q43\)",
    ):
        quantize(x, "q43")
    with pytest.raises(TypeError, match="gives integers"):
        quantize(x, "int8")
    with pytest.raises(ValueError, match="nearest names are 'mxfp4'"):
        quantize(x, "mxfp5")
    with pytest.raises(TypeError, match="expected a torch tensor"):
        quantize([1.0], "mxfp4")
    with pytest.raises(TypeError, match="expected tensors in add, but got a BlockTensor"):
        torch.add(packed, 1)
    with pytest.raises(TypeError, match=r"float\(\)"):
        packed @ torch.ones(32, 2, dtype=torch.posit16es2)
    with pytest.raises(TypeError, match="unsupported operand"):
        packed @ 3
    with pytest.raises(AttributeError, match="quantise again"):
        packed.data = None
    with pytest.raises(TypeError, match="float16, bfloat16, float32 or float64"):
        packed.dequantize(torch.q43)
    with pytest.raises(ValueError, match="which has no NaN"):
        quantize(torch.tensor([[math.nan, 1.0]]), "block<e2m1finite,e3m2finite,2>")
    with pytest.raises(IndexError, match="from -2 to 1, but got 2"):
        packed.transpose(0, 2)
    with pytest.raises(ValueError, match="expected a matrix"):
        quantize(torch.ones(2, 2, 32), "mxfp4").t()


@pytest.mark.parametrize(
    "name",
    [
        *PRESETS,
        "msfp12",
        "bfp8_size16",
        "mxfp4_axis0_rceil",
        "block<e5m2,e8m0,64>",
        "mxfp5",
        "mxfp8",
    ],
)
def test_the_name_of_a_block_is_no_dtypes(name):
    with pytest.raises(ValueError, match=r"blocks are no dtype.*torch_dtypes\.quantize\(x, "):
        torch_dtypes.dtype(name)


@pytest.mark.parametrize(
    "name", ["mxfp4", "nvfp4", "hif4", "bfp8", "bfp8_dim0", "mxfp4_axis0", "block<nf4,e8m23,64>"]
)
@pytest.mark.parametrize("shape", [(0,), (4, 0), (0, 32)])
def test_scales_of_nothing(name, shape):
    x = torch.empty(shape, dtype=torch.float64)
    made, packed = target(name).scales(x), quantize(x, name)
    assert (
        made.dtype == torch.float64
        and made.shape == packed.scales.shape
        and torch.equal(made, packed.scales)
    )
    assert packed.dequantize().shape == shape


@pytest.mark.parametrize(
    ("scale", "name", "least"),
    [
        ("float32", "e8m23_saturate", 2**-126),
        (torch.float16, "e5m10_saturate", 2**-24),
        ("ue4m3", "ue4m3_saturate", 2**-9),
        (torch.posit8es1, "posit8es1_saturate", 2**-12),
        ("ufixed4_4", "ufixed4_4", 2**-4),
        ("nf4", "nf4", 0.07958029955625534),
    ],
)
def test_scales_of_any_format(scale, name, least):
    """Round a / 7 to the scale's format, to nearest; elements are integers times that."""
    fmt = torch_dtypes.block_format("fixed3_0_symmetric", scale, 4)
    assert fmt.scale == name and target(fmt.name) == fmt
    x = torch.tensor([[1.0, -2.5, 0.3, 6.0], [1e-4, 0.0, 0.0, 2e-5], [0.0, 0.0, 0.0, 0.0]])
    a = x.abs().amax(1, keepdim=True) / 7
    expected = torch_dtypes.chop(a, name).clamp_min(least)
    packed = quantize(x, fmt)
    torch.testing.assert_close(packed.scales, expected, rtol=0, atol=0)
    integers = ((x * (1 / expected)).round()).clamp(-7, 7)
    torch.testing.assert_close(packed.dequantize(), integers * expected, rtol=0, atol=0)
    stream = io.BytesIO()
    torch.save(packed, stream)
    assert torch.equal(
        torch.load(io.BytesIO(stream.getvalue()), weights_only=True).dequantize(),
        packed.dequantize(),
    )


def test_powers_of_two_are_e8m0_whatever_names_them():
    assert torch_dtypes.block_format(
        "q43", torch_dtypes.dtype("e8m0"), 32
    ) == torch_dtypes.block_format("q43", "e8m0", 32)
    assert torch_dtypes.block_format("e2m1finite", "e4m3fn", 16, tensor_scale="float32") == target(
        "nvfp4"
    )
    assert not torch_dtypes.block_format("e2m1finite", "e4m3fn", 16, tensor_scale=None).tensor_scale
    with pytest.raises(ValueError, match="whose values float32 has, but got 'posit16es5'"):
        torch_dtypes.block_format("q43", "posit16es5", 32)


def test_one_block_for_each_number_of_a_vector():
    """QPyTorch's dim of a 1-d tensor, such as a bias: each number has its own exponent."""
    x = torch.tensor([1.0, 1e-6, 3e5])
    torch.testing.assert_close(target("bfp8_dim0").quantize(x), x, rtol=2**-7, atol=0)


def test_repr():
    assert repr(quantize(torch.ones(2, 2), "mxfp4")).startswith(
        "BlockTensor('mxfp4', shape=(2, 2), bits_per_value=8)\ntensor([[1., 1.],"
    )


REFUSED = {
    "add": lambda w: w + 1,
    "add from the right": lambda w: 1 + w,
    "in place": lambda w: w.__iadd__(1),
    "mul": lambda w: torch.ones(32) * w,
    "neg": lambda w: -w,
    "abs": abs,
    "lt": lambda w: w < 1,
    "bool": bool,
    "float": float,
    "pow": lambda w: w**2,
    "sum": torch.sum,
    "setitem": lambda w: w.__setitem__(0, 1.0),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_product_says_what_to_call(name):
    w = quantize(torch.ones(4, 32), "mxfp4")
    with pytest.raises(
        TypeError,
        match=r"expected tensors in \w+, but got a BlockTensor, .* use its dequantize\(\)",
    ):
        REFUSED[name](w)
    assert w in [w] and {w: 1}[w] == 1

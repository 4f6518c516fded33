"""Packed blocks in safetensors files: names and dtypes that others read, files that others wrote,
and broken ones."""

import json
import struct

import pytest
import safetensors.torch
import torch

import torch_dtypes
from torch_dtypes import quantize

F4, E8M0 = torch.float4_e2m1fn_x2, torch.float8_e8m0fnu
# The dtypes of elements and scales in a file, and the shape of the elements of a 6 x 64 tensor.
WRITTEN = {
    "mxfp4": ("F4", "F8_E8M0", [6, 64]),
    "mxfp4_axis0_stochastic": ("F4", "F8_E8M0", [6, 64]),
    "nvfp4": ("F4", "F8_E4M3", [6, 64]),
    "mxfp8_e4m3": ("F8_E4M3", "F8_E8M0", [6, 64]),
    "mxfp8_e5m2": ("F8_E5M2", "F8_E8M0", [6, 64]),
    "mxfp6_e3m2": ("U8", "F8_E8M0", [6, 48]),
    "mxint8": ("U8", "F8_E8M0", [6, 64]),
    "hif4": ("U8", "I32", [6, 32]),
    "bfp8": ("U8", "F8_E8M0", [6, 64]),
    "block<e2m1finite,e5m3,16>": ("F4", "I16", [6, 64]),
}


def header_of(path):
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + size]), data[8 + size :]


def write(path, tensors):
    """Write a file by the definition of the format alone: (dtype, shape, bytes) by name."""
    header, data = {}, b""
    for name, (dtype, shape, own) in tensors.items():
        end = len(data) + len(own)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), end]}
        data += own
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def expect_same(made, t):
    assert (made.format, made.shape, made.dtype) == (t.format, t.shape, t.dtype)
    for name in ("data", "scale_codes", "tensor_scale"):
        one, other = getattr(made, name), getattr(t, name)
        assert (one is other is None) or (one.dtype is other.dtype and torch.equal(one, other))


@pytest.mark.parametrize("name", WRITTEN)
def test_every_code_comes_back(name, tmp_path):
    file = tmp_path / "t.safetensors"
    x = torch.randn(6, 64, generator=torch.Generator().manual_seed(1))
    x[2, 40] = 0 if name == "hif4" or "e5m3" in name else torch.nan  # a block's scale of NaN
    t = quantize(x, name)
    torch_dtypes.save_safetensors({"w": t, "tied": t, "x": x}, file)
    made = torch_dtypes.load_safetensors(file)
    assert made.keys() == {"w", "tied", "x"} and made["tied"] is made["w"]
    expect_same(made["w"], t)
    header, _ = header_of(file)
    element, scale, shape = WRITTEN[name]
    assert (header["w"]["dtype"], header["w_scale"]["dtype"]) == (element, scale)
    assert header["w"]["shape"] == shape and header["w_scale"]["shape"] == [*t.scale_codes.shape]
    assert ("w_scale_2" in header) == (name == "nvfp4")
    safetensors.torch.save_file({"w": t, "x": x}, file)
    expect_same(torch_dtypes.load_safetensors(file)["w"], t)


@pytest.mark.parametrize("shape", [(), (3,), (5, 7), (0, 32), (2, 0)])
def test_shapes_of_which_rows_end_within_a_byte(shape, tmp_path):
    for dtype in (torch.float64, torch.bfloat16):
        t = quantize(torch.ones(shape, dtype=dtype), "nvfp4")
        torch_dtypes.save_safetensors({"w": t}, tmp_path / "t.safetensors")
        expect_same(torch_dtypes.load_safetensors(tmp_path / "t.safetensors")["w"], t)


def test_a_scale_of_the_tensor_in_a_format_without_one(tmp_path):
    t = quantize(torch.linspace(-3, 4, 64), "mxfp4", scale=0.3)
    torch_dtypes.save_safetensors({"w": t}, tmp_path / "t.safetensors")
    made = torch_dtypes.load_safetensors(tmp_path / "t.safetensors")["w"]
    expect_same(made, t)
    assert torch.equal(made.dequantize(), t.dequantize())


def test_what_others_read_are_these_numbers(tmp_path):
    """The numbers of a file by its stock tensors alone: E2M1 by its table, times the scales."""
    x = torch.randn(4, 32, generator=torch.Generator().manual_seed(2))
    torch_dtypes.save_safetensors({"w": (t := quantize(x, "nvfp4"))}, tmp_path / "t.safetensors")
    plain = safetensors.torch.load_file(tmp_path / "t.safetensors")
    assert (plain["w"].dtype, plain["w_scale"].dtype) == (F4, torch.float8_e4m3fn)
    pairs = plain["w"].view(torch.uint8)
    codes = torch.stack((pairs & 15, pairs >> 4), -1).flatten(-2).long()
    table = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    values = torch.cat((table, -table))[codes]
    factors = (plain["w_scale"].float() * plain["w_scale_2"]).repeat_interleave(16, -1)
    assert torch.equal(values * factors, t.dequantize())


def test_a_file_that_another_program_wrote(tmp_path):
    """E2M1 codes 1, 2, ... are 0.5, 1, 1.5, 2, 3, 4, 6; the first is in the low half."""
    file = tmp_path / "t.safetensors"
    codes = bytes([0x21, 0x43, 0x65, 0x97, *[0] * 12]) * 2
    expected = [0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.5]
    for elements, scales in (("F4", "F8_E8M0"), ("U8", "U8")):
        shape = [2, 32] if elements == "F4" else [2, 16]
        write(
            file,
            {
                "l.weight": (elements, shape, codes),
                "l.weight_scale": (scales, [2, 1], bytes([127, 130])),
                "l.bias": ("F32", [1], struct.pack("<f", 2.5)),
            },
        )
        made = torch_dtypes.load_safetensors(file)
        assert made.keys() == {"l.weight", "l.weight_scale", "l.bias"}
        if elements == "F4":
            assert (made["l.weight"].dtype, made["l.weight_scale"].dtype) == (F4, E8M0)
        made = torch_dtypes.load_safetensors(file, blocks={"l.weight": "mxfp4"})
        assert made.keys() == {"l.weight", "l.bias"} and made["l.weight"].format.name == "mxfp4"
        values = made["l.weight"].dequantize()
        assert values.dtype == torch.float32 and values.shape == (2, 32)
        assert values[:, :8].tolist() == [expected, [8 * v for v in expected]]
    write(
        file,
        {
            "w": ("U8", [1, 16], codes[:16]),
            "w_scale": ("F8_E4M3", [1, 2], bytes([0x38, 0x40])),  # 1 and 2
            "w_scale_2": ("F32", [1], struct.pack("<f", 0.25)),
        },
    )
    made = torch_dtypes.load_safetensors(file, blocks={"w": "nvfp4"})["w"]
    assert made.dequantize()[0, :8].tolist() == [v / 4 for v in expected]
    assert made.scales.tolist() == [[0.25, 0.5]]


def test_what_is_refused(tmp_path):
    file, t = tmp_path / "t.safetensors", quantize(torch.ones(2, 32), "mxfp4")
    with pytest.raises(ValueError, match="expected no tensor 'w_scale', the name of a part of 'w'"):
        torch_dtypes.save_safetensors({"w": t, "w_scale": torch.ones(1)}, file)
    assert not file.exists()
    torch_dtypes.save_safetensors({"w": t, "x": torch.ones(2, 32)}, file)
    for blocks, error, words in (
        ({"x": "mxfp4"}, ValueError, "cannot read 'x' of .*expected 'x_scale', a part of 'x'"),
        ({"w": "nvfp4"}, ValueError, "expected 'w_scale_2', a part of 'w' in nvfp4, but got none"),
        ({"w": "mxfp8_e4m3"}, ValueError, "expected 'w' as torch.float8_e4m3fn for mxfp8_e4m3"),
        ({"w": "mxfp4_axis0"}, ValueError, r"scales of shape \(1, 32\) for mxfp4_axis0"),
        ({"w": "block<e2m1finite,e4m3fn,32>"}, ValueError, "expected 'w_scale' as torch.float8_e4"),
        ({"w": "int8"}, ValueError, "expected a block format, such as 'mxfp4', for 'w', but got"),
        ({"w": "mxfp9"}, ValueError, "'mxfp9'"),
        (["w"], TypeError, "expected blocks as a mapping of tensors' names to block formats"),
    ):
        with pytest.raises(error, match=words):
            torch_dtypes.load_safetensors(file, blocks=blocks)
    described = {"format": "mxfp4", "shape": [2, 32], "dtype": "float32"}
    for blocks, words in (
        (["w"], "expected block formats by names under 'blocks'"),
        ({"w": "mxfp4"}, "cannot read 'w' of"),
        ({"w": described | {"dtype": "int8"}}, "cannot read 'w' of .*torch.int8"),
        ({"w": described | {"shape": [2, 64]}}, "cannot read 'w' of .*expected 64 bytes of codes"),
    ):
        header = {"version": 2, "dtypes": {}, "same": {}, "holds": "values", "blocks": blocks}
        parts = {"w": t.data, "w_scale": t.scale_codes}
        safetensors.torch.save_file(parts, file, {"torch_dtypes": json.dumps(header)})
        with pytest.raises(ValueError, match=words):
            torch_dtypes.load_safetensors(file)

"""Elements wider than their format's codes: bits above a code, written as raw memory, change no
value. Files with such bits are refused."""

import io
import pickle

import pytest
import torch

import torch_dtypes
from torch_dtypes import _C

NAMES = (
    "e2m3fnuz e3m2fnuz binary6p3se e5m5fnuz e4m20fnuz e5m5 e8m4 tf32 e2m3fn e3m2finite posit6es1 "
    "posit12es1 fixed2_3 ufixed2_3 fixed6_5_symmetric"
).split()
BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32}


def codes_and_junk(name):
    """Return tensors of the same codes, without and with bits above them: all ones, one next to the
    sign, one at the top."""
    dtype = torch_dtypes.dtype(name)
    fmt, width = torch_dtypes.format_of(dtype), 8 * dtype.itemsize
    first = torch.arange(min(2**fmt.bits, 512))
    codes = torch.cat(
        [
            first,
            2 ** (fmt.bits - 1) + first[: 2 ** (fmt.bits - 1)],
            (fmt.max_code + first[:8]) & (2**fmt.bits - 1),
        ]
    )
    for junk in {2**width - 2**fmt.bits, 2**fmt.bits, 2 ** (width - 1)}:
        yield (
            tuple(
                words.to(torch.int64).to(BITS[dtype.itemsize]).view(dtype)
                for words in (codes, codes | junk)
            ),
            (fmt, codes, codes | junk),
        )


@pytest.mark.parametrize("name", NAMES)
def test_bits_above_a_code_change_no_value(name):
    def same(a, b):
        return bool(((a == b) & (a.signbit() == b.signbit()) | a.isnan() & b.isnan()).all())

    for (clean, junk), (fmt, codes, words) in codes_and_junk(name):
        for read in (
            torch.Tensor.double,
            torch.Tensor.float,
            lambda t: (t * 1).double(),
            lambda t: t.isnan().double(),
            lambda t: (-t).double(),
        ):
            assert same(read(clean), read(junk))
        assert [t.item() for t in junk[:40]] == pytest.approx(
            [t.item() for t in clean[:40]], rel=0, abs=0, nan_ok=True
        )
        assert same(_C.decode_exact(fmt, codes), _C.decode_exact(fmt, words))


@pytest.mark.parametrize("name", ["posit12es1", "e2m3fnuz", "tf32"])
def test_files_with_codes_beyond_the_format_are_refused(name, tmp_path):
    (clean, junk), _ = next(codes_and_junk(name))
    bits = torch_dtypes.format_of(name).bits
    message = rf"expected codes of torch\.{name} from 0 to {2**bits - 1}, but got one beyond"
    for layout in (True, False):  # the old layout reads memory after the tensors are made
        for weights_only in (True, False):
            for things in (
                clean,
                {"a": [clean], "b": clean[3:]},
                junk,
                {"a": clean, "b": [junk[-3:]]},
            ):
                file = io.BytesIO()
                torch.save(things, file, _use_new_zipfile_serialization=layout)
                file.seek(0)
                if things is clean or (isinstance(things, dict) and isinstance(things["a"], list)):
                    made = torch.load(file, weights_only=weights_only)
                    made = made if isinstance(made, torch.Tensor) else made["a"][0]
                    assert torch.equal(torch_dtypes.codes(made), torch_dtypes.codes(clean))
                else:
                    with pytest.raises((ValueError, pickle.UnpicklingError), match=message):
                        torch.load(file, weights_only=weights_only)
    with pytest.raises(ValueError, match=message):
        pickle.loads(pickle.dumps(junk))
    torch.save(clean, tmp_path / "t.pt")
    with torch.serialization.skip_data():  # uninitialised memory
        assert torch.load(tmp_path / "t.pt").shape == clean.shape
    torch.save(junk, tmp_path / "t.pt")
    assert torch.load(tmp_path / "t.pt", map_location="meta").device.type == "meta"
    with pytest.raises((ValueError, pickle.UnpicklingError), match=message):
        torch.load(tmp_path / "t.pt", mmap=True)

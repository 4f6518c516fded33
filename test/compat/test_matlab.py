"""The door for MATLAB and Octave: floats by chop's parameters, the requests of chop.m, and a real
script in Octave."""

import array
import io
import json
import os
import pathlib
import shutil
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
import torch

import torch_dtypes
from torch_dtypes.compat import matlab
from torch_dtypes.compat.floats import Float

MODES = ("nearest_even", "up", "down", "toward_zero", "nearest_zero", "nearest_away", "to_odd")
OPTIONS = {"params": [], "subnormal": 1, "round": 1, "flip": 0, "p": 0.5, "explim": 1, "seed": 0}


def numbers():
    torch.manual_seed(0)
    x = torch.randn(3000, dtype=torch.float64)
    x = x * torch.exp2(torch.randint(-12, 10, (3000,)).double())
    return torch.cat([x, torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan])])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("subnormal", [True, False])
def test_an_ieee_range_is_that_of_the_format(mode, subnormal):
    expected = torch_dtypes.chop(numbers(), "q43" if subnormal else "q43_flush", mode)
    for result in (
        Float(4, 7, subnormal).round(numbers(), mode),
        # By the path of other ranges: one exponent bit more, and the limit by itself.
        Float(4, 7, subnormal)._limit(
            numbers(),
            torch_dtypes.chop(numbers(), f"e5m3_bias7{'' if subnormal else '_flush'}", mode),
            mode,
        ),
    ):
        torch.testing.assert_close(result, expected, rtol=0, atol=0, equal_nan=True)
        assert torch.equal(result.signbit(), expected.signbit())


def nearest(x: Fraction, t: int, emax: int) -> Fraction | float:
    """Round to nearest even by its definition."""
    exponent = 1 - emax
    while abs(x) >= Fraction(2) ** (exponent + 1):
        exponent += 1
    rounded = round(x / Fraction(2) ** (exponent - t + 1)) * Fraction(2) ** (exponent - t + 1)
    if abs(rounded) < Fraction(2) ** (emax + 1):
        return rounded
    return np.inf if x > 0 else -np.inf


@pytest.mark.parametrize(("t", "emax"), [(4, 5), (3, 9), (8, 6)])
def test_a_range_that_no_exponent_field_has(t, emax):
    x = numbers()[:-3]
    expected = [float(nearest(Fraction(v), t, emax)) for v in x.tolist()]
    assert Float(t, emax).round(x).tolist() == expected


def test_no_limits_of_the_exponent():
    x = torch.tensor([1.1e300, 1.1e-300, -7.7], dtype=torch.float64)
    scale = torch.exp2(torch.floor(torch.log2(x.abs())) - 2)
    assert torch.equal(Float(3, 2, explim=False).round(x), torch.round(x / scale) * scale)


def test_given_random_numbers_decide():
    draws = torch.arange(100, dtype=torch.float64) / 100
    x = torch.full((100,), -1.3125, dtype=torch.float64)  # a quarter of the way from -1.25 to -1.5
    result = Float(3, 15).round(x, "stochastic", draws=draws)
    assert torch.equal(result, torch.where(draws < 0.25, -1.5, -1.25).double())
    result = Float(3, 15).round(x, "stochastic_equal", draws=draws)
    assert torch.equal(result, torch.where(draws < 0.5, -1.5, -1.25).double())


def test_bits_flip_after_given_random_numbers():
    x, draws = torch.full((2, 200), 1.3125).double(), torch.full((2, 200), 0.9).double()
    generator = torch.Generator().manual_seed(0)
    how = {"flip_prob": 1.0, "generator": generator, "draws": draws}
    assert Float(3, 15).round(x, "stochastic", **how).unique().tolist() == [1.0, 1.75]


def test_the_gradient_is_the_identity_s():
    x = torch.tensor([1.3, 1e9], requires_grad=True)
    Float(4, 9).round(x).sum().backward()
    assert x.grad.tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Float(1, 7), "the significand's bits from 2 to 53, but got 1"),
        (lambda: Float(4, 600), "the largest exponent from 1 to 511, but got 600"),
        (lambda: Float(4, 7).round(numbers(), draws=numbers()), "a stochastic mode"),
        (
            lambda: Float(4, 7).round(torch.ones(3), "stochastic", draws=torch.ones(2)),
            r"of shape \(3,\), but got \(2,\)",
        ),
    ],
)
def test_errors(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_requests_and_answers():
    def request(format, *numbers, **options):
        line = OPTIONS | {"format": format, "count": 2, "draws": 0} | options
        return json.dumps(line).encode() + b"\n" + np.float64(numbers).tobytes()

    sink = io.BytesIO()
    requests = (
        request("h", 1.3, 300, params=[4.0, 7.0]),
        request("q433", 1, 2),
        request("q43", 1, 2),
    )
    matlab.serve(io.BytesIO(b"".join(requests)), sink)
    sink.seek(0)
    assert np.frombuffer(sink.read(32)).tolist() == [1.0, 2.0, 1.25, np.inf]
    failed, length = np.frombuffer(sink.read(16))
    assert failed == 0
    assert sink.read(int(length)).decode().startswith("expected the name of a number format")
    assert np.frombuffer(sink.read()).tolist() == [1.0, 2.0, 1.0, 2.0]


def test_what_matlab_gives_to_python():
    matrix = np.asfortranarray(np.float64([[1.3, 7.7, 0.3], [300, 1e-9, -1.3]]))
    result = torch_dtypes.chop(memoryview(matrix), "q43", rounding=4.0)
    assert isinstance(result, memoryview)
    assert np.array_equal(np.asarray(result), torch_dtypes.chop(matrix, "q43", rounding=4))
    vector = torch_dtypes.chop(array.array("d", [1.3, 7.7]), "q43")
    assert vector == array.array("d", [1.25, 7.5])
    assert torch_dtypes.float_format(5.0, 5.0) == torch_dtypes.float_format(5, 5)


SCRIPT = """
addpath(getenv('CHOP_FOLDER'));
options.format = 'h'; chop([], options);
n = 100; rand('twister', 1); A = rand(n) + n * eye(n); B = A; count = 0;
for k = 1:n-1
  i = k+1:n;
  A(i,k) = chop(A(i,k) / A(k,k));
  A(i,i) = chop(A(i,i) - chop(A(i,k) * A(k,i)));
end
L = tril(A, -1) + eye(n);
printf('%.3e\\n', norm(L * triu(A) - B) / norm(B));
printf('%s %d\\n', class(chop(single(pi))), chop(2049));
try, chop(1, struct('format', 'q433')), catch e, disp(e.message(1:20)), end
try, chop(1i), catch e, disp(e.message(1:20)), end
options.randfunc = @(n) (0:n-1)' / n; options.round = 5; options.format = 'q52';
disp(chop(1.0625 * ones(1, 4), options));
"""


@pytest.mark.whole
@pytest.mark.skipif(shutil.which("octave-cli") is None, reason="needs Octave")
def test_a_script_in_octave(tmp_path):
    (tmp_path / "script.m").write_text(SCRIPT)
    program = pathlib.Path(sys.executable).with_name("torch-dtypes")
    done = subprocess.run(
        ["octave-cli", "--quiet", "--norc", str(tmp_path / "script.m")],
        env=os.environ | {"CHOP_FOLDER": str(matlab.FOLDER), "TORCH_DTYPES": str(program)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    lines = done.stdout.splitlines()
    assert 1e-5 < float(lines[0]) < 1e-2, done.stderr
    assert lines[1:4] == ["single 2048", "expected the name of", "expected a real arra"]
    assert (
        lines[4].split() == ["1.2500", "1", "1", "1"]
        or lines[4].split() == ["1.2500"] + ["1.0000"] * 3
    )

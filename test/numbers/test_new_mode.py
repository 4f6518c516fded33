"""A rounding mode without a fast path is rounded correctly by the generic codec. No fast path takes
it over."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Compiles the codec's kernels.
pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")]

# Nearest, ties downward: all the code of a new mode, as CONTRIBUTING.md lists it.
ROW = "_(NearestDown, nearest_down, 0, Nothing, {path})"
CASES = {
    ("    case Rounding::NearestAway: return half;\n"): (
        "    case Rounding::NearestDown: return half && (rest || negative);\n"
    ),
    "    case Rounding::NearestAway:\n": "    case Rounding::NearestDown:\n",
}

CHECK = r"""
#include <c10/formats/tables/TableSteps.cpp>
#include <ATen/native/formats/cpu/CodecKernel.cpp>
#include <ATen/native/formats/cpu/RoundKernel.cpp>
#include <cmath>
#include <cstdio>
using namespace at::formats;
using namespace c10::formats;
static CpuKernels k;
static long wrong = 0;
static void see(const Format& f, double x, double expected) {
  uint64_t code = 0;
  k.encode(f, &x, &code, 1, {});
  wrong += to_double(decode(f, code)) != expected;
  double rounded = 0;
  wrong += k.round(f, &x, &rounded, 1) && rounded != expected;
  const float narrow = static_cast<float>(x);
  if (static_cast<double>(narrow) != x) return;
  code = 0;
  k.encode(f, &narrow, &code, 1, {});
  wrong += to_double(decode(f, code)) != expected;
}
int main() {
  DEFAULT::fill_codec(k);
  DEFAULT::fill_round(k);
  long seen = 0;
  const Format floats[] = {float_format(4, 3), float_format(5, 5)};
  for (Format f : {floats[0], floats[1], fixed_format(4, 3, true), posit_format(8, 0)}) {
    f.rounding = Rounding::NearestDown;
    for (uint64_t code = 0; code < f.max_code(); ++code) {
      const double a = to_double(decode(f, code)), b = to_double(decode(f, code + 1));
      const double middle = (a + b) / 2;
      // In posits the middle is that of the values where no exponent bits are cut off.
      if (f.is_posit() && a < 0.5) continue;
      if (f.is_posit() && b > 2) break;
      ++seen;
      see(f, middle, a);
      see(f, -middle, -b);
      see(f, std::nextafter(middle, 0), a);
      see(f, std::nextafter(middle, INFINITY), b);
    }
  }
  std::printf("%ld of %ld wrong\n", wrong, seen);
  return seen > 300 && wrong == 0 ? 0 : 1;
}
"""


def outcome(folder, path):
    """Return the compiler's messages for a copy with the mode, and the exit status of the check."""
    for tree in ("c10/formats", "aten/src/ATen/native/formats/cpu"):
        shutil.copytree(ROOT / tree, folder / tree)
    shutil.copy(ROOT / "aten/src/ATen/FormatDispatch.h", folder / "aten/src/ATen")
    formats = folder / "c10/formats/NumberFormat.h"
    last = "_(UpDown, up_down, 0, Word, Moved)"
    assert formats.read_text().count(last) == 1
    formats.write_text(formats.read_text().replace(last, f"{last} \\\n  {ROW.format(path=path)}"))
    rounds = folder / "c10/formats/codec/RoundBits.h"
    for known, added in CASES.items():
        assert rounds.read_text().count(known) == 1
        rounds.write_text(rounds.read_text().replace(known, known.rstrip("\n") + "\n" + added))
    (folder / "check.cpp").write_text(CHECK)
    program = folder / "check"
    include = [f"-I{folder}", f"-I{folder / 'aten' / 'src'}"]
    options = [
        "-std=c++20",
        "-O0",
        "-Wall",
        "-Werror=switch",
        "-DCPU_CAPABILITY=DEFAULT",
        "-DCPU_CAPABILITY_DEFAULT",
    ]
    built = subprocess.run(
        ["g++", *options, *include, str(folder / "check.cpp"), "-o", str(program)],
        capture_output=True,
        text=True,
    )
    return built.stderr, subprocess.run(
        [str(program)], capture_output=True, text=True
    ) if built.returncode == 0 else None


def test_a_mode_without_a_fast_path_goes_the_generic_way(tmp_path):
    errors, ran = outcome(tmp_path, "None")
    assert ran is not None, errors
    assert ran.returncode == 0, ran.stdout


@pytest.mark.parametrize("path", ["Masks", "Constant"])
def test_the_check_sees_a_row_that_promises_too_much(tmp_path, path):
    errors, ran = outcome(tmp_path, path)
    assert ran is not None, errors
    assert ran.returncode == 1

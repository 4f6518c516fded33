"""Breaks the sums of blocks of products in one place at a time and shows that their tests notice.

    python tools/mutate_blocks.py [--build "make develop"] [words of a mutation's name]

As tools/mutate.py does, but with tensors: each broken source is built into the active environment by the command, TESTS run,
and the source is put back (build once more at the end). The exit status is 1 where the tests pass with a broken one. Some 30 seconds each.
"""

import argparse
import shlex
import subprocess
import sys

from mutating import ROOT, broken, verdict

TESTS = ("test/operators/test_block_sums.py", "test/operators/test_block_sums_operators.py")
FOLDER = "aten/src/ATen/native/formats/"
SUMS, DOTS, KERNEL = "c10/formats/BlockRegister.h", FOLDER + "BlockDots.cpp", FOLDER + "cpu/BlockKernel.cpp"
BEYOND, TWICE = "const double beyond = power(s.high) * 2;", "const double beyond = power(s.high) * 4;"
FINISH, LATE = "\n  for (int64_t i = 0; i < n; ++i) {\n    const auto held = ", "constexpr int32_t kNowhere = -500; // no exponent is so small\n  "
MUTATIONS = [  # what, file, old text, new text
    ("lanes: overflow a binade late", KERNEL, BEYOND + FINISH, TWICE + FINISH),
    ("lanes: overflow a binade late, the register behind", KERNEL, LATE + BEYOND, LATE + TWICE),
    ("lanes: a late sum is not cut", KERNEL, "held_in<nearest>(s, std::floor(sum * power(-last)) * power(last))", "held_in<nearest>(s, sum)"),
    ("lanes: alignment below the register's exponents", KERNEL, "const int32_t e = std::max(exponent_of(sums[i]), low);",
     "const int32_t e = exponent_of(sums[i]);"),
    ("lanes: the same, behind the products", KERNEL, "kNowhere : std::max(exponent_of(sums[i]), s.low), all", "kNowhere : exponent_of(sums[i]), all"),
    ("lanes: a register of more than its digits", KERNEL, "std::max(exponent_of(value), s.low) - s.man_bits", "exponent_of(value) - s.man_bits"),
    ("lanes: a late sum of more than its digits", KERNEL, "std::max(std::max(exponent_of(sum), s.low), all)", "std::max(exponent_of(sum), all)"),
    ("no least exponent", SUMS, "at_least = std::max(at_least, *adder_.sum.min_exponent);", ";"),
    ("no least exponent, the register behind", SUMS, "adder_.sum.min_exponent ? *adder_.sum.min_exponent : kNoExponent;", "kNoExponent;"),
    ("words side by side", SUMS, "next_word_ += all_;", "next_word_ += 1;"),
    ("words from the first", SUMS, "next_word_ = first;", "next_word_ = 0;"),
    ("overflow a binade late", SUMS, "u.exponent > adder_.reg.max_exponent()) u.cls", "u.exponent > adder_.reg.max_exponent() + 1) u.cls"),
    ("the result's words among the registers'", DOTS, "adder.sum.terms - 1) / adder.sum.terms + 1)", "adder.sum.terms - 1) / adder.sum.terms)"),
    ("products that float32 rounds", DOTS, "if (digits <= 12 &&", "if (digits <= 13 &&"),
    ("sums beyond 32 bits", DOTS, "<< (29 - adder.bits)", "<< (33 - adder.bits)"),
    ("no products: as of the smallest", DOTS, "job.right.min_exponent() - 1,", "job.right.min_exponent(),"),
    ("starts below all products", DOTS, "if (job.wide_start) smallest = std::min(smallest, adder.reg.min_exponent());", ""),
    ("infinite rows are finite", DOTS, " || (k && odd_rows[row]);", ";"),
    ("the first row again", DOTS, "if (dots_.a && row != row_) {", "if (dots_.a && row_ < 0) {"),
    ("the other operand's exponents", DOTS, "row * k : nullptr, k, 1, adder.low_left);", "row * k : nullptr, k, 1, adder.low_right);"),
]  # fmt: skip


def passes(build: str) -> bool | None:
    """Whether the tests do; None: it does not build."""
    if subprocess.run(shlex.split(build), cwd=ROOT, capture_output=True, check=False).returncode:
        return None
    tests = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *TESTS]
    return subprocess.run(tests, cwd=ROOT, capture_output=True, check=False).returncode == 0


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--build", default="make develop")
    arguments.add_argument("words", nargs="*")
    given = arguments.parse_args()
    survivors = []
    for what, file, old, new in MUTATIONS:
        if " ".join(given.words) not in what:
            continue
        source = ROOT / file
        text = source.read_text()
        try:
            source.write_text(broken(text, what, file, old, new))
            found = passes(given.build)
        finally:
            source.write_text(text)
        verdict(found, what)
        if found is not False:
            survivors.append(what)
    subprocess.run(shlex.split(given.build), cwd=ROOT, capture_output=True, check=True)
    if survivors:
        sys.exit(f"not as expected: {', '.join(survivors)}")


if __name__ == "__main__":
    main()

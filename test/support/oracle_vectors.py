"""Results and flags of operations on numbers of a format: IEEE 754-2019, section 7, in exact
rationals."""

import math

from oracle import goes_out
from oracle_fixed import Fixed
from rationals import Fraction

FLAGS = {"inexact": 1, "underflow": 2, "overflow": 4, "divide_by_zero": 8, "invalid": 16}


def sign_of(x):
    if isinstance(x, Fraction) and x:
        return 1.0 if x > 0 else -1.0
    return math.copysign(1, x)


def root_of(x):
    """Return a root with 1,200 bits after the point, odd where it is inexact."""
    scaled = x * (1 << 2400)
    root = math.isqrt(math.floor(scaled))
    return Fraction(2 * root + (Fraction(root * root) != scaled), 1 << 1201)


def exact(op, spec, x):
    """Return the exact result as a Fraction; or an infinity, NaN or a signed zero as a float. Also
    tell whether it is undefined, and whether it is a division by 0."""
    if any(isinstance(v, float) and math.isnan(v) for v in x):
        return math.nan, False, False
    # Only signs, zeros and infinities matter.
    numbers = [float(v) if v == 0 or isinstance(v, float) else float(sign_of(v)) for v in x]
    if op == "cast":
        return x[0], False, False
    if op == "sqrt":
        if x[0] < 0:
            return math.nan, True, False
        return (
            (x[0], False, False) if x[0] == 0 or x[0] == math.inf else (root_of(x[0]), False, False)
        )
    if op == "div":
        if numbers[1] == 0 or math.isinf(numbers[0]):
            undefined = numbers[0] == 0 or (math.isinf(numbers[0]) and math.isinf(numbers[1]))
            if undefined:
                return math.nan, True, False
            return (
                sign_of(numbers[0]) * sign_of(numbers[1]) * math.inf,
                False,
                not math.isinf(numbers[0]),
            )
        if numbers[0] == 0 or math.isinf(numbers[1]):
            return sign_of(numbers[0]) * sign_of(numbers[1]) * 0.0, False, False
        return Fraction(x[0]) / Fraction(x[1]), False, False
    if op in ("mul", "fma"):
        if any(map(math.isinf, numbers[:2])) and 0 in numbers[:2]:
            return math.nan, True, False
        product = numbers[0] * numbers[1]
        if product != 0 and not math.isinf(product):
            product = Fraction(x[0]) * Fraction(x[1])
        return (product, False, False) if op == "mul" else (*add(product, x[2]), False)
    if op == "add":
        return (*add(x[0], x[1]), False)
    return (*add(x[0], -x[1] if x[1] != 0 or isinstance(x[1], float) else -0.0), False)


def add(a, b):
    """Return a sum, and whether it is undefined. None stands for an exact zero of terms with unlike
    signs, whose sign depends on the mode."""
    if any(isinstance(v, float) and math.isinf(v) for v in (a, b)):
        total = (a if isinstance(a, float) else 0.0) + (b if isinstance(b, float) else 0.0)
        return (math.nan, True) if math.isnan(total) else (total, False)
    if a == 0 and b == 0:
        return (float(a), False) if sign_of(float(a)) == sign_of(float(b)) else (None, False)
    total = Fraction(a) + Fraction(b)
    return (None if total == 0 else total), False


def round_to(v, quantum, mode, odd=lambda n: n % 2 == 1):
    """Round v to a multiple of a quantum."""
    n, rest = divmod(abs(v) / quantum, 1)
    n, side = int(n), (rest > Fraction(1, 2)) - (rest < Fraction(1, 2))
    return (n + (rest != 0 and goes_out(mode, side, odd(n), v < 0))) * quantum


def flags_of(spec, v, delivered, mode):
    """Return overflow, underflow and inexact of a finite result v other than 0, from the
    definitions."""
    m = abs(v)
    if isinstance(spec, Fixed):
        n = round_to(v, spec.unit, mode) / spec.unit * (1 if v > 0 else -1)
        overflow, tiny = not spec.lowest <= n <= spec.highest, False
    elif spec.posit:
        overflow, tiny = m > spec.magnitude(spec.largest), m < spec.magnitude(1)
    else:
        exponent = max(m.numerator.bit_length() - m.denominator.bit_length() - 1, -10_000)
        while Fraction(2) ** (exponent + 1) <= m:
            exponent += 1
        quantum = Fraction(2) ** (exponent - spec.man_bits)
        # With a single digit, which is 1, formats that round by codes use the last bit of the
        # would-be code: that of the exponent.
        by_code = spec.man_bits == 0 and spec.one_zero
        unbounded = round_to(
            v, quantum, mode, lambda n: (exponent + spec.bias + n - 1 if by_code else n) % 2 == 1
        )
        overflow = unbounded > spec.magnitude(spec.largest)
        tiny = unbounded < Fraction(2) ** (1 - spec.bias)
    inexact = overflow or delivered != v
    return (
        FLAGS["inexact"] * inexact
        + FLAGS["overflow"] * overflow
        + FLAGS["underflow"] * (tiny and inexact)
    )


def find_expected(op, source, target, codes, mode):
    """Return the code and the flags of one vector."""
    x = [source.decode(c) for c in codes]
    v, undefined, by_zero = exact(op, source, x)
    if v is None:
        v = -0.0 if mode == "down" else 0.0
    if v == 0 or isinstance(v, float):
        v = float(v)
        code = target.special(v)
        delivered = target.decode(code)
        if op == "cast" and not math.isfinite(v):
            kept = (
                math.isnan(delivered)
                if math.isnan(v)
                else isinstance(delivered, float) and math.isinf(delivered)
            )
            undefined = not kept
        return code, FLAGS["invalid"] * undefined + FLAGS["divide_by_zero"] * by_zero
    code = target.encode(v, mode)
    delivered = target.decode(code)
    return code, flags_of(target, v, delivered, mode)

"""What tools/mutate.py feeds its check of takums and bounded posits of more than 16 bits: numbers and the codes that the definitions give them."""

import numpy as np
import oracle
import oracle_bounded
import oracle_stochastic
import oracle_takum


def cases(rng, bits, value, encode, header):
    """Values and middles, their neighbours, and numbers about the ends of the range, in every mode. value(bits, code)."""
    most = (1 << bits - 1) - 1
    codes = [1, 2, most - 1, *(1 << k for k in range(bits - 1)), *((1 << k) - 1 for k in range(2, bits - 1))]
    codes += rng.integers(1, most, 60).tolist()
    values = [float(value(bits, k)) for k in codes]
    x = [2.0**-255, values[0] * 0.6, 1e-300, 5e-324, 1e300, float(value(bits, most)) * 1.001, 0.0, np.inf, np.nan]
    for k, v in zip(codes, values, strict=True):
        middle = float(value(bits + 1, 2 * k + 1))
        x += [y for place in (v, middle) for y in (place, np.nextafter(place, 0), np.nextafter(place, np.inf))]
        x.append(middle * (1 + rng.random() * 1e-7))
    for mode, name in enumerate((*oracle.MODES, *oracle_stochastic.MODES)):
        yield f"{header} {mode}"
        for number in (np.array(x) * rng.choice([1, -1], len(x))).tolist():
            word = int(rng.choice(np.array([0, 2**64 - 1, rng.integers(0, 2**64, dtype=np.uint64)], dtype=np.uint64)))
            yield f"G {np.float64(number).view(np.uint64):x} {word:x} {encode(bits, number, name, word):x}"
    yield from (f"H {k:x} {np.float64(v).view(np.uint64):x}" for k, v in zip(codes, values, strict=True))


def takums(rng):
    for bits in (17, 24, 32):
        yield from cases(rng, bits, oracle_takum.value, oracle_takum.encode, f"T {bits}")


def bounded_posits(rng):
    for bits, es, regime_max in ((17, 2, 6), (18, 3, 16), (32, 5, 6)):

        def value(bits, code, shape=(es, regime_max)):
            return oracle_bounded.value(bits, *shape, code)

        def encode(bits, *number, shape=(es, regime_max)):
            return oracle_bounded.encode(bits, *shape, *number)

        yield from cases(rng, bits, value, encode, f"B {bits} {es} {regime_max}")


def lines():
    yield from takums(np.random.default_rng(1))
    yield from bounded_posits(np.random.default_rng(4))

"""Calls that the door ``torch_dtypes.compat.pychop`` and Pychop itself both take: name and results
of each, for a module and a seed.

They avoid the numbers for which Pychop is wrong (the table in docs/tutorials/coming_from.py): those
within a step of zero, beyond the largest number of ``Chop``, and ties of other modes than to even.
"""

import contextlib
import importlib.util
import io
import itertools
import random
import warnings

import numpy as np
import torch

FLOATS = ((5, 10), (4, 3), (8, 7), (6, 15))
PRECISIONS = {"q43": (4, 7), "fp8-e5m2": (3, 15), "h": (11, 15), "b": (8, 127)}
FIXED = ((4, 4), (8, 8), (1, 7), (16, 8), (2, 0))
BLOCKS = ("bfp16", "bfp8", "bfp3", "bfp2", "flexpoint8", (5, 24))
MICROSCALED = ("mxfp8_e5m2", "mxfp8_e4m3", "mxfp6_e3m2", "mxfp6_e2m3", "mxfp4_e2m1", "mxint8")
P3109 = ((8, 4, True, "extended"), (8, 3, True, "finite"), (6, 3, False, "extended"), (4, 1))
P3109_MODES = ("nearest_even", "nearest_away", "toward_zero", "toward_positive", "toward_negative")
# Functions by the numbers of their arguments: above 0, within -1 to 1, and any.
ABOVE = ("log", "log10", "log2", "log1p", "sqrt", "reciprocal")
WITHIN = ("arcsin", "arccos", "arctanh")
ANY = (
    *("sin", "cos", "tan", "arctan", "sinh", "cosh", "tanh", "arcsinh", "exp", "expm1", "square"),
    *("abs", "fabs", "floor", "ceil", "round", "sign", "diff", "real", "imag", "conj"),
    *("sum", "mean", "std", "var", "frexp"),
)
PAIRS = (
    *("add", "subtract", "multiply", "divide", "floor_divide", "maximum", "minimum", "hypot"),
    *("logaddexp", "dot", "matmul"),
)
# Wrong or missing on tensors.
NUMPY_ALONE = ("cbrt", "mod", "angle", "degrees", "radians", "modf", "cumsum", "prod")


def draw(seed, low, high, count=24, positive=False):
    """Return numbers of 24 digits from 2^low to 2^high."""
    chosen = random.Random(seed)
    numbers = [
        chosen.randrange(2**23, 2**24) * 2.0 ** (chosen.randrange(low, high) - 23)
        for _ in range(count)
    ]
    signs = [1 if positive else chosen.choice((-1, 1)) for _ in numbers]
    return np.array(numbers, dtype=np.float32) * np.array(signs, dtype=np.float32)


def pychop_cases(p, seed=0):
    """Yield the name and the results of each call of Pychop. ``p`` is its module, or the door."""
    for (exp_bits, sig_bits), mode in itertools.product(FLOATS, (1, 2, 3, 4, 7, 8, 9)):
        emax = 2 ** (exp_bits - 1) - 1
        positive, high = mode in (7, 8), min(emax, 40)
        x = draw(seed, max(1 - emax, -40), high, 24, positive)
        # Pychop rounds float32's subnormal numbers twice.
        wide = draw(seed, max(1 - emax - sig_bits, -40), high, 24, positive).astype(np.float64)
        call = p.Chop(exp_bits, sig_bits, rmode=mode)
        results = [call(x), call(torch.from_numpy(x)), call(wide if mode in (1, 4) else x[:1])]
        yield f"Chop {exp_bits} {sig_bits} {mode}", results
    for prec, mode, explim, subnormal in itertools.product(
        PRECISIONS, (1, 2, 3, 4), (0, 1), (None, False)
    ):
        t, emax = PRECISIONS[prec]
        x = draw(seed, max(2 - emax, -100), min(emax + 3, 100), 12)
        options = dict(rmode=mode, explim=explim, subnormal=subnormal)
        call = p.FaultChop(prec, **options)
        yield f"FaultChop {prec} {options}", [call(x), call(torch.from_numpy(x))]
    for mode in ("nearest", "plus_inf", "minus_inf", "toward_zero"):
        call = p.FaultChop(customs=p.Customs(t=5, emax=10), rmode=mode)
        yield f"Customs {mode}", [call(draw(seed, -12, 13))]
    for (ibits, fbits), mode in itertools.product(FIXED, (1, 2, 3, 4)):
        x = draw(seed, -fbits - 3, ibits + 1)
        # Pychop's keeps to the kind of its first array.
        results = [p.Chopf(ibits, fbits, mode)(array) for array in (x, torch.from_numpy(x))]
        yield f"Chopf {ibits} {fbits} {mode}", results
    yield from _blocks(p, seed)
    yield from _p3109(p, seed)
    yield from _functions(p, seed)
    yield from _linalg(p, seed)
    for base, t, emax, sign, subnormal in ((2, 3, 4, True, False), (3, 2, 3, True, True)):
        for mode in (1, 2, 3):
            system = p.Simulate(base, t, emax, sign=sign, subnormal=subnormal, rmode=mode)
            rounded = np.array(system.rounding(draw(seed, -4, 3)), dtype=np.float64)
            yield f"Simulate {base} {t} {mode}", [np.unique(system.fp_numbers), rounded]
    for name in ("q43", "b", "t", "single", "d", "fp128"):
        yield f"float_params {name}", [np.float64(p.float_params(name))]


def _blocks(p, seed):
    for name in BLOCKS:
        x = draw(seed, -8, 4, 70)
        results = [p.bfp_quantize(x, name), p.bfp_quantize(torch.from_numpy(x), name)]
        yield f"bfp_quantize {name}", [*results, p.BFPTensor(x[:60], name).dequantize()]
    for name in (*MICROSCALED, (3, 3), (4, 3), (1, 1), (0, 4)):
        x = draw(seed, -20, 4, 50).reshape(2, 25)
        results = [p.mx_quantize(x, name), p.mx_quantize(torch.from_numpy(x), name)]
        for bits in (5, 10):
            results.append(p.MXTensor(x, name, 16, scale_exp_bits=bits).dequantize())
        yield f"mx_quantize {name}", results


def _p3109(p, seed):
    for parameters, mode, saturate in itertools.product(P3109, P3109_MODES, (False, True)):
        fmt = p.P3109Format(*parameters)
        x = draw(seed, 1 - fmt.bias, fmt.bias, 16, positive=not fmt.signed).astype(np.float64)
        policy = p.P3109(fmt, mode, saturate)
        codes = policy.encode(x)
        yield f"P3109 {fmt.name} {mode} {saturate}", [policy(x), codes, policy.decode(codes)]
    for parameters, kind, bits in itertools.product(P3109, "abc", (1, 5)):
        fmt = p.P3109Format(*parameters)
        x = draw(seed, 1 - fmt.bias, fmt.bias + 1, 16, positive=not fmt.signed)
        words = np.random.RandomState(seed).randint(0, 2**bits, x.shape)
        options = dict(rounding=f"stochastic_{kind}", srbits=words, srnumbits=bits)
        yield f"P3109 {fmt.name} {kind} {bits}", [p.p3109_quantize(x, fmt, **options)]


def _functions(p, seed):
    chop = p.Chop(8, 7)
    y = draw(seed + 1, -2, 2, 10)
    for names, x in (
        (ABOVE, draw(seed, -3, 3, 10, True)),
        (WITHIN, draw(seed, -6, -1, 10)),
        (ANY, draw(seed, -3, 2, 10)),
        (("arccosh",), draw(seed, 1, 3, 10, True)),
        (PAIRS, draw(seed, -3, 3, 10)),
        (NUMPY_ALONE, draw(seed, -3, 2, 10)),
    ):
        arguments = [x, y] if names is PAIRS else [x]
        for name in names:
            others = [y] if name == "mod" else []
            yield f"{name} of arrays", _call(chop, name, [*arguments, *others])
            if names is not NUMPY_ALONE:
                tensors = [torch.from_numpy(values) for values in arguments]
                yield f"{name} of tensors", _call(chop, name, tensors)
    matrix = draw(seed, -1, 1, 12).reshape(3, 4)
    for name in ("sum", "prod", "mean", "std", "var", "cumsum", "cumprod"):
        call = getattr(p, name)
        yield f"{name} axis", [call(x, chop, axis=1) for x in (matrix, torch.from_numpy(matrix))]
    for name in ("sin", "sqrt", "add", "power", "matmul"):
        arrays = [abs(matrix), abs(matrix)] if name in ("add", "power") else [abs(matrix)]
        arrays = [matrix, matrix.T] if name == "matmul" else arrays
        yield f"math_func {name}", [getattr(p.math_func, name)(*arrays, chop)]
    yield "clip", _call(chop, "clip", [matrix, -0.6, 1.1])
    yield "ldexp", _call(chop, "ldexp", [matrix, 3])
    yield "decimals", [chop.round(matrix, decimals=1)]


def _linalg(p, seed):
    """LAPACK's results, rounded once. The door leaves them to NumPy's functions."""
    builtin = f"{p.__name__}.builtin"
    own = importlib.util.find_spec(f"{builtin}.linalg") is not None
    functions = importlib.import_module(f"{builtin}.linalg") if own else np.linalg
    x = draw(seed, -2, 1, 20).astype(np.float64).reshape(4, 5)
    for exp_bits, sig_bits in ((5, 10), (8, 7)):
        p.backend("numpy")
        chop = p.Chop(exp_bits, sig_bits)
        a, b, near = (
            importlib.import_module(builtin).CPArray(values, chop)
            for values in (x[:, :4], x[:, 4:], np.eye(4) + x[:, :4] @ x[:, :4].T)
        )
        for name, operands in (
            ("solve", (a, b)),
            ("inv", (a,)),
            ("qr", (a,)),
            ("cholesky", (near,)),
        ):
            result = getattr(functions, name)(*operands)
            results = result if isinstance(result, tuple) else (result,)
            yield f"linalg {name} {exp_bits}", [np.asarray(r) for r in results]
        p.backend("auto")


def _call(chop, name, arguments):
    chop(arguments[0])  # Pychop's choppers have their functions after a call
    result = getattr(chop, name)(*arguments)
    return list(result) if isinstance(result, tuple) else [result]


def collect(module, seed=0):
    """Return all results as tensors of float64."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        return {
            name: [torch.from_numpy(np.array(r, dtype=np.float64)) for r in results]
            for name, results in pychop_cases(module, seed)
        }

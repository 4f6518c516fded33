#!/usr/bin/env python3
"""Records the results of QPyTorch for ``test/tools/test_coming_from.py`` and
``test/compat/test_qtorch.py``.

The calls are in docs/tutorials/coming_from.py, and those of the door in test/support/door_cases.py.

    # compiles its C++ at the first import: needs g++, ninja and PyTorch's headers
    pip install --no-deps qtorch==0.3.0
    TORCH_DEVICE_BACKEND_AUTOLOAD=0 python tools/record_qtorch.py test/data/qtorch.json

Inputs are float32 numbers: ties and their neighbours, subnormals, both ends of the range, zeros,
infinities, NaN and random ones. Deterministic calls keep every result. Stochastic ones keep how
often each of the two neighbours occurred. Numbers are written as the bits of float32.
"""

import base64
import datetime
import importlib.metadata
import json
import math
import random
import sys
from pathlib import Path

import torch

sys.path.append(str(Path(__file__).resolve().parents[1] / "test" / "support"))
from door_cases import collect, pack, qtorch_cases

DRAWS = 4096
SPECIALS = [
    0.0,
    -0.0,
    math.inf,
    -math.inf,
    math.nan,
    3.4028234663852886e38,
    -3.4028234663852886e38,
    1e-45,
]


def bits(x):
    return base64.b64encode(x.contiguous().numpy().tobytes()).decode()


def add_neighbours(points):
    """Return the points in float32, the next float32 numbers, and a third of all negated."""
    x = torch.tensor(points, dtype=torch.float64).float()
    x = torch.cat(
        [x, torch.nextafter(x, torch.tensor(math.inf)), torch.nextafter(x, torch.tensor(-math.inf))]
    )
    return torch.cat([x, -x[::3]])


def float_inputs(exp, man):
    """Return points a quarter of a step apart near the ends of the ranges, and near 1.

    These are the starts of the subnormal and normal numbers and the end of the range.
    """
    lowest, highest, draw = 2 - 2 ** (exp - 1), min(2 ** (exp - 1), 127), random.Random(exp)
    step = 2.0 ** -(man + 2)
    points = [k * step * 2.0**lowest for k in (1, 2, 3, 6, 10, 2 ** (man + 2) - 2)]
    points += [(1 + k * step) * 2.0**e for e in (lowest, 0) for k in (1, 2, 6)] + [
        (2 - k * step) * 2.0**highest for k in (6, 4, 2, 1)
    ]
    random_points = [
        draw.uniform(-2, 2) * 2.0 ** draw.randint(lowest - man, highest - 1) for _ in range(16)
    ]
    return torch.cat([add_neighbours(points), torch.tensor(random_points), torch.tensor(SPECIALS)])


def fixed_inputs(wl, fl):
    step, draw = 2.0**-fl, random.Random(wl)
    points = [k * step for k in (0.25, 0.5, 1, 1.5, 2.5, 3.5)] + [
        (2 ** (wl - 1) + k) * step for k in (-2, -1.5, -1, -0.5, 0, 0.5, 1, 1.5)
    ]
    return torch.cat(
        [
            add_neighbours(points),
            torch.tensor([draw.uniform(-(2**wl), 2**wl) * step for _ in range(16)]),
            torch.tensor(SPECIALS),
        ]
    )


def block_inputs():
    """Return rows of 16 numbers for blocks.

    They are steps and half steps of 8 bits beside a largest 1.75, their neighbours, tiny and huge
    rows, zeros, an infinity and NaN.
    """
    draw = random.Random(8)
    halves = torch.tensor(
        [1.75, *(k * 2.0**-7 for k in (-223, -41, -9, -5, -3, -1, 0, 1, 2, 3, 5, 9, 40, 222, 223))]
    )
    rows = [
        halves,
        torch.nextafter(halves, torch.tensor(math.inf)),
        torch.nextafter(halves, torch.tensor(-math.inf)),
        torch.zeros(16),
    ]
    rows += [
        torch.tensor([draw.uniform(-1, 1) * scale for _ in range(16)])
        for scale in (1e-30, 1.0, 1e30)
    ]
    return torch.stack(
        rows + [halves.clone().index_fill_(0, torch.tensor(3), v) for v in (math.inf, math.nan)]
    )


def calls():
    """Yield each call of the page and its input."""
    for exp, man in ((5, 2), (4, 3), (2, 1), (5, 10), (8, 7)):
        yield f'float_quantize(x, exp={exp}, man={man}, rounding="nearest")', float_inputs(exp, man)
    for options in ("", ", symmetric=True", ", clamp=False"):
        yield (
            f'fixed_point_quantize(x, wl=8, fl=4{options}, rounding="nearest")',
            fixed_inputs(8, 4),
        )
    yield 'block_quantize(x, wl=8, rounding="nearest")', block_inputs()[:3]
    for dim in (0, 1):
        yield (
            f'block_quantize(x, wl=8, dim={dim}, rounding="nearest")',
            block_inputs() if dim == 0 else block_inputs().t(),
        )
    some = torch.tensor(
        [
            0.3,
            -0.3,
            1.0,
            1.1,
            -2.7,
            5.0 + 2**-7,
            7.97,
            -7.99,
            9.0,
            -1e6,
            1e5,
            2**-16 + 2**-19,
            -(2**-18),
            3e-8,
        ]
    )
    yield "float_quantize(x, exp=5, man=2)", some
    yield "fixed_point_quantize(x, wl=8, fl=4)", some
    yield "block_quantize(x, wl=8)", some[:9]


def record():
    import qtorch
    import qtorch.auto_low
    import qtorch.optim
    from qtorch import quant

    def entry(call, x):
        def run():
            return eval(call, {"x": x, **vars(quant)})

        if "nearest" in call:
            return {"shape": list(x.shape), "x": bits(x), "result": bits(run())}
        results = torch.stack([run() for _ in range(DRAWS)])
        low, high = results.amin(0), results.amax(0)
        return {
            "x": bits(x),
            "low": bits(low),
            "high": bits(high),
            "times high": (results == high).sum(0).tolist(),
            "draws": DRAWS,
        }

    versions = {name: importlib.metadata.version(name) for name in ("qtorch", "torch")}
    how = "TORCH_DEVICE_BACKEND_AUTOLOAD=0 python tools/record_qtorch.py test/data/qtorch.json"
    return {
        "command": how,
        **versions,
        "date": str(datetime.date.today()),
        "calls": {call: entry(call, x) for call, x in calls()},
        "door": {name: pack(results) for name, results in collect(qtorch_cases, qtorch).items()},
    }


def lines_of(table):
    return ",\n".join(f"{json.dumps(name)}: {json.dumps(entry)}" for name, entry in table.items())


if __name__ == "__main__":
    recording = record()
    calls_made, door = lines_of(recording.pop("calls")), lines_of(recording.pop("door"))
    with open(sys.argv[1], "w") as file:
        head = json.dumps(recording)[:-1]
        file.write(f'{head}, "calls": {{\n{calls_made}\n}}, "door": {{\n{door}\n}}}}\n')

"""The other end of ``chop.m``: MATLAB's and Octave's requests, and what they get.

A request is one line of JSON, which ``chop.m`` writes, and raw doubles: the array's elements, then
as many random numbers as the line says. An answer is the line ``ok`` and as many doubles as the
array has, or one line that says what was wrong.

Source of the options: Higham, Pranesh, "Simulating low precision floating-point arithmetic", SISC
41 (2019), and their ``chop.m``.
"""

import json
import pathlib

import numpy as np
import torch

from ...targets.chop import chop
from ..floats import Float

FOLDER = pathlib.Path(__file__).parent  # of chop.m


def answer(line: str, numbers) -> memoryview:
    """Return the rounded elements of a request (MATLAB calls this through its Python)."""
    request = json.loads(line)
    numbers = np.asarray(numbers, dtype=np.float64).reshape(-1)
    count = request["count"]
    return memoryview(_round(numbers[:count], request, numbers[count:]).numpy())


def _round(x, request, draws):
    """Round an array by the options of ``chop.m``."""
    x, mode = torch.tensor(x), request["round"]
    how = {
        "flip_prob": request["p"] if request["flip"] else 0.0,
        "generator": torch.Generator().manual_seed(request["seed"]),
    }
    if request["params"]:
        fmt = Float(*request["params"], bool(request["subnormal"]), bool(request["explim"]))
        return fmt.round(x, mode, **how, draws=torch.tensor(draws) if len(draws) else None)
    if not (request["subnormal"] and request["explim"]) or len(draws):
        raise ValueError(
            f"expected none of subnormal=0, explim=0 and randfunc with {request['format']!r}: they "
            "belong to floats by params"
        )
    return chop(x, request["format"], mode, **how)


def serve(source, sink) -> None:
    """Answer requests of the binary stream ``source`` on ``sink``, until it ends."""
    while line := source.readline():
        request = json.loads(line)
        size = 8 * (request["count"] + request["draws"])
        data = source.read(size)
        if len(data) < size:
            raise EOFError(f"expected {size} bytes after {line!r}, but got {len(data)}")
        try:
            result = bytes(answer(line, np.frombuffer(data)))
        except (ArithmeticError, NotImplementedError, TypeError, ValueError) as error:
            text = str(error).encode()
            sink.write(np.float64([0, len(text)]).tobytes() + text)
        else:
            sink.write(np.float64([1, request["count"]]).tobytes() + result)
        sink.flush()

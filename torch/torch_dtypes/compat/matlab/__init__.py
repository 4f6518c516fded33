"""The other end of ``chop.m``: MATLAB's and Octave's requests, and what they get.

A request is one line of JSON, which ``chop.m`` writes, and raw doubles: the array's elements, then
as many random numbers as the line says. An answer is two doubles, and then what the second counts:
after 1 the rounded doubles, after 0 the bytes of a text that says what was wrong.

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
    numbers = np.array(numbers, dtype=np.float64).reshape(-1)
    return memoryview(_round(json.loads(line), numbers).numpy())


def _round(request: dict, numbers: np.ndarray) -> torch.Tensor:
    """Round the first numbers of a request by its options; the others are random numbers."""
    x, draws = torch.from_numpy(numbers).tensor_split([request["count"]])
    mode = request["round"]
    how = {
        "flip_prob": request["p"] if request["flip"] else 0.0,
        "generator": torch.Generator().manual_seed(request["seed"]),
    }
    if request["params"]:
        fmt = Float(*request["params"], bool(request["subnormal"]), bool(request["explim"]))
        return fmt.round(x, mode, **how, draws=draws if len(draws) else None)
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
            result = _round(request, np.frombuffer(data).copy()).numpy().tobytes()
        except (ArithmeticError, NotImplementedError, TypeError, ValueError) as error:
            text = str(error).encode()
            sink.write(np.float64([0, len(text)]).tobytes() + text)
        else:
            sink.write(np.float64([1, request["count"]]).tobytes() + result)
        sink.flush()

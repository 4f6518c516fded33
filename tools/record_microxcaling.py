#!/usr/bin/env python3
"""Records the results of microxcaling for ``test/compat/test_mx.py``: the calls of
test/support/door_cases.py.

    git clone https://github.com/microsoft/microxcaling  # it is on no registry
    TORCH_DEVICE_BACKEND_AUTOLOAD=0 PYTHONPATH=microxcaling \\
        python tools/record_microxcaling.py COMMIT test/data/microxcaling.json
"""

import datetime
import json
import sys
from pathlib import Path

import torch

sys.path.append(str(Path(__file__).resolve().parents[1] / "test" / "support"))
from door_cases import collect, mx_cases, pack

if __name__ == "__main__":
    import mx
    import mx.elemwise_ops
    import mx.mx_ops
    import mx.specs

    recording = {
        "microxcaling": sys.argv[1],
        "torch": torch.__version__,
        "date": str(datetime.date.today()),
        "door": {name: pack(results) for name, results in collect(mx_cases, mx).items()},
    }
    Path(sys.argv[2]).write_text(json.dumps(recording, indent=0) + "\n")

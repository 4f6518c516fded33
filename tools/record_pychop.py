#!/usr/bin/env python3
"""Records the results of Pychop for ``test/compat/test_pychop.py``: the calls of
test/support/pychop_cases.py.

    pip install --no-deps --target pychop pychop==0.6.2
    TORCH_DEVICE_BACKEND_AUTOLOAD=0 PYTHONPATH=pychop \\
        python tools/record_pychop.py test/data/pychop.json
"""

import datetime
import json
import sys
from pathlib import Path

import torch

sys.path.append(str(Path(__file__).resolve().parents[1] / "test" / "support"))
from door_cases import pack
from pychop_cases import collect

if __name__ == "__main__":
    import pychop

    recording = {
        "pychop": pychop.__version__,
        "torch": torch.__version__,
        "date": str(datetime.date.today()),
        "door": {name: pack(results) for name, results in collect(pychop).items()},
    }
    Path(sys.argv[1]).write_text(json.dumps(recording, indent=0) + "\n")

"""``python -m torch_dtypes.compat qtorch script.py ARGS``: run a script with a door in the place
of the original library."""

import sys
from pathlib import Path

from torch_dtypes.compat import DOORS, install
from torch_dtypes.compat.scripts import run_script


def main() -> None:
    if len(sys.argv) < 3 or sys.argv[1] not in DOORS:
        sys.exit(f"usage: python -m torch_dtypes.compat {{{','.join(DOORS)}}} SCRIPT [ARGS]")
    if not Path(sys.argv[2]).is_file():
        sys.exit(f"expected a Python script, but got {sys.argv[2]}: there is no such file")
    install(sys.argv[1])
    run_script(sys.argv[2], sys.argv[3:])


if __name__ == "__main__":
    main()

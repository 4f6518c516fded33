"""``python -m torch_dtypes``: the same as the ``torch-dtypes`` command."""

from torch_dtypes.cli import main

if __name__ == "__main__":
    main()

"""Entry point `torch.backends`: PyTorch calls `load` at the end of `import torch`, which makes the dtypes known.

A module of its own beside the package, so that finding the entry point runs none of the package's code, and so that a
package that cannot be loaded never takes the user's PyTorch with it: PyTorch turns an exception here into its own failure.
"""

from __future__ import annotations

import warnings


def load() -> None:
    """Imports torch_dtypes; any failure becomes one RuntimeWarning.

    After `import torch_dtypes`, which imports torch, which calls this, the import below finds the package begun in
    `sys.modules` and leaves it alone: whoever imports it explicitly gets its exceptions.
    """
    try:
        import torch_dtypes  # noqa: F401
    except Exception as error:
        warnings.warn(
            f"torch_dtypes could not be loaded, so its dtypes are missing; torch itself is not affected. "
            f"{type(error).__name__}: {error} (To load nothing at `import torch`: pip uninstall torch-dtypes, "
            "or TORCH_DEVICE_BACKEND_AUTOLOAD=0.)",
            RuntimeWarning,
            stacklevel=2,
        )

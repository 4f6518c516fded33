"""The running release of PyTorch, and features that older releases lack.

An extension built for another release is refused, with a clear error instead of a missing symbol.
"""

from __future__ import annotations

import torch


def release(version: str) -> str:
    """Return major and minor of a version: '2.13' of '2.13.0+cpu'.

    PyTorch's C++ interface may change between them.
    """
    return ".".join(str(version).split(".")[:2])


RUNNING = tuple(int(part) for part in release(torch.__version__).split("."))

# Casts to float8_e4m3fn; up to 2.12 they overflow to NaN (pull request 178817).
FLOAT8_CASTS_SATURATE = RUNNING >= (2, 13)


def _never() -> bool:
    return False


# Returns whether torch.export traces the caller, which PyTorch 2.6 cannot tell. It is PyTorch's own
# function, since Dynamo knows that one.
is_exporting = torch.compiler.is_exporting if RUNNING >= (2, 7) else _never


def check() -> None:
    """Compare the running PyTorch with the one that this package was built for.

    It must be called before `_C` is imported.

    Raises:
        ImportError: the releases (major.minor) or the C++ ABIs differ, or the package has not been
            built.
    """
    try:
        from ._build_info import CXX11_ABI, TORCH_VERSION
    except (ImportError, SyntaxError) as error:
        raise ImportError(
            "torch_dtypes: expected torch_dtypes/_build_info.py, which the build writes, but got "
            f"{error}; build the package in its source folder with "
            "pip install --force-reinstall --no-deps ."
        ) from error

    running = str(torch.__version__)
    if release(running) != release(TORCH_VERSION):
        raise ImportError(
            f"torch_dtypes: expected torch {release(TORCH_VERSION)}, for which this package was "
            f"built ({TORCH_VERSION}), "
            f"but got torch {running}; install that release with pip install "
            f'"torch=={release(TORCH_VERSION)}.*", or build the package for the running one in '
            "its source folder with pip install --force-reinstall --no-deps ."
        )
    if int(torch.compiled_with_cxx11_abi()) != int(CXX11_ABI):
        raise ImportError(
            f"torch_dtypes: expected a torch with _GLIBCXX_USE_CXX11_ABI={int(CXX11_ABI)}, for "
            f"which this package was built, but got {int(torch.compiled_with_cxx11_abi())} in "
            f"torch {running}; build the package for it in its source folder with "
            "pip install --force-reinstall --no-deps ."
        )

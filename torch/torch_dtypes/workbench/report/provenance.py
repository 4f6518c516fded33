"""Where figures come from: the command, the versions, the seed and the machine, in the same words
in every report."""

from __future__ import annotations

import datetime
import os
import platform
import re
from collections.abc import Iterable
from pathlib import Path

import torch

import torch_dtypes

from ... import _C

# Where files are written is the reader's own, and what was interrupted is the same work.
_LEFT_OUT = {"markdown", "out", "resume", "download"}


def versions() -> dict[str, str]:
    """Versions of what numbers depend on."""
    import numpy

    return {
        "torch_dtypes": torch_dtypes.__version__,
        "torch": str(torch.__version__),
        "numpy": numpy.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
    }


def cpu_name() -> str:
    """The processor's model, as the system has it."""
    try:
        found = re.search(
            r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE
        )
    except OSError:
        found = None
    return found[1] if found else platform.processor() or platform.machine()


def machine() -> dict[str, str | int]:
    """What speed and the order of sums depend on: no name of a host, no paths."""
    return {
        "cpu": cpu_name(),
        "cores": os.cpu_count() or 0,
        "threads": torch.get_num_threads(),
        "vector_unit": _C.cpu_capability(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def command_line() -> str:
    """The command that runs, with what was said of it: anybody can repeat it. A file goes by its
    own name, without its folder.

    Raises:
        RuntimeError: no click command runs.
    """
    import click

    context = click.get_current_context()
    words = ["torch-dtypes", context.command.name or ""]
    for parameter in context.command.params:
        said = (
            context.get_parameter_source(parameter.name) is click.core.ParameterSource.COMMANDLINE
        )
        if not said or parameter.name in _LEFT_OUT:
            continue
        value = context.params[parameter.name]
        for one in value if isinstance(value, tuple) else [value]:
            if isinstance(parameter.type, click.Path):
                one = "DATA" if parameter.name == "data_dir" else Path(one).name
            name = [parameter.opts[0]] if isinstance(parameter, click.Option) else []
            words += (
                name if one is True else [*name, f"{one:g}" if isinstance(one, float) else str(one)]
            )
    return " ".join(words)


def origin(command: str | None = None, seeds: Iterable[int] = ()) -> dict[str, str]:
    """What a page says of its making, as words by subject: command, seed, versions, machine,
    date."""
    seeds, where, of = list(seeds), machine(), versions()
    threads = f"{where['threads']} thread{'s' * (where['threads'] != 1)}"
    return {
        **({"command": command} if command else {}),
        **({"seed" + "s" * (len(seeds) > 1): ", ".join(map(str, seeds))} if seeds else {}),
        "versions": (
            f"torch_dtypes {of['torch_dtypes']}, torch {of['torch']}, numpy {of['numpy']}, Python "
            f"{of['python']}"
        ),
        "machine": (
            f"{where['cpu']}, {threads} on {where['cores']} cores, {where['vector_unit']} "
            f"kernels, {where['system']}"
        ),
        "date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC",
    }

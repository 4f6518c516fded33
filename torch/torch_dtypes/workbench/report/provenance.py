"""The origin of results: command, versions, seed and machine, in the same words in every report."""

from __future__ import annotations

import datetime
import os
import platform
import re
import shlex
from collections.abc import Iterable
from pathlib import Path

import torch

import torch_dtypes

from ... import _C

# Paths of outputs are the reader's own, and a resumed command does the same work.
_LEFT_OUT = {"markdown", "out", "resume", "download"}


def versions() -> dict[str, str]:
    """Return the versions of the software that results depend on."""
    import numpy

    return {
        "torch_dtypes": torch_dtypes.__version__,
        "torch": str(torch.__version__),
        "numpy": numpy.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
    }


def cpu_name() -> str:
    """Return the processor's model, by the system's name."""
    try:
        match = re.search(
            r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE
        )
    except OSError:
        match = None
    return match[1] if match else platform.processor() or platform.machine()


def machine() -> dict[str, str | int]:
    """Return the properties on which speed and the order of sums depend. No host name, no paths."""
    return {
        "cpu": cpu_name(),
        "cores": os.cpu_count() or 0,
        "threads": torch.get_num_threads(),
        "vector_unit": _C.cpu_capability(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def command_line() -> str:
    """Return the running command with its arguments, so that a reader can repeat it. Files appear
    without their folders.

    Raises:
        RuntimeError: no click command is running.
    """
    import click

    context = click.get_current_context()
    words = ["torch-dtypes", context.command.name or ""]
    for parameter in context.command.params:
        is_given = (
            context.get_parameter_source(parameter.name) is click.core.ParameterSource.COMMANDLINE
        )
        if not is_given or parameter.name in _LEFT_OUT:
            continue
        value = context.params[parameter.name]
        for one in value if isinstance(value, tuple) else [value]:
            if isinstance(parameter.type, click.Path):
                one = "DATA" if parameter.name == "data_dir" else Path(one).name
            name = [parameter.opts[0]] if isinstance(parameter, click.Option) else []
            words += (
                name if one is True else [*name, f"{one:g}" if isinstance(one, float) else str(one)]
            )
    return shlex.join(words)


def origin(command: str | None = None, seeds: Iterable[int] = ()) -> dict[str, str]:
    """Return the lines on a page's origin by subject: command, seed, versions, machine, date."""
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

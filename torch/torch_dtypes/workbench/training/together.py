"""Commands under ``torchrun``: ranks that report as one, and errors that end them all in plain
words."""

from __future__ import annotations

import contextlib
import socket
import time

import click
import torch
import torch.distributed as dist

from .ranks import ALONE, Ranks, first_line, is_lost, launched

# What a command reports where one rank alone has the reason.
_LOST = "lost another rank, which has ended or cannot be reached; what it said itself is the reason"


class Command(click.Command):
    """A command that several processes may run together, each from its own command line: an option
    that is wrong on one of them ends all."""

    def make_context(self, *args, **kwargs):
        try:
            return super().make_context(*args, **kwargs)
        except click.ClickException as error:
            with joined() as ranks:
                agree(ranks, error)
            raise


class Alone(click.Group):
    """A group of commands that one process runs, but for those of :class:`Command`."""

    def resolve_command(self, ctx, args):
        name, command, rest = super().resolve_command(ctx, args)
        size = launched()[1]
        if size > 1 and command is not None and not isinstance(command, Command):
            raise click.UsageError(
                f"expected one process for {name}, but got {size}: only train runs under torchrun"
            )
        return name, command, rest


@contextlib.contextmanager
def joined():
    """The ranks that a launcher has started, in a process group over gloo for the block; tensors on
    GPUs, if they come, go over NCCL."""
    rank, size = launched()
    if size == 1:
        yield ALONE
        return
    try:
        dist.init_process_group(
            "cpu:gloo,cuda:nccl"
            if torch.cuda.is_available() and dist.is_nccl_available()
            else "gloo"
        )
    except (RuntimeError, ValueError) as error:
        raise click.ClickException(
            f"rank {rank}: expected {size} processes that reach each other, but: "
            f"{first_line(error)}"
        ) from error
    ranks = Ranks(rank, size)
    try:
        yield ranks
    except click.ClickException as error:
        raise click.ClickException(f"{_who(ranks)}: {error.format_message()}") from error
    except (RuntimeError, OSError) as error:
        if not is_lost(error):
            raise
        raise click.ClickException(f"{_who(ranks)}: {_LOST}") from error
    finally:
        dist.destroy_process_group()
        # PyTorch keeps the threads of a group that DistributedDataParallel had. One that still
        # holds tensors of the last exchange lets go of their Python objects under Python's lock,
        # and would end the process if Python ended meanwhile; nothing tells when it has.
        time.sleep(0.1)


def agree(ranks, error=None):
    """All ranks: goes on where none has a ``click.ClickException``; else rank 0 shows what all or
    some have, and all end."""
    if ranks.size == 1:
        if error is not None:
            raise error
        return
    everyone = ranks.gather(
        None if error is None else (error.format_message(), error.exit_code, socket.gethostname())
    )
    told = [(rank, *each) for rank, each in enumerate(everyone) if each is not None]
    if not told:
        return
    if ranks.is_first:
        if len(told) < ranks.size or len({text for _, text, *_ in told}) > 1:
            error = click.ClickException(
                "\n".join(f"rank {rank} on {host}: {text}" for rank, text, _, host in told)
            )
        error.show()
    end(ranks, told[0][2])


def end(ranks, code):
    """All ranks: the end of the processes, together, since a launcher ends the others as soon as
    one has failed."""
    ranks.gather(None)
    raise SystemExit(code)


@contextlib.contextmanager
def agreed(ranks):
    """All ranks: a block whose ``click.ClickException`` on one of them ends all."""
    found = None
    try:
        yield
    except click.ClickException as error:
        found = error
    agree(ranks, found)


def _who(ranks):
    return f"rank {ranks.rank} on {socket.gethostname()}"

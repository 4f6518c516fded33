"""Commands under ``torchrun``: ranks report as one, and an error ends them all with a plain
message."""

from __future__ import annotations

import contextlib
import socket
import time

import click
import torch
import torch.distributed as dist

from .ranks import ALONE, Ranks, first_line, is_lost, read_launcher

# The message of a command if only one other rank has the reason.
_LOST = "lost another rank, which has ended or cannot be reached; what it said itself is the reason"


class Command(click.Command):
    """A command that several processes may run together, each from its own command line. A wrong
    option on one of them ends all."""

    def make_context(self, *args, **kwargs):
        try:
            return super().make_context(*args, **kwargs)
        except click.ClickException as error:
            with join_ranks() as ranks:
                agree(ranks, error)
            raise


class Alone(click.Group):
    """A group of commands. Only a :class:`Command` may run in more than one process."""

    def resolve_command(self, ctx, args):
        name, command, rest = super().resolve_command(ctx, args)
        size = read_launcher()[1]
        if size > 1 and command is not None and not isinstance(command, Command):
            raise click.UsageError(
                f"expected one process for {name}, but got {size}: only train runs under torchrun"
            )
        return name, command, rest


@contextlib.contextmanager
def join_ranks():
    """Join the ranks that a launcher has started, in a process group over gloo for the block.
    Tensors on GPUs go over NCCL."""
    rank, size = read_launcher()
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
        # PyTorch keeps the threads of a group that DistributedDataParallel used. One that still
        # holds tensors of the last exchange releases their Python objects under Python's lock. If
        # Python ended meanwhile, the process would crash, and nothing tells when the thread is
        # done.
        time.sleep(0.1)


def agree(ranks, error=None):
    """All ranks: return if none has a ``click.ClickException``. Otherwise rank 0 shows them, and
    all end."""
    if ranks.size == 1:
        if error is not None:
            raise error
        return
    everyone = ranks.gather(
        None if error is None else (error.format_message(), error.exit_code, socket.gethostname())
    )
    errors = [(rank, *each) for rank, each in enumerate(everyone) if each is not None]
    if not errors:
        return
    if ranks.is_first:
        if len(errors) < ranks.size or len({text for _, text, *_ in errors}) > 1:
            error = click.ClickException(
                "\n".join(f"rank {rank} on {host}: {text}" for rank, text, _, host in errors)
            )
        error.show()
    end(ranks, errors[0][2])


def end(ranks, code):
    """All ranks: end the processes together, because a launcher ends the others as soon as one has
    failed."""
    ranks.gather(None)
    raise SystemExit(code)


@contextlib.contextmanager
def agree_after(ranks):
    """All ranks: end all if one of them has a ``click.ClickException`` in the block."""
    caught = None
    try:
        yield
    except click.ClickException as error:
        caught = error
    agree(ranks, caught)


def _who(ranks):
    return f"rank {ranks.rank} on {socket.gethostname()}"

"""The command ``torch-dtypes perplexity``."""

from __future__ import annotations

import hashlib
from pathlib import Path

import click

from ..training import checks
from ..training import options as shared
from ..training.ranks import with_notes
from ..training.text import read_topics
from ..variability.command import run_study
from .models import check_causal, load_model
from .recipes import RECIPES
from .results import collect
from .study import Cell, Settings, Study


@click.command(
    short_help="Measure the perplexity of a causal language model in several formats, from a local "
    "folder."
)
@click.argument("model")
@click.option(
    "--weights",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="Weights of gpt or of your own model: a state dict by torch.save, safetensors, or the "
    "file in DIR/trained of train --out DIR.",
)
@click.option(
    "--text",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="The text. Default: the reference topics of Python's own documentation.",
)
@click.option(
    "--format",
    "formats",
    multiple=True,
    metavar="NAME",
    callback=checks.named_formats,
    help="Formats: q43, 'posit<12,1>', bf16, mxfp4, int8, ...; repeat to compare.",
)
@click.option(
    "--recipe",
    "recipes",
    type=click.Choice(list(RECIPES)),
    multiple=True,
    default=("ptq",),
    show_default=True,
    help=" ".join(f"{name}: {what}." for name, what in RECIPES.items()) + " Repeat to compare.",
)
@click.option(
    "--rules",
    type=click.Path(exists=True, dir_okay=False),
    multiple=True,
    metavar="FILE",
    help="YAML rules of torch_dtypes.quantize_, measured beside the formats; repeat for several.",
)
@click.option(
    "--keep",
    multiple=True,
    metavar="PATTERN",
    help="Leave these in float32, with all inside them: a name, a regular expression over names, "
    "or a type such as nn.Linear; repeat for several.",
)
@click.option(
    "--output-layer", is_flag=True, help="Round the output layer too, which stays in float32 else."
)
@click.option(
    "--context",
    type=click.IntRange(2),
    metavar="N",
    help="Tokens in a window. Default: the model's longest input, but at most 2048.",
)
@click.option(
    "--stride",
    type=click.IntRange(1),
    metavar="N",
    help="Tokens from one window to the next. Default: the window, so that none overlap.",
)
@click.option(
    "--tokens", type=click.IntRange(2), metavar="N", help="Use the first N tokens of the text."
)
@click.option(
    "--batch-size",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Windows that run together.",
)
@shared.seed_option
@shared.device_option
@shared.threads_option
@shared.out_option(
    "Write page, table (CSV, JSON) and figure into DIR, and keep what is done: after an "
    "interruption the same command goes on."
)
def perplexity(**options):
    """Measure the perplexity of the causal language model MODEL in several formats.

    MODEL is a folder in transformers' layout, gpt or 'gpt(layers=4, ...)' as for train, or your own
    package.module:function, which returns a model (of ids to logits), or a model and a tokenizer.
    Nothing is downloaded. A model without a tokenizer reads bytes. A window slides over the text,
    and each token is scored once. The rules of a folder that was saved with rules are a row.
    """
    with shared.threads(options["threads"]):
        study, text = _prepare(options)
        _run(options, study, text)


def _cells(options) -> list[Cell]:
    cells = [Cell(f, r) for r in options["recipes"] for f in options["formats"]]
    return cells + [Cell(Path(path).stem, "rules", path) for path in options["rules"]]


def _read(path: str | None) -> bytes:
    """Return the bytes of a file, or Python's reference topics. Raises: ValueError, an empty file.
    OSError."""
    text = read_topics() if path is None else Path(path).read_bytes()
    if not text:
        raise ValueError(f"expected a text, but {path} is empty")
    return text


def _prepare(options):
    """Return the study and its text, or raise a click error before any long work."""
    try:
        text = _read(options["text"])
        loaded = load_model(options["model"], text, options["weights"])
        if not options["formats"] and not options["rules"] and loaded.saved is None:
            raise click.UsageError("expected --format or --rules, but got none")
        loaded.tokens = loaded.tokens[: options["tokens"]]
        context = options["context"] or loaded.context
        if context is None:
            raise ValueError(
                f"expected --context, since {loaded.name} does not tell its longest input, but got "
                "none"
            )
        if loaded.longest is not None and context > loaded.longest:
            raise ValueError(
                f"expected --context of at most {loaded.longest}, the longest input of "
                f"{loaded.name}, but got {context}"
            )
        stride = options["stride"] or context
        if stride > context:
            raise ValueError(
                f"expected --stride of at most {context}, the window, but got {stride}"
            )
        loaded.model.to(options["device"])
        settings = Settings(
            context,
            stride,
            *(options[name] for name in ("batch_size", "keep", "output_layer", "seed", "device")),
        )
        check_causal(loaded, context, options["device"])
        study = Study(loaded, settings, _cells(options), options["out"] and Path(options["out"]))
        study.try_out()
    except (ValueError, TypeError, OSError, RuntimeError, ImportError) as error:
        raise click.ClickException(with_notes(error)) from error
    return study, text


def _run(options, study, text):
    name = Path(options["text"]).name if options["text"] else "pydoc_data.topics of Python"

    def run(stage):
        study.stage = stage
        try:
            outcomes = study.run()
        except OSError as error:
            raise click.ClickException(str(error)) from error
        return collect(study, outcomes, name, hashlib.sha256(text).hexdigest())

    run_study(study.loaded.name, options["out"], run)

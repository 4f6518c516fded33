"""The command ``torch-dtypes solve``."""

from __future__ import annotations

import click

from ..training import checks
from ..training import options as shared
from ..training.ranks import with_notes
from ..variability.command import run_study
from . import study


@click.command(short_help="Which linear systems can a format solve, with iterative refinement?")
@click.option(
    "--matrix",
    "matrices",
    multiple=True,
    metavar="MATRIX",
    default=study.MATRICES,
    help="A test matrix, such as 'randsvd(n=100, cond=1e4)', 'hilbert(8)', wilkinson, laplacian or "
    "toeplitz, or a Matrix Market file (.mtx); repeat for several.  [default: randsvd(n=50, "
    "cond=1e1) to 1e9]",
)
@click.option(
    "--format",
    "formats",
    multiple=True,
    metavar="NAME",
    default=study.FORMATS,
    show_default=True,
    callback=checks.named_formats,
    help="Format of the factors: fp16, posit16es2, e4m11, fp16_stochastic, ...; repeat to compare.",
)
@click.option(
    "--method",
    "methods",
    type=click.Choice(study.METHODS),
    multiple=True,
    default=("lu", "gmres"),
    show_default=True,
    help="lu: substitution by the factors. gmres: GMRES with the factors as preconditioner. cg: "
    "conjugate gradients with Cholesky's factor, for positive definite matrices. Repeat to "
    "compare.",
)
@click.option(
    "--working",
    metavar="NAME",
    default="float32",
    show_default=True,
    help="Format of the system and its solution.",
)
@click.option(
    "--residual",
    metavar="NAME",
    default="twice",
    show_default=True,
    help="Format in which residuals are computed; twice: with the products' digits.",
)
@click.option(
    "--scale",
    type=click.Choice(["squeeze", "none"]),
    default="squeeze",
    show_default=True,
    help="squeeze: scale rows and columns, so that the matrix fits the format's range.",
)
@click.option(
    "--max-steps",
    type=click.IntRange(1, 10_000),
    default=study.MAX_STEPS,
    show_default=True,
    metavar="N",
    help="The most steps of refinement.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**32 - 1),
    default=0,
    show_default=True,
    help="Seed of random matrices, right sides and random rounding.",
)
@shared.threads_option
@shared.out_option(
    "Write page, table (CSV, JSON, Markdown) and heat map into DIR, and keep what is done: "
    "after an interruption the same command goes on."
)
def solve(threads, **options):
    """Solve linear systems by iterative refinement, with factors in several formats: a table and a
    heat map of which converge, in how many steps.

    Each matrix is rounded to the working format and factorised in each format. A solution has
    converged when its forward error is at most four unit roundoffs of the working format. Without
    options, random matrices have condition numbers from 1e1 to 1e9.
    """
    options["scale"] = None if options["scale"] == "none" else options["scale"]

    def run(stage):
        try:
            return study.solve(**options, progress=False, on_run=stage)
        except (ValueError, TypeError, OSError, ImportError) as error:
            raise click.ClickException(with_notes(error)) from error

    with shared.threads(threads):
        run_study("solve", options["out"], run)

"""``torch-dtypes bench``: the suites as a command."""

import importlib.util

import click

from ..training import checks
from ..training import options as common
from .own_command import bench_model, check_options, own_options
from .running import ALL, list_comparisons, run
from .suites import DEFAULT_SUITES, SUITES

_SUITES_TAKE = "suites threads dtypes rounds quick out markdown only_list".split()


@click.command(short_help="Compare speed and memory with stock PyTorch's.")
@click.option(
    "--suite",
    "suites",
    multiple=True,
    type=click.Choice([*SUITES, ALL]),
    help="Repeat for several. Default: all but networks, language, peers, backends, scaling.",
)
@click.option(
    "--threads",
    multiple=True,
    type=click.IntRange(1),
    help="CPU threads; repeat for several. Default: 1, and torch's own choice.",
)
@click.option(
    "--dtype",
    "dtypes",
    multiple=True,
    metavar="NAME",
    callback=checks.named_formats,
    help="Replaces a suite's own dtypes (not those of peers); repeat for several.",
)
@click.option(
    "--rounds", type=click.IntRange(1), help="Timings of each case. Default: chosen by the suite."
)
@click.option("--quick", is_flag=True, help="Fewer timings; rough figures.")
@click.option(
    "--out", type=click.Path(), metavar="DIR", help="Folder for bench.html, bench.json and charts."
)
@common.markdown_option(
    "Write the tables into the marked parts of a file such as docs/reference/results.md."
)
@click.option(
    "--list", "only_list", is_flag=True, help="List the comparisons and their targets; run none."
)
@own_options
def bench(**options):
    """Compare the dtypes with stock PyTorch, or other libraries, on the same work.

    Cases are timed in turn and medians compared, so every figure is a ratio within one run. With
    --model: a training step of that network in each --dtype over float32's, its peak memory, and
    its layers and operators. A function of your own may return (model, (inputs, labels)).
    """
    check_options(options)
    if options["model"]:
        bench_model(options)
        return
    options = {name: options[name] for name in _SUITES_TAKE}
    only_list = options.pop("only_list")
    # Options that are not given keep the defaults of run().
    arguments = {name: value for name, value in options.items() if value not in (None, (), False)}
    charts = (options["out"] or options["markdown"]) and {"scaling", ALL} & set(options["suites"])
    if charts and importlib.util.find_spec("matplotlib") is None:
        raise click.BadParameter(
            "the charts need matplotlib, which is not installed: pip install 'torch-dtypes[train]'",
            param_hint="--suite",
        )
    try:
        if only_list:
            click.echo(
                "\n".join(list_comparisons(options["suites"] or DEFAULT_SUITES, options["dtypes"]))
            )
        else:
            run(**arguments)
    except (ValueError, OSError, RuntimeError) as error:
        raise click.ClickException(str(error)) from error

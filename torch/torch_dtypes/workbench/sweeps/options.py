"""Options of commands that run cells."""

import click

cell_threads_option = click.option(
    "--threads", type=click.IntRange(1), default=1, show_default=True, help="CPU threads of a cell."
)
time_limit_option = click.option(
    "--time-limit",
    type=click.IntRange(1),
    metavar="SECONDS",
    help="A cell that takes longer fails.",
)
retry_option = click.option("--retry", is_flag=True, help="Run failed cells again.")

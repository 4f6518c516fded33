"""The command ``torch-dtypes show``."""

import click

from .report.provenance import command_line
from .training.checks import folder, named_formats, writing_into
from .training.options import check_width, width_option


@click.command(short_help="Describe number formats: range, precision, values.")
@click.argument("formats", nargs=-1, required=True, metavar="FORMAT...", callback=named_formats)
@click.option(
    "--values", is_flag=True, help="List the value of each code, for formats of at most 8 bits."
)
@click.option(
    "--out",
    type=click.Path(),
    metavar="DIR",
    callback=folder,
    help="Write formats.html, formats.json and the figures into DIR.",
)
@width_option
def show(formats, values, out, width):
    """Describe number formats: bits, range, precision, special values and, with --values, every
    value.

    FORMAT is the name of a dtype of this package (posit16es2, q43), of a stock dtype (bfloat16,
    float8_e4m3fn), of a format by its parameters (posit12es1, posit<12,1>, e5m5_saturate,
    fixed8_8), of blocks (nvfp4, mxfp8_e4m3), or another library's name for it (bf16, fp16,
    ocp_e4m3). acme8=acme8.txt names a format after a file, which has a value for each code.
    """
    from .cards.comparison import show as compare

    check_width(out)
    try:
        comparison = compare(*formats, values=values, width=width)
    except (TypeError, ValueError) as error:
        raise click.BadParameter(str(error), param_hint="FORMAT") from error
    comparison.print()
    if out:
        with writing_into(out):
            written = comparison.write(out, command=command_line())
        click.echo(f"\nwritten: {written[-2]}, {written[-1]} and {len(written) - 2} figures")

"""Read a sweep's options from a YAML file: keys are the names of flags, and errors tell the
line."""

from __future__ import annotations

import difflib

import click

_NOT_IN_FILES = {"config", "list_only", "help"}
# Key in the context's meta: by option, its parameter's name and the places of its values; None has
# the key's own place.
_LINES = "torch_dtypes.sweep.lines"


def read_config(ctx: click.Context, param: click.Parameter, path: str | None) -> str | None:
    """Callback of ``--config``: the file's values hold for options that the command line does not
    give."""
    if path is not None and not ctx.resilient_parsing:
        ctx.default_map = {**(ctx.default_map or {}), **_values(ctx, path)}
    return path


def place(ctx: click.Context, name: str, value: str | None = None) -> str:
    """Return ``FILE:LINE: `` of an option's value, or of the option if it lacks the value. The text
    is empty unless a file gave the option."""
    option, lines = ctx.meta.get(_LINES, {}).get(name.replace("_", "-"), (None, {}))
    if (
        option is None
        or ctx.get_parameter_source(option) is not click.core.ParameterSource.DEFAULT_MAP
    ):
        return ""
    return f"{lines.get(value) or lines[None]}: "


def _values(ctx: click.Context, path: str) -> dict[str, object]:
    try:
        import yaml
    except ModuleNotFoundError as error:
        raise click.UsageError(
            "--config needs PyYAML, which is not installed: pip install 'torch-dtypes[train]'"
        ) from error
    try:
        with open(path, encoding="utf-8") as file:
            root = yaml.compose(file, yaml.SafeLoader)
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(
            f"expected a YAML file, but could not read {path}: {error}"
        ) from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else path
        problem = str(getattr(error, "problem", None) or error).removeprefix("but ")
        raise click.UsageError(f"{where}: expected YAML, but {problem}") from error
    if not isinstance(root, yaml.MappingNode):
        raise click.UsageError(
            f"{path}: expected keys and values, such as 'format: [q43, bf16]', but got "
            f"{'nothing' if root is None else root.id}"
        )
    params = {
        p.opts[0].removeprefix("--"): p
        for p in ctx.command.params
        if isinstance(p, click.Option) and p.name not in _NOT_IN_FILES
    }
    values: dict[str, object] = {}
    for key, value in root.value:
        where = f"{path}:{key.start_mark.line + 1}"
        name = str(key.value).replace("_", "-")
        if name not in params:
            near = difflib.get_close_matches(name, params, 3)
            raise click.UsageError(
                f"{where}: expected a key out of {', '.join(params)}, but got {name}"
                + (f"; near to it: {', '.join(near)}" if near else "")
            )
        if params[name].name in values:
            raise click.UsageError(f"{where}: expected {name} once, but got it again")
        values[params[name].name] = _value(ctx, params[name], value, path, name)
        entries = value.value if isinstance(value, yaml.SequenceNode) else [value]
        lines = {
            entry.value: f"{path}:{entry.start_mark.line + 1}" for entry in reversed(entries)
        } | {None: where}
        ctx.meta.setdefault(_LINES, {})[name] = params[name].name, lines
    return values


def _value(ctx: click.Context, param: click.Option, node, path: str, name: str) -> object:
    """Return a value as the command line would give it, after the option's own checks."""
    import yaml

    if isinstance(node, yaml.SequenceNode):
        if not param.multiple:
            raise click.UsageError(
                f"{path}:{node.start_mark.line + 1}: expected one value of {name}, but got a list"
            )
        entries = node.value
    else:
        entries = [node]
    texts = []
    for entry in entries:
        where = f"{path}:{entry.start_mark.line + 1}"
        if not isinstance(entry, yaml.ScalarNode):
            raise click.UsageError(
                f"{where}: expected {name} as a word or number, but got a {entry.id}"
            )
        if entry.tag == "tag:yaml.org,2002:null":
            raise click.UsageError(f"{where}: expected a value of {name}, but got none")
        try:
            param.process_value(ctx, (entry.value,) if param.multiple else entry.value)
        except click.ClickException as error:
            raise click.UsageError(f"{where}: {name}: {error.message}") from error
        texts.append(entry.value)
    return texts if param.multiple else texts[0]

"""Matching of rules to modules: a rule's key is a type, a name, an expression or a predicate."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import nn
from torch.nn.utils.parametrize import ParametrizationList

from ..formats.arguments import nearest, with_article
from .parameters import has_weights, is_list, leave_out
from .places import PLACES, LayerRule, layer_rule
from .recipes import recipe

# Kinds of keys by rank: a name wins over a pattern, that over a predicate, that over a type.
_NAME, _PATTERN, _PREDICATE, _TYPE = range(4)


@dataclass(frozen=True)
class Key:
    """A rule's key. ``rank`` returns the precedence of a match, (0, 0) the highest, or None if the
    key does not match."""

    text: str
    rank: Callable[[nn.Module, str], tuple[int, int] | None]
    is_pattern: bool = False


@dataclass(frozen=True)
class Choice:
    """A module's rule, and its key. ``part`` is the rule of an attention's output projection, if
    that has its own."""

    rule: LayerRule
    key: str
    part: LayerRule | None = None


def read_rules(path: str | os.PathLike) -> dict:
    """Read the rules of a YAML file: a mapping of keys to None, names or mappings."""
    try:
        import yaml
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "rules from a file need PyYAML: pip install 'torch-dtypes[train]'"
        ) from error
    try:
        with open(path, encoding="utf-8") as file:
            rules = yaml.load(file, _loader(yaml))
    except OSError as error:
        expected = (
            "expected a YAML file of rules (in Python they are a dict, {nn.Linear: "
            "dict(weight=torch.q52)})"
        )
        raise type(error)(
            error.errno, f"{expected}, but got: {error.strerror}", os.fspath(path)
        ) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"expected YAML in {os.fspath(path)!r}, but got: {error}") from error
    if not isinstance(rules, dict) or not rules:
        raise ValueError(
            f"expected a mapping of rules in {os.fspath(path)!r}, as 'nn.Linear: {{weight: "
            f"q52}}', but got {rules!r}"
        )
    return rules


def _loader(yaml) -> type:
    """Return PyYAML's safe loader, changed to refuse a key that appears twice."""

    class Loader(yaml.SafeLoader):
        def construct_mapping(self, node, deep=False):
            seen = set()
            for key, _ in node.value:
                if key.tag == "tag:yaml.org,2002:merge":
                    continue
                if isinstance(key, yaml.ScalarNode):
                    key.tag = "tag:yaml.org,2002:str"  # 0 and 1.10 can be names of modules
                name = self.construct_object(key, deep=True)
                if isinstance(name, (list, dict, set)):
                    raise yaml.constructor.ConstructorError(
                        None, None, f"a key that is no name, {name!r}", key.start_mark
                    )
                if name in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key {name!r} twice", key.start_mark
                    )
                seen.add(name)
            return super().construct_mapping(node, deep)

    return Loader


def _by_type(kind: type, text: str) -> Key:
    def rank(module: nn.Module, name: str) -> tuple[int, int] | None:
        return (_TYPE, type(module).__mro__.index(kind)) if kind in type(module).__mro__ else None

    return Key(text, rank)


def _find_type(text: str) -> type:
    name = text.removeprefix("torch.").removeprefix("nn.")
    kind = getattr(nn, name, None)
    if not isinstance(kind, type) or not issubclass(kind, nn.Module):
        kinds = [k for k, v in vars(nn).items() if isinstance(v, type) and issubclass(v, nn.Module)]
        raise ValueError(
            f"expected a module type of torch.nn, but got {text!r}; {nearest(name, kinds)}"
        )
    return kind


def key_of(key: object, names: set[str]) -> Key:
    """Parse a rule's key: a module type (``nn.Linear``, or that name), a module's name, a regular
    expression over names, or a predicate.

    Raises:
        TypeError: the key is none of these.
        ValueError: a bad regular expression, or an unknown name of a type.
    """
    if isinstance(key, type):
        if not issubclass(key, nn.Module):
            raise TypeError(
                f"expected a module type, a name or a predicate as a rule's key, but got {key!r}"
            )
        return _by_type(key, key.__name__)
    if isinstance(key, str) and key in names:
        return Key(repr(key), lambda module, name: (_NAME, 0) if name == key else None)
    if isinstance(key, str) and re.fullmatch(r"(torch\.)?nn\.\w+", key):
        return _by_type(_find_type(key), key)
    if isinstance(key, (str, re.Pattern)):
        try:
            pattern = re.compile(key)
        except re.error as error:
            raise ValueError(
                "expected a module's name or a regular expression over names as a rule's key, "
                f"but got {key!r}: {error}"
            ) from error
        return Key(
            repr(pattern.pattern),
            lambda module, name: (_PATTERN, 0) if pattern.fullmatch(name) else None,
            is_pattern=True,
        )
    if callable(key) and not isinstance(key, nn.Module):
        return _by_predicate(key)
    hint = "; give its name in the model" if isinstance(key, nn.Module) else ""
    raise TypeError(
        "expected a module type, a name, a regular expression or a predicate of (module, name) "
        f"as a rule's key, but got {key!r}{hint}"
    )


def takes_two(function: object) -> bool:
    """Return whether something can be called with two arguments, True if that is not known."""
    if not callable(function):
        return False
    try:
        inspect.signature(function).bind(None, None)
    except TypeError:
        return False
    except ValueError:  # Python does not know a builtin's signature
        return True
    return True


def _by_predicate(key: Callable) -> Key:
    text = getattr(key, "__qualname__", repr(key))
    if (code := getattr(key, "__code__", None)) is not None and text.endswith("<lambda>"):
        text = f"the lambda in {os.path.basename(code.co_filename)}, line {code.co_firstlineno}"
    if not takes_two(key):
        raise TypeError(
            f"expected a predicate of (module, name) as a rule's key, but got {text}, which does "
            "not take these two arguments"
        )

    def rank(module: nn.Module, name: str) -> tuple[int, int] | None:
        of = f"{name!r}, {with_article(type(module).__name__)}"
        try:
            answer = key(module, name)
        except Exception as error:
            raise ValueError(
                f"expected True or False of {text}, but for {of}, it raised "
                f"{type(error).__name__}: {error}"
            ) from error
        if not isinstance(answer, bool):
            raise TypeError(f"expected True or False of {text}, but got {answer!r} for {of}")
        return (_PREDICATE, 0) if answer else None

    return Key(text, rank)


class Choices(dict[str, Choice]):
    """Rules by the names of modules. ``excluded`` has the modules whose rule is None, and ``left``
    those of them that are lists of parameters."""

    def __init__(self, left: list[nn.Module]) -> None:
        super().__init__()
        self.left = left
        self.excluded: set[nn.Module] = set()


def choose(model: nn.Module, rules: Mapping | str | os.PathLike) -> Choices:
    """Choose a rule for each module. Modules without a rule are missing from the result; a module
    with several names has the first.

    The order of precedence is a name, a regular expression, a predicate, the nearest class. A
    regular expression only matches modules that have parameters of their own.

    Raises:
        ValueError: a rule that matches nothing, two rules that contradict each other, or an
            unknown word in a rule.
    """
    if isinstance(rules, str) and not rules.endswith((".yaml", ".yml")):
        rules = recipe(rules, model)
    elif isinstance(rules, (str, os.PathLike)):
        rules = read_rules(rules)
    if not isinstance(rules, Mapping) or not rules:
        raise TypeError(
            f"expected rules as a dict, {{nn.Linear: dict(weight=torch.q52)}}, a recipe's name or "
            f"the path of a YAML file, but got {rules!r}"
        )
    modules: dict[int, tuple[nn.Module, list[str]]] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        # It computes a layer's weight, and that layer's rule decides how the weight is rounded.
        if isinstance(module, ParametrizationList):
            continue
        modules.setdefault(id(module), (module, []))[1].append(name)
    names = {name for _, all_names in modules.values() for name in all_names}
    parsed, left = [], []
    for key, value in rules.items():
        parsed_key = key_of(key, names)
        parsed.append((parsed_key, layer_rule(value, parsed_key.text)))
    matched: set[int] = set()  # indices, since two predicates may have one name
    chosen = Choices(left)
    with leave_out(left):  # lists come first, so that ``left`` is complete for their owners
        for module, all_names in sorted(modules.values(), key=lambda one: not is_list(one[0])):
            matches = []
            for i, (key, rule) in enumerate(parsed):
                attends = rule is not None and (rule.names_attention or rule.names_cache)
                if key.is_pattern and not (attends or has_weights(module)):
                    continue
                ranks = [rank for name in all_names if (rank := key.rank(module, name)) is not None]
                if ranks:
                    matched.add(i)
                    matches.append((min(ranks), key, rule))
            if matches:
                rule, key = _winner(matches, all_names[0])
                if rule is not None:
                    chosen[all_names[0]] = Choice(rule, key.text)
                    continue
                chosen.excluded.add(module)
                if is_list(module):
                    left.append(module)
    for i, (key, _) in enumerate(parsed):
        if i not in matched:
            raise ValueError(_explain_unmatched(key, names, model))
    return chosen


def _winner(matches: list, name: str) -> tuple[LayerRule | None, Key]:
    best = min(rank for rank, _, _ in matches)
    _, key, rule = next(m for m in matches if m[0] == best)
    for other_rank, other, other_rule in matches:
        if other_rank == best and other_rule != rule:
            raise ValueError(
                f"expected one rule for {name or 'the model'!r}, but got two of the same "
                f"precedence that contradict each other: {key.text} and {other.text}; give the "
                "module a rule by its name, or let one of them match less"
            )
    return rule, key


def _explain_unmatched(key: Key, names: set[str], model: nn.Module) -> str:
    what = f"expected every rule to match a module, but got {key.text}, which matches none"
    if (word := key.text.strip("'")) in PLACES:
        return f"{what}; use modules as keys, as in {{nn.Linear: dict({word}=...)}}"
    if key.is_pattern:
        kept = sorted(name for name, m in model.named_modules() if name and has_weights(m))
        a_type = f"; the type is 'nn.{word}'" if isinstance(getattr(nn, word, None), type) else ""
        return f"{what} that has parameters of its own; of names {nearest(word, kept)}{a_type}"
    kinds = sorted({type(m).__name__ for m in model.modules()})
    return f"{what}; of types {nearest(key.text, kinds)}"

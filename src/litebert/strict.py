"""Plain values <-> checked dataclasses: a wrong key, type or value stops with one line that names the remedy."""

import dataclasses
import difflib
import json
import types
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import asdict, fields
from functools import cache
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

T = TypeVar("T")


class UserError(Exception):
    """A mistake of the user's: one line with the value, the rule and the remedy. The command line exits with 2."""


class SharedError(UserError):
    """What the first of several processes found and says, on the others."""


class PeerError(Exception):
    """Another process of the same run is gone. The command line exits with 1."""


def check_types(config: Any) -> None:
    """What recipes are held to, notebooks are too: types and allowed values, field by field."""
    for name, hint in _hints(cast(Hashable, type(config))).items():
        object.__setattr__(config, name, _typed(hint, getattr(config, name), name))


@cache
def _hints(kind: Hashable) -> dict[str, Any]:
    return get_type_hints(kind)


def parse(kind: type[T], table: Mapping[str, Any], where: str = "") -> T:
    """A table of plain values as a checked dataclass. A kind that has `from_preset` may start from one."""
    place = f"[{where}]" if where else "the recipe"
    values: dict[str, Any] = {}
    start: Callable[[Any], Any] | None = getattr(kind, "from_preset", None)
    if start is not None and "preset" in table:
        base = start(table["preset"])
        values = {field.name: getattr(base, field.name) for field in fields(base)}
        table = {key: value for key, value in table.items() if key != "preset"}
    hints = _hints(cast(Hashable, kind))
    for key, value in table.items():
        if key not in hints:
            raise UserError(f"unknown key {key!r} in {place}{neighbour(key, hints)}")
        values[key] = _typed(hints[key], value, f"{where}.{key}" if where else key)
    required = [f.name for f in fields(kind) if f.default is f.default_factory is dataclasses.MISSING]  # type: ignore[arg-type]
    for name in required:
        if name not in values:
            raise UserError(f"{place} lacks {name!r}")
    try:
        return kind(**values)
    except UserError as problem:
        raise UserError(f"{place}: {problem}") from None


_SCALARS: dict[type, tuple[str, Callable[[Any], bool]]] = {
    bool: ("true or false", lambda v: isinstance(v, bool)),
    int: ("a whole number", lambda v: isinstance(v, int) and not isinstance(v, bool)),
    float: ("a number", lambda v: isinstance(v, int | float) and not isinstance(v, bool) and abs(v) <= 1e300),  # no nan
    str: ("a string", lambda v: isinstance(v, str)),
}


def _typed(hint: Any, value: Any, key: str) -> Any:
    """`value` if it is what `hint` says, with lists as tuples and whole numbers as floats where those are wanted."""
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        if isinstance(value, hint):
            return value
        if not isinstance(value, Mapping):
            raise UserError(f"{key} is a section, [{key}], not {value!r}")
        return parse(hint, value, key)
    origin, args = get_origin(hint), get_args(hint)
    if origin is Literal:
        if not isinstance(value, str) or value not in args:
            raise UserError(f"{key} = {value!r}{neighbour(str(value), args)}")
        return value
    if origin in (Union, types.UnionType):
        if value is None and type(None) in args:
            return None
        return _typed(next(arg for arg in args if arg is not type(None)), value, key)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise UserError(f"{key} takes a list, not {value!r}")
        return tuple(_typed(args[0], item, f"{key}[{i}]") for i, item in enumerate(value))
    if origin is dict:  # settings of something else, which holds them to its own rules
        if not isinstance(value, Mapping):
            raise UserError(f"{key} is a section, [{key}], not {value!r}")
        return dict(value)
    wanted, fits = _SCALARS[hint]
    if not fits(value):
        raise UserError(f"{key} takes {wanted}, not {_short(value)}")
    return hint(value)


def _short(value: Any) -> str:
    text = (
        repr(value) if not isinstance(value, int) or isinstance(value, bool) or abs(value) < 1 << 64 else "one so large"
    )
    return text if len(text) <= 60 else f"{text[:60]}…"


def neighbour(word: str, words: Iterable[str], these: str = "allowed") -> str:
    """The end of an error's line: what was probably meant or, failing that, all there is."""
    words = list(words)
    near = difflib.get_close_matches(word[:80], words, n=1, cutoff=0.6)
    return f"; did you mean {near[0]!r}?" if near else f"; {these}: {', '.join(words)}"


def as_toml(value: Any) -> str:
    """A plain value as JSON has it, but for the escapes: TOML knows no pairs of surrogates and no raw DEL."""
    text = json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if any("\ud800" <= letter <= "\udfff" for letter in text):  # bytes of a path, as Python keeps them
        raise UserError(f"{value!r} is not UTF-8, and a recipe is; give the file or folder another name")
    return text


def to_toml(settings: Any) -> str:
    """A recipe with every setting said: reading it gives the same recipe."""
    lines: list[str] = []

    def section(title: str, table: Mapping[str, Any]) -> None:
        lines.append(title)
        lines.extend(f"{key} = {as_toml(value)}" for key, value in table.items() if not isinstance(value, dict))
        lines.append("")

    for name, value in asdict(settings).items():
        if isinstance(value, str):
            lines.append(f"{name} = {as_toml(value)}")
        elif isinstance(value, tuple):
            for each in value:
                section(f"[[{name}]]", each)
        else:
            section(f"[{name}]", value)
            for inner, part in value.items():
                if isinstance(part, dict):
                    section(f"[{name}.{inner}]", part)
    return "\n".join(lines)

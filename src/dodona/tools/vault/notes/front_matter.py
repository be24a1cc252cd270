"""The front matter of a note: YAML between two `---` lines at its beginning.

Every value is text: a title `2024-01-01` is not a date, and a tag `yes` is not a boolean. Invalid
YAML is read line by line, because people write `title: Oaks: old ones`. Nothing here fails or takes
long: size, depth and number of values are bounded, and YAML aliases are not followed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, TypeAlias

import yaml

MAX_FRONT_MATTER_CHARS: Final = 64 * 1024  # a longer block is not front matter
MAX_NAME_CHARS: Final = 120
MAX_TAGS: Final = 100
MAX_ALIASES: Final = 30
MAX_YAML_EVENTS: Final = 5_000
MAX_YAML_DEPTH: Final = 20  # libyaml is quadratic in the depth

_Fields: TypeAlias = dict[str, str | list[str]]

_LOADER: Final = getattr(yaml, "CBaseLoader", yaml.BaseLoader)

# Simple YAML, for which parsing by line gives the same result in a tenth of the time.
_PLAIN_SCALAR: Final = r"[^\W_][\w /.+-]*+"
_SIMPLE_YAML: Final = re.compile(
    rf"(?:[^\W\d_][\w-]*+:(?: (?:{_PLAIN_SCALAR}|\[{_PLAIN_SCALAR}(?:, {_PLAIN_SCALAR})*+\])"
    rf"|(?:\n  - {_PLAIN_SCALAR})++"
    rf"|(?:\n- {_PLAIN_SCALAR})++)?+\n)*+"
)
_PAIR: Final = re.compile(r"(\w[\w-]*):[ \t]*(.*)")
_ITEM: Final = re.compile(r"[ \t]*-[ \t]+(.*)")
_NULL_TEXTS: Final = frozenset({"", "~", "null"})


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """The parsed fields. The body starts at line index `end`; 0 without front matter."""

    end: int = 0
    title: str = ""
    tags: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()


def read_front_matter(lines: Sequence[str]) -> FrontMatter:
    """Parse the front matter of a note; its lines must be right-stripped."""
    if not lines or lines[0] != "---":
        return FrontMatter()
    end = _find_end(lines)
    if end == 0:
        return FrontMatter()  # not closed, so it is a horizontal rule
    fields = _parse_fields(lines[1 : end - 1])
    return FrontMatter(
        end,
        one_line(_first_text(fields.get("title", ""))),
        _parse_tags(fields.get("tags") or fields.get("tag") or ""),
        _parse_aliases(fields.get("aliases") or fields.get("alias") or ""),
    )


def one_line(text: str) -> str:
    """Return the text on one line, without surrounding quotes."""
    plain = " ".join(text.split())
    if len(plain) > 1 and plain[0] == plain[-1] and plain[0] in "'\"":
        plain = plain[1:-1]
    return plain.strip()[:MAX_NAME_CHARS]


def _find_end(lines: Sequence[str]) -> int:
    size = 0
    for at in range(1, len(lines)):
        line = lines[at]
        if line in {"---", "..."}:
            return at + 1
        size += len(line) + 1
        if size > MAX_FRONT_MATTER_CHARS:
            break
    return 0


def _parse_fields(lines: Sequence[str]) -> _Fields:
    """Return the fields by key, in lower case."""
    text = "\n".join(lines) + "\n"
    by_line = _parse_by_line(lines)
    if _SIMPLE_YAML.fullmatch(text):
        return by_line
    try:
        fields = dict(_pairs(_events(text)))
    except (yaml.YAMLError, _UnsupportedYaml):
        return by_line
    for key in ("tags", "tag"):
        # `tags: #a #b` is a comment in YAML, but meant as tags.
        if isinstance(fields.get(key), str) and key in by_line:
            fields[key] = by_line[key]
    return fields


class _UnsupportedYaml(Exception):
    """YAML that is too large, too deep or uses aliases."""


def _events(text: str) -> Iterable[yaml.Event]:
    parse: Callable[..., Iterable[yaml.Event]] = yaml.parse  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return parse(text, Loader=_LOADER)


def _pairs(events: Iterable[yaml.Event]) -> Iterator[tuple[str, str | list[str]]]:
    """Yield the keys of the outer mapping with their text or list of texts."""
    depth, key, texts = 0, None, list[str]()
    for event in _limit_events(events):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth == 1 and not isinstance(event, yaml.MappingStartEvent):
                raise _UnsupportedYaml
            if depth > MAX_YAML_DEPTH:
                raise _UnsupportedYaml
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
            if depth == 1 and key is not None:
                yield key, texts
                key = None
        elif isinstance(event, yaml.ScalarEvent):
            if depth == 2 and key is not None:
                texts.append(event.value)
            elif depth == 1 and key is None:
                key, texts = event.value.lower(), []
            elif depth == 1 and key is not None:
                yield key, event.value
                key = None


def _limit_events(events: Iterable[yaml.Event]) -> Iterator[yaml.Event]:
    for event in islice(events, MAX_YAML_EVENTS):
        if isinstance(event, yaml.AliasEvent):
            raise _UnsupportedYaml
        yield event
        if isinstance(event, yaml.DocumentEndEvent):
            return
    raise _UnsupportedYaml


def _parse_by_line(lines: Sequence[str]) -> _Fields:
    """Parse `key: value`, `key: [a, b]`, and `- item` below a key."""
    fields: _Fields = {}
    key = ""
    for line in lines:
        if match := _PAIR.match(line):
            key = match[1].lower()
            fields[key] = _parse_value(match[2])
        elif key and (item := _ITEM.match(line)):
            value = fields[key]
            if isinstance(value, str):
                value = fields[key] = [value] if value else []
            value.append(item[1])
    return fields


def _parse_value(text: str) -> str | list[str]:
    bare = text.strip()
    if bare.startswith("[") and bare.endswith("]") and not bare.startswith("[["):
        return [item.strip() for item in bare[1:-1].split(",")]
    return bare


def _first_text(value: str | list[str]) -> str:
    text = value if isinstance(value, str) else next(iter(value), "")
    return "" if text.strip() in _NULL_TEXTS else text


def _parse_tags(value: str | list[str]) -> tuple[str, ...]:
    """Parse tags; a text contains several, separated by commas or else by spaces."""
    if isinstance(value, str):
        value = value.split(",") if "," in value else value.split()
    return _unique_names((one_line(tag).lstrip("#") for tag in value), limit=MAX_TAGS)


def _parse_aliases(value: str | list[str]) -> tuple[str, ...]:
    texts = value.split(",") if isinstance(value, str) else value
    return _unique_names(map(one_line, texts), limit=MAX_ALIASES)


def _unique_names(names: Iterable[str], *, limit: int) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for name in names if name not in _NULL_TEXTS))[:limit]

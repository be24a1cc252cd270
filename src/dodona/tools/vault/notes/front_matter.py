"""The front matter of a note: YAML between two lines of `---` at its beginning.

Every value is text: a title `2024-01-01` is no date, and a tag `yes` no truth. What is no YAML is
read line by line as well as can be, for people write `title: Oaks: old ones`. Nothing here fails,
and nothing takes long: the size, the depth and the number of values are bounded, and a value that
refers to another is not followed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, TypeAlias

import yaml

MAX_FRONT_MATTER_CHARS: Final = (
    64 * 1024
)  # in characters; what does not end before is no front matter
MAX_NAME_CHARS: Final = 120
MAX_TAGS: Final = 100
MAX_ALIASES: Final = 30
MAX_YAML_EVENTS: Final = 5_000
MAX_YAML_DEPTH: Final = 20  # libyaml takes time by the square of the depth

_Fields: TypeAlias = dict[str, str | list[str]]

_LOADER: Final = getattr(yaml, "CBaseLoader", yaml.BaseLoader)

# Plain words, for which the reading by lines says what YAML says, at a tenth of its price.
_PLAIN_SCALAR: Final = r"[^\W_][\w /.+-]*+"
_SIMPLE_YAML: Final = re.compile(
    rf"(?:[^\W\d_][\w-]*+:(?: (?:{_PLAIN_SCALAR}|\[{_PLAIN_SCALAR}(?:, {_PLAIN_SCALAR})*+\])|(?:\n  - {_PLAIN_SCALAR})++"
    rf"|(?:\n- {_PLAIN_SCALAR})++)?+\n)*+"
)
_PAIR: Final = re.compile(r"(\w[\w-]*):[ \t]*(.*)")
_ITEM: Final = re.compile(r"[ \t]*-[ \t]+(.*)")
_NULL_TEXTS: Final = frozenset({"", "~", "null"})


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """What is understood of it. The body begins at the index `end` of the lines; 0 without any."""

    end: int = 0
    title: str = ""
    tags: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()


def read_front_matter(lines: Sequence[str]) -> FrontMatter:
    """The front matter of a note whose lines have nothing blank at their ends."""
    if not lines or lines[0] != "---":
        return FrontMatter()
    end = _find_end(lines)
    if end == 0:
        return FrontMatter()  # it never ends, so it is a rule and no front matter
    said = _parse_fields(lines[1 : end - 1])
    return FrontMatter(
        end,
        one_line(_first_text(said.get("title", ""))),
        _parse_tags(said.get("tags") or said.get("tag") or ""),
        _parse_aliases(said.get("aliases") or said.get("alias") or ""),
    )


def one_line(text: str) -> str:
    """Plain words: no quotes around them, no line ends within."""
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
    """By key, in small letters."""
    text = "\n".join(lines) + "\n"
    by_line = _parse_by_line(lines)
    if _SIMPLE_YAML.fullmatch(text):
        return by_line
    try:
        said = dict(_pairs(_events(text)))
    except (yaml.YAMLError, _UnsupportedYaml):
        return by_line
    for key in ("tags", "tag"):
        # `tags: #a #b` is a comment for YAML, and still meant.
        if isinstance(said.get(key), str) and key in by_line:
            said[key] = by_line[key]
    return said


class _UnsupportedYaml(Exception):
    """YAML that is not worth to be understood."""


def _events(text: str) -> Iterable[yaml.Event]:
    parse: Callable[..., Iterable[yaml.Event]] = yaml.parse  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return parse(text, Loader=_LOADER)


def _pairs(events: Iterable[yaml.Event]) -> Iterator[tuple[str, str | list[str]]]:
    """The keys of the outer mapping with their text, or with the texts of their list."""
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
    """`key: value`, `key: [a, b]`, and `- item` below a key."""
    said: _Fields = {}
    key = ""
    for line in lines:
        if match := _PAIR.match(line):
            key = match[1].lower()
            said[key] = _parse_value(match[2])
        elif key and (item := _ITEM.match(line)):
            there = said[key]
            if isinstance(there, str):
                there = said[key] = [there] if there else []
            there.append(item[1])
    return said


def _parse_value(text: str) -> str | list[str]:
    bare = text.strip()
    if bare.startswith("[") and bare.endswith("]") and not bare.startswith("[["):
        return [item.strip() for item in bare[1:-1].split(",")]
    return bare


def _first_text(value: str | list[str]) -> str:
    text = value if isinstance(value, str) else next(iter(value), "")
    return "" if text.strip() in _NULL_TEXTS else text


def _parse_tags(value: str | list[str]) -> tuple[str, ...]:
    """A text holds several, parted by commas or else by blanks."""
    if isinstance(value, str):
        value = value.split(",") if "," in value else value.split()
    return _unique_names((one_line(tag).lstrip("#") for tag in value), limit=MAX_TAGS)


def _parse_aliases(value: str | list[str]) -> tuple[str, ...]:
    texts = value.split(",") if isinstance(value, str) else value
    return _unique_names(map(one_line, texts), limit=MAX_ALIASES)


def _unique_names(names: Iterable[str], *, limit: int) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for name in names if name not in _NULL_TEXTS))[:limit]

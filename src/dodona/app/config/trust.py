"""Finds what a config file does that needs the user's trust."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from dodona.app.config import shape
from dodona.app.config.origins import SettingOrigins
from dodona.app.config.trust_marks import FREE, UNMARKED, TrustKind, holds_text, trust_mark
from dodona.app.config.trust_marks import TrustMark as Mark
from dodona.core.errors import ConfigError, UntrustedConfig
from dodona.documents import Document, KeyPath, is_table


@dataclass(frozen=True, slots=True)
class TrustRequest:
    """A value of a file that needs trust, and what the file could do with it."""

    path: KeyPath
    value: Any
    action: str


def requests_of_file(document: Document) -> list[TrustRequest]:
    """Return what the file does that needs trust, whatever the environment overrides."""
    return list(trust_requests(document.table, SettingOrigins(document.file, document.lines)))


def trust_requests(table: Mapping[str, Any], origins: SettingOrigins) -> Iterator[TrustRequest]:
    """Yield the values that are from the file and need trust. Variables are the user's own."""
    for path, value, mark, section in _marked_values((), table, None):
        if mark.kind is TrustKind.NONE or path in origins.variables:
            continue
        if _needs_trust(path, value, mark.kind, section, origins):
            yield TrustRequest(path, value, mark.action)


def untrusted_error(request: TrustRequest, origins: SettingOrigins) -> UntrustedConfig:
    """Return the error for a value in a file that the user does not trust."""
    error = origins.errors.invalid_value(
        request.path,
        f"would {request.action}, and the file is not trusted",
        got=request.value,
    )
    return UntrustedConfig(
        error.message, where=error.where, hint="Read the file, then run: dodona trust"
    )


_Marked = tuple[KeyPath, Any, Mark, Mapping[str, Any]]


def _marked_values(path: KeyPath, section: Any, inherited: Mark | None) -> Iterator[_Marked]:
    """Yield each value with its mark and section. The mark of a section is for all below it."""
    if isinstance(section, list):
        for index, each in enumerate(cast("list[Any]", section)):
            yield from _marked_values((*path, index), each, inherited)
        return
    for name, value in section.items() if is_table(section) else ():
        below: KeyPath = (*path, name)
        mark = inherited or _mark_at(_without_indexes(below))
        if is_table(value) or _has_tables(value):
            yield from _marked_values(below, value, mark)
        else:
            yield below, value, mark or _default_mark(_without_indexes(below)), section


def _has_tables(value: Any) -> bool:
    return isinstance(value, list) and any(map(is_table, cast("list[Any]", value)))


def _without_indexes(path: KeyPath) -> KeyPath:
    """Return the path with 0 for each index: a list can have 100,000 entries of one type."""
    return tuple(0 if isinstance(part, int) else part for part in path)


@lru_cache(4096)
def _mark_at(path: KeyPath) -> Mark | None:
    field = shape.fields(path[:-1]).get(str(path[-1]))
    return trust_mark(field) if field else None


@lru_cache(4096)
def _default_mark(path: KeyPath) -> Mark:
    return UNMARKED if holds_text(shape.at(path)) else FREE


def _needs_trust(
    path: KeyPath,
    value: Any,
    kind: TrustKind,
    section: Mapping[str, Any],
    origins: SettingOrigins,
) -> bool:
    match kind:
        case TrustKind.MODEL:
            return section.get("provider") == "scripted" and _leads_out(value, path, origins)
        case TrustKind.PROVIDER:
            return (*path[:-1], "api_key") in origins.variables
        case TrustKind.OUTSIDE_PATH:
            return _leads_out(value, path, origins)
        case _:
            field = shape.fields(path[:-1]).get(str(path[-1]))
            return field is None or value != field.default


def _leads_out(value: Any, path: KeyPath, origins: SettingOrigins) -> bool:
    """Whether a path, or one in a list, leads out of the folder of the file, links resolved."""
    if isinstance(value, list):
        return any(_leads_out(each, path, origins) for each in cast("list[Any]", value))
    if not isinstance(value, str):
        return False  # not a path, which validation reports
    folder = (origins.file or Path()).parent
    try:
        return not origins.resolve(value, path).resolve().is_relative_to(folder.resolve())
    except (ConfigError, OSError, RuntimeError, ValueError):
        return True  # it cannot be resolved: no such user, a loop of links

"""Generates config.md from the settings models."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Literal, get_args, get_origin

from annotated_types import Ge, Gt, Le
from pydantic.fields import FieldInfo

from dodona.app.config import shape
from dodona.app.config.config import MAX_CONFIG_BYTES
from dodona.app.config.settings import Settings
from dodona.documents import MAX_DEPTH, Section
from generating.writing import page, prose, table


def config_page() -> str:
    """Return the text of config.md."""
    return page(
        "# Configuration",
        prose("""Dodona reads one TOML file, the first of: the file given by `--config`, the file
            in `DODONA_CONFIG`, `./dodona.toml`, and `config.toml` in the Dodona folder. The Dodona
            folder is `~/.dodona`, or `DODONA_HOME`. Without a file, all settings have their
            defaults. `dodona config set` edits the file in place, and `dodona config schema` prints
            its JSON Schema for editors."""),
        prose("""An environment variable `DODONA_SECTION__KEY` overrides the file:
            `DODONA_STORE__DURABILITY`, `DODONA_AGENT__FALLBACK__MODEL`. In a name that you chose,
            such as in `DODONA_AGENTS__NIGHT_SHIFT__MODEL`, `_` replaces every character that a
            variable name cannot contain. Lists are comma-separated."""),
        prose("""Paths are relative to the folder of the config file, or in a variable to the
            current folder. `~` is your home folder. `./dodona.toml` needs `dodona trust` for some
            settings. [How to configure
            Dodona](../how-to/configure.md) has examples."""),
        *_sections(),
        "## Limits",
        table(
            ("limit", "maximum"),
            [
                ("file size", f"{MAX_CONFIG_BYTES:,} bytes"),
                ("nesting of sections", f"{MAX_DEPTH} levels"),
            ],
        ),
    )


def _sections() -> Iterator[str]:
    """Yield a table for each section. A section with the keys of an earlier one links to it."""
    titles: dict[type[Section], str] = {}
    pending = [(name, field) for name, field in Settings.model_fields.items()]
    while pending:
        name, field = pending.pop(0)
        entry, element = shape.entry_type(field.annotation), shape.element_type(field.annotation)
        title = f"{name}.NAME" if entry else name
        section = shape.section_type(entry or element or field.annotation)
        if section is None:
            continue
        if section in titles:
            first = titles[section]
            anchor = first.replace(".", "").lower()
            description = field.description or docstring_of(section)
            text = f"{description} The same settings as [{first}](#{anchor})."
        else:
            titles[section] = title
            fields = section.model_fields.items()
            pending[:0] = [(f"{title}.{key}", inner) for key, inner in fields]
            prefix = f"Written as `[[{name}]]`, once per entry. " if element else ""
            text = f"{prefix}{docstring_of(section)}\n\n{_keys(section)}"
        yield f"## {title}\n\n{text.strip()}"


def docstring_of(section: type[Section]) -> str:
    """Return the docstring of a section as paragraphs."""
    return "\n\n".join(prose(part) for part in (section.__doc__ or "").split("\n\n"))


def _keys(section: type[Section]) -> str:
    rows = [
        (f"`{name}`", _type(field), _default(field), field.description or "")
        for name, field in section.model_fields.items()
        if not shape.section_type(field.annotation) and not _is_map_of_sections(field)
    ]
    return table(("key", "type", "default", ""), rows) if rows else ""


def _is_map_of_sections(field: FieldInfo) -> bool:
    return shape.section_type(shape.entry_type(field.annotation)) is not None


def _type(field: FieldInfo) -> str:
    hint = shape.unwrap_annotation(field.annotation)
    if get_origin(hint) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(hint))
    signs = {Gt: ">", Ge: "≥", Le: "≤"}
    limits = [
        f"{signs[type(limit)]} {getattr(limit, type(limit).__name__.lower()):,}"
        for limit in field.metadata
        if type(limit) in signs
    ]
    if get_origin(hint) is tuple:
        return "list of strings"
    if shape.entry_type(hint):
        return "strings by name"
    word = {str: "string", int: "integer", float: "number", bool: "`true` or `false`"}[hint]
    return " ".join([word, " and ".join(limits)]).strip()


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    return "" if field.default is None else f"`{json.dumps(field.default)}`"

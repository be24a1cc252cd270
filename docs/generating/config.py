"""config.md, of what can be set in the config file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Literal, get_args, get_origin

from annotated_types import Ge, Gt, Le
from pydantic.fields import FieldInfo

from dodona.app.config import shape as known
from dodona.app.config.config import MAX_CONFIG_BYTES
from dodona.app.config.settings import Settings
from dodona.documents import MAX_DEPTH, Section
from generating.writing import page, prose, table


def config_page() -> str:
    return page(
        "# Settings",
        prose("""One TOML file: the one that `--config` names, else the one that `DODONA_CONFIG`
            names, else `./dodona.toml`, else `config.toml` in Dodona's folder. That folder is
            `~/.dodona`, or what `DODONA_HOME` names. Without a file, every setting has its
            default. `dodona config set` changes the file in place, and `dodona config schema`
            prints its JSON Schema for editors."""),
        prose("""A variable `DODONA_SECTION__KEY` comes before the file: `DODONA_STORE__DURABILITY`,
            `DODONA_AGENT__FALLBACK__MODEL`. For a name of your own, as in
            `DODONA_AGENTS__NIGHT_SHIFT__MODEL`, `_` stands for whatever a variable cannot
            hold. Of a list, the parts are between commas."""),
        prose("""A path is relative to the folder of the file that says it; in a variable, to the
            current folder. `~` is your own folder. [How to configure
            Dodona](../how-to/configure.md) has examples."""),
        *_sections(),
        "## Limits",
        table(
            ("limit", "at most"),
            [
                ("the file", f"{MAX_CONFIG_BYTES:,} bytes"),
                ("sections in each other", f"{MAX_DEPTH} deep"),
            ],
        ),
    )


def _sections() -> Iterator[str]:
    """A table for every section; one whose settings were told before refers to them."""
    told: dict[type[Section], str] = {}
    pending = [(name, field) for name, field in Settings.model_fields.items()]
    while pending:
        name, field = pending.pop(0)
        entry, element = known.entry_type(field.annotation), known.element_type(field.annotation)
        title = f"{name}.NAME" if entry else name
        section = known.section_type(entry or element or field.annotation)
        if section is None:
            continue
        if section in told:
            before = told[section]
            anchor = before.replace(".", "").lower()
            text = f"{field.description} The same settings as [{before}](#{anchor})."
        else:
            told[section] = title
            below = section.model_fields.items()
            pending[:0] = [(f"{title}.{key}", inner) for key, inner in below]
            several = f"Written `[[{name}]]`, once for each. " if element else ""
            text = f"{several}{docstring_of(section)}\n\n{_keys(section)}"
        yield f"## {title}\n\n{text}"


def docstring_of(section: type[Section]) -> str:
    return "\n\n".join(prose(part) for part in (section.__doc__ or "").split("\n\n"))


def _keys(section: type[Section]) -> str:
    return table(
        ("key", "takes", "default", ""),
        [
            (f"`{name}`", _takes_value(field), _default(field), field.description or "")
            for name, field in section.model_fields.items()
            if not known.section_type(field.annotation) and not _is_named(field)
        ],
    )


def _is_named(field: FieldInfo) -> bool:
    """Has it sections of the user's own, and one for itself on the page?"""
    return known.section_type(known.entry_type(field.annotation)) is not None


def _takes_value(field: FieldInfo) -> str:
    hint = known.unwrap_annotation(field.annotation)
    if get_origin(hint) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(hint))
    signs = {Gt: ">", Ge: "≥", Le: "≤"}
    limits = [
        f"{signs[type(limit)]} {getattr(limit, type(limit).__name__.lower()):g}"
        for limit in field.metadata
        if type(limit) in signs
    ]
    if get_origin(hint) is tuple:
        return "a list of texts"
    if known.entry_type(hint):
        return "texts by name"
    words = {str: "text", int: "a whole number", float: "a number", bool: "`true` or `false`"}[hint]
    return " ".join([words, " and ".join(limits)]).strip()


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "must be set"
    return "" if field.default is None else f"`{json.dumps(field.default)}`"

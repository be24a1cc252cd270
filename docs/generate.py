"""Writes the reference pages that the registries know better than anyone.

    python docs/generate.py

The pages are committed; a test fails when one of them is out of date.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from textwrap import fill
from types import ModuleType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

import sqlalchemy as sa
from annotated_types import Ge, Gt, Le
from cyclopts import App
from pydantic.fields import FieldInfo
from sqlalchemy.dialects import postgresql, sqlite

from dodona.app import config, toml_lines
from dodona.app import schema as known
from dodona.app.settings import Section, Settings
from dodona.cli.main import app
from dodona.core import errors
from dodona.core.errors import DodonaError, as_json, as_text
from dodona.models import PROVIDERS, Provider, catalogue, fallback, sse, wire
from dodona.models.anthropic import LEAST_BUDGET, MAX_TOKENS, MAX_TOKENS_THINKING
from dodona.models.known import DEFAULT_MODEL_CONTEXT_SIZES
from dodona.models.providers import THINKING
from dodona.store import schema as tables
from dodona.store.migrate import NEWEST as SCHEMA
from dodona.trees import blackboard, expressions, load, loader, nodes, program, schema
from dodona.trees.node import NodeKind, Option
from dodona.trees.nodes import KINDS, leaf

HERE = Path(__file__).resolve().parent / "reference"
C = TypeVar("C", bound=sa.Constraint)
NOTE = "<!-- Written by docs/generate.py: change that, or what it reads, and run `make docs`. -->"


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def page(*parts: str) -> str:
    return "\n\n".join([parts[0], NOTE, *(part.strip("\n") for part in parts[1:])]) + "\n"


def prose(text: str) -> str:
    """A paragraph, or an item of a list, as lines of a page."""
    indent = "  " if text.startswith("- ") else ""
    words = " ".join(text.split())
    return fill(words, 95, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def docstring(module: ModuleType) -> str:
    text = module.__doc__ or ""
    return text.replace("leaf.py", "[Leaves](#leaves)").strip()


# -- nodes -----------------------------------------------------------------------------------


def modules() -> Iterator[ModuleType]:
    """The modules of nodes."""
    for found in pkgutil.iter_modules(nodes.__path__):
        yield importlib.import_module(f"{nodes.__name__}.{found.name}")


def homes() -> dict[str, list[NodeKind]]:
    """The kinds of the language by the module that defines them, in the order of KINDS."""
    owners = {
        id(value): module.__name__
        for module in modules()
        for value in vars(module).values()
        if isinstance(value, NodeKind)
    }
    found: dict[str, list[NodeKind]] = {}
    for kind in KINDS:
        found.setdefault(owners[id(kind)], []).append(kind)
    return found


def nodes_page() -> str:
    sections = [_node_section(home, kinds) for home, kinds in homes().items()]
    return page(
        "# Nodes",
        prose("""Every node of the language. A node is written `(KIND NAME :option VALUE CHILD …)`;
            the name is optional and is what traces, paths and journal keys call it. A number may
            be a literal or an [expression](expressions.md)."""),
        prose("""A tree is written `(tree "name" :description "text" :blackboard-schema {…} NODE
            :finally NODE)`. `:finally` runs whatever ended the tree: success, failure, a timeout
            or a cancellation."""),
        table(
            ("node", "takes", "what it does"),
            [(f"`{kind.name}`", _takes(kind), kind.summary) for kind in KINDS],
        ),
        *sections,
        "## Leaves",
        _body(docstring(leaf)),
        "[How to write leaves](../how-to/write-leaves.md) tells how to register them.",
        "## Limits",
        table(
            ("limit", "at most"),
            [
                ("forms in each other", f"{loader.MAX_FORM_DEPTH:,} deep"),
                ("nodes in each other, subtrees included", f"{program.MAX_DEPTH:,} deep"),
                ("nodes of a tree, subtrees included", f"{program.MAX_PLACES:,}"),
                ("keys of one scope of the blackboard", f"{blackboard.MAX_KEYS:,}"),
                ("length of one value", f"{blackboard.MAX_LENGTH:,}"),
            ],
        ),
    )


def _node_section(home: str, kinds: list[NodeKind]) -> str:
    text = docstring(importlib.import_module(home))
    syntax, _, first = text.partition("\n")[0].partition("): ")
    title = ", ".join(kind.name for kind in kinds)
    parts = [f"## {title}", f"```text\n{_forms(syntax + ')')}\n```"]
    rest = "\n".join(text.splitlines()[1:]).strip()
    parts += [_sentence(first)] if not rest else [_sentence(first), rest]
    options = [row for kind in kinds for row in _options(kind)]
    if options:
        parts.append(table(("option", "takes", ""), options))
    return "\n\n".join(parts)


def _forms(syntax: str) -> str:
    """`(a), (b)` on lines of their own."""
    return syntax.replace("), (", ")\n(")


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _body(text: str) -> str:
    first, _, rest = text.partition(": ")
    return rest[:1].upper() + rest[1:] if first == "Leaves" else text


def _takes(kind: NodeKind) -> str:
    words = (
        [] if kind.test.most == 0 else ["an expression" if kind.test.least else "or an expression"]
    )
    if kind.binds == "leaf":
        words.insert(0, "a leaf")
    elif kind.binds == "tree":
        words.append("one child, or the name of a tree")
    elif kind.arity.most != 0:
        words.append("a test and 1 to 2 children" if kind.asks else str(kind.arity))
    if not words:
        words.append("keys and values" if kind.open_options else "nothing")
    joined = " ".join(words) if "or an expression" in words else " and ".join(words)
    return f"the name of a decorator and {joined}" if kind.binds == "decoration" else joined


def _options(kind: NodeKind) -> Iterator[tuple[str, str, str]]:
    for name, option in kind.options.items():
        yield f"`:{name}`", _option(option), "required" if option.required else ""
    if kind.open_options:
        what = "a key to write" if kind.binds is None else "an argument of the leaf"
        yield "`:…`", "a value", what


def _option(option: Option) -> str:
    if option.takes == "choice":
        return ", ".join(f"`:{choice}`" for choice in option.choices) + "; the first if left out"
    return str(option)


# -- expressions -----------------------------------------------------------------------------

MEANINGS: Mapping[str, tuple[str, str]] = {
    "=": ("`(= a b)`", "Are they equal? `1` equals `1.0`; `1` does not equal `true`."),
    "!=": ("`(!= a b)`", "Are they different?"),
    "<": ("`(< 1 2 3)`", "Is each less than the next? Numbers with numbers, strings with strings."),
    "<=": ("`(<= a b …)`", "Likewise, or equal."),
    ">": ("`(> a b …)`", "Is each greater than the next?"),
    ">=": ("`(>= a b …)`", "Likewise, or equal."),
    "and": ("`(and a b …)`", "The first that is false, else the last. The rest is not evaluated."),
    "or": ("`(or a b …)`", "The first that is true, else the last. The rest is not evaluated."),
    "not": ("`(not a)`", "True when it is false."),
    "+": ("`(+ 1 2 3)`", "The sum."),
    "-": ("`(- 5 2)` `(- 5)`", "The difference; of one number, its negative."),
    "*": ("`(* 2 3 …)`", "The product."),
    "/": ("`(/ 1 2)`", "The quotient, always a float. Dividing by zero is an error."),
    "mod": ("`(mod 7 3)`", "The remainder, with the sign of the divisor."),
    "min": ("`(min a b …)`", "The smallest number."),
    "max": ("`(max a b …)`", "The greatest number."),
    "length": ("`(length a)`", "Of a string, list or map; of nil, 0."),
    "in": ("`(in item list)`", "Is it in the list, among the map's keys, or part of the string?"),
    "get": (
        "`(get map :key default)`",
        "What is there; else the default, else nil. Lists by index.",
    ),
}

TYPE_MEANINGS: Mapping[str, str] = {
    "any": "anything",
    "string": "a string",
    "integer": "a whole number",
    "number": "a whole number or a float",
    "boolean": "`true` or `false`",
    "list": "a list",
    "map": "a map",
}


def expressions_page() -> str:
    intro = (expressions.__doc__ or "").partition("\n\n")[2].strip()
    return page(
        "# Expressions and the blackboard",
        prose(f"""Expressions are values of options, tests of conditions and guards, and arguments
            of leaves. They read the blackboard and change nothing. {intro}"""),
        "## Values",
        table(
            ("written", "value"),
            [
                ('`42` `0.5` `"text"` `true` `false` `nil`', "itself"),
                ("`:word`", 'the string `"word"`'),
                ('`[1 "two"]` `{:key 1}`', "a list, a map; their values are expressions"),
                ("`'form`", "the form as data: names are strings"),
                ("`(blackboard :key)`", "what is on the blackboard; an error when nothing is"),
                ("`(OPERATOR a …)`", "see below"),
            ],
        ),
        "## Operators",
        table(
            ("operator", "arguments", "written", "value"),
            [
                (f"`{name}`", _count(least, most), *MEANINGS[name])
                for name, (least, most, _) in expressions.OPERATORS.items()
            ],
        ),
        prose("""A wrong value, such as `(< 1 "two")`, fails the node with an `ExpressionError`.
            When all parts are literals it is an error of loading."""),
        "## Blackboard schema",
        "```lisp\n" + _schema_example() + "\n```",
        prose("""A key is written with its default, or with a map of `:type`, `:default`, `:scope`
            and `:doc`. A default gives the key its type; `nil` means any. Every key takes
            `nil`."""),
        table(
            ("type", "takes"),
            [(f"`:{name}`", TYPE_MEANINGS[name]) for name in schema.TYPES],
        ),
        table(
            ("scope", "lives"),
            [
                (
                    "`:tree`",
                    "as long as the run; shared with the trees it uses. The default of a tree",
                ),
                (
                    "`:subtree`",
                    "from start to end of the subtree. The default of an inline subtree",
                ),
                (
                    "`:global`",
                    "from run to run, where the host keeps it: read first, written last",
                ),
            ],
        ),
        prose("""Keys that nobody declares can be written as well; reading one that has never been
            written is an error. `dodona tree check` warns about undeclared keys."""),
        "## Reserved keys",
        prose("""Keys that start with `_` are written by the runtime. Reading one that it has not
            written is `nil`."""),
        table(
            ("key", "holds"),
            [(f"`:{name}`", meaning) for name, meaning in schema.RESERVED.items()],
        ),
    )


def _count(least: int, most: int | None) -> str:
    if most is None:
        return f"{least} or more"
    return str(least) if least == most else f"{least} to {most}"


def _schema_example() -> str:
    text = (schema.__doc__ or "").partition("\n\n")[2].strip().splitlines()
    written = [line.partition("  ")[::2] for line in text]
    width = max(len(form) for form, _ in written)
    return "\n".join(f"{form.ljust(width)}  ; {meaning.strip()}" for form, meaning in written)


# -- errors ----------------------------------------------------------------------------------


def classes(base: type[DodonaError] = DodonaError) -> Iterator[type[DodonaError]]:
    """The hierarchy, parents first, in the order of the file."""
    yield base
    for below in base.__subclasses__():
        if below.__module__ == errors.__name__:
            yield from classes(below)


def errors_page() -> str:
    first, _, rest = (errors.__doc__ or "").strip().partition("\n\n")
    tree, _, last = rest.rpartition("\n\n")
    example = _example()
    return page(
        "# Errors",
        first,
        "```text\n" + "\n".join(line.removeprefix("    ") for line in tree.splitlines()) + "\n```",
        last,
        table(
            ("class", "code", "exit code", "HTTP status"),
            [
                (f"`{c.__name__}`", f"`{c.code}`", str(c.exit_code), str(c.http_status))
                for c in classes()
            ],
        ),
        prose("""The exit code is that of the command line. The HTTP status is for a gateway, which
            is still to come. All are in `dodona.core.errors`."""),
        "## As text",
        "Each mistake says where, what, and what to do; the place in the file is shown below it.",
        f"```text\n{as_text(example)}\n```",
        "## As JSON",
        prose("""`--json` prints one document. `where` is there when the mistake has a place, and
            `problems` when there is more than one."""),
        f"```json\n{json.dumps(as_json(example), indent=2)}\n```",
    )


def _example() -> DodonaError:
    try:
        load('(tree "inbox" (sequnce (succeed)))')
    except DodonaError as error:
        return error
    raise AssertionError("the example of a mistake has none")


# -- commands --------------------------------------------------------------------------------


def commands(name: str, command: App) -> Iterator[tuple[str, App]]:
    """Every command below this one that does something itself, in the order of names."""
    below = sorted(word for word in command if not word.startswith("-"))
    if not below:
        yield name, command
    for word in below:
        yield from commands(f"{name} {word}", command[word])


def cli_page() -> str:
    found = list(commands("dodona", app))
    return page(
        "# Commands",
        prose("""`make setup` leaves the command in `.venv/bin/dodona`. Every command has `--help`;
            `dodona --version` prints the version."""),
        table(
            ("command", "what it does"),
            [(f"[`{name}`](#{name.replace(' ', '-')})", command.help) for name, command in found],
        ),
        *(_command(name, command) for name, command in found),
        "## Exit codes",
        prose("""0 is success. 1 is a tree that does not load, a run that fails, or a test that
            fails. Other errors end with the exit code of [their class](errors.md). Ctrl-C cancels
            a run: its `:finally` still runs, and the exit code is 1."""),
        "## Files and values",
        prose("""- `--leaves` takes Python files. They are run, and register leaves and decorators.
            Each may import its neighbours."""),
        prose("""- `--set key=value` takes a literal of the language (`3`, `true`, `[1 2]`);
            anything else is a string."""),
        prose("""- `tree test` reads the named files and, beside each `NAME.lisp`,
            `NAME.test.lisp`."""),
    )


def _files(command: str) -> str:
    if not command.startswith("dodona tree "):
        return ""
    return " FILE…" if command.rsplit(maxsplit=1)[-1] in ("check", "test") else " FILE"


def _command(name: str, command: App) -> str:
    rows: list[tuple[str, str, str, str]] = []
    for argument in command.assemble_argument_collection():
        if argument.show:
            default = argument.field_info.default
            rows.append(
                (
                    f"`{argument.names[0]}`",
                    _type(argument.hint),
                    "" if default in (None, (), False, argument.field_info.empty) else str(default),
                    argument.parameter.help or "",
                )
            )
    return "\n\n".join(
        [
            f"## {name}",
            f"```text\n{name}{_files(name)} [OPTIONS]\n```",
            str(command.help),
            table(("argument", "takes", "default", ""), rows),
        ]
    )


def _type(hint: Any) -> str:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return _type(next(part for part in arguments if part is not type(None)))
    if origin is Literal:
        return ", ".join(f"`{choice}`" for choice in arguments)
    if origin is tuple:
        return f"{_type(arguments[0])}, one or more"
    return {Path: "a path", str: "text", int: "a number", float: "a number", bool: ""}[hint]


# -- settings --------------------------------------------------------------------------------


def config_page() -> str:
    return page(
        "# Settings",
        prose("""One TOML file: the one that `--config` names, else the one that `DODONA_CONFIG`
            names, else `./dodona.toml`, else `config.toml` in Dodona's folder. That folder is
            `~/.dodona`, or what `DODONA_HOME` names. Without a file, every setting has its
            default."""),
        prose("""A variable `DODONA_SECTION__KEY` comes before the file: `DODONA_STORE__DURABILITY`,
            `DODONA_AGENT__FALLBACK__MODEL`. For a name of your own, as in
            `DODONA_AGENTS__NIGHT_SHIFT__MODEL`, `_` stands for whatever a variable cannot
            hold."""),
        prose("""A path is relative to the folder of the file that says it; in a variable, to the
            current folder. `~` is your own folder. [How to configure
            Dodona](../how-to/configure.md) has examples."""),
        *_sections(),
        "## Limits",
        table(
            ("limit", "at most"),
            [
                ("the file", f"{config.MAX_BYTES:,} bytes"),
                ("sections in each other", f"{toml_lines.DEEPEST} deep"),
            ],
        ),
    )


def _sections() -> Iterator[str]:
    """A table for every section; one whose settings were told before refers to them."""
    told: dict[type[Section], str] = {}
    pending = [(name, field) for name, field in Settings.model_fields.items()]
    while pending:
        name, field = pending.pop(0)
        entry = known.entries(field.annotation)
        title = f"{name}.NAME" if entry else name
        section = known.section(entry or field.annotation)
        if section is None:
            continue
        if section in told:
            text = f"{field.description} The same settings as [{told[section]}](#{told[section]})."
        else:
            told[section] = title
            below = section.model_fields.items()
            pending[:0] = [(f"{title}.{key}", inner) for key, inner in below]
            text = f"{docstring_of(section)}\n\n{_keys(section)}"
        yield f"## {title}\n\n{text}"


def docstring_of(section: type[Section]) -> str:
    return "\n\n".join(prose(part) for part in (section.__doc__ or "").split("\n\n"))


def _keys(section: type[Section]) -> str:
    return table(
        ("key", "takes", "default", ""),
        [
            (f"`{name}`", _takes_value(field), _default(field), field.description or "")
            for name, field in section.model_fields.items()
            if not known.section(field.annotation)
        ],
    )


def _takes_value(field: FieldInfo) -> str:
    hint = known.bare(field.annotation)
    if get_origin(hint) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(hint))
    signs = {Gt: ">", Ge: "≥", Le: "≤"}
    limits = [
        f"{signs[type(limit)]} {getattr(limit, type(limit).__name__.lower()):g}"
        for limit in field.metadata
        if type(limit) in signs
    ]
    words = {str: "text", int: "a whole number", float: "a number"}[hint]
    return " ".join([words, " and ".join(limits)]).strip()


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "must be set"
    return "" if field.default is None else f"`{json.dumps(field.default)}`"


# -- the store -------------------------------------------------------------------------------

TABLES: Mapping[str, str] = {
    "projects": "What a user works on, and where its notes and code are.",
    "conversations": "Trees of runs. The head is the node that the next run follows.",
    "runs": "The nodes of conversations: a question, its answer, and who drives it.",
    "messages": "What was said in a run, in order.",
    "steps": "The journal of a run: what its steps were asked, and what they left.",
    "summaries": "Texts that stand for a run and all before it.",
    "oracle_contexts": "The conversation that a user has about a project.",
    "sessions": "The conversation that a peer has on a channel, by its key.",
    "budgets": "What may be spent in a period, what was, and what calls on their way hold.",
    "reservations": "What a call may use at most, until it is known what it did use.",
    "token_records": "The audit: one record for each call of a model.",
    "memory_entities": "Facts. One that is no longer true is superseded, not removed.",
    "threads": "Lines of thought in a project.",
    "thread_entries": "What was added to a thread.",
    "notices": "What a model or a user is to be told.",
    "plugin_state": "What plugins keep.",
    "tree_globals": "The global keys of trees.",
    "settings": "What users have set.",
    "tokens": "Tokens of access, hashed.",
}


def store_page() -> str:
    found = list(tables.metadata.tables.values())
    return page(
        "# The store's schema",
        prose(f"""The tables of the store, the same on SQLite and PostgreSQL. This is schema
            `{SCHEMA}`. [The store](../explanation/store.md) explains how they are used. They are
            for looking, not for writing: what holds between rows is seen to by Dodona."""),
        prose("""Times are seconds since 1970. Columns that end in `_json`, and `metadata`, hold
            JSON. Amounts of budgets in dollars are billionths. A column without a default must
            be given."""),
        table(("table", "holds"), [(f"[`{t.name}`](#{t.name})", TABLES[t.name]) for t in found]),
        *(_table_section(t) for t in found),
    )


def _table_section(told: sa.Table) -> str:
    head = ("column", "SQLite", "PostgreSQL", "default")
    columns = table(head, [_column(column) for column in told.columns])
    rules = "\n".join(f"- {rule}" for rule in _rules(told))
    return f"## {told.name}\n\n{TABLES[told.name]}\n\n{columns}\n\n{rules}"


def _column(column: sa.Column[Any]) -> tuple[str, ...]:
    types = (column.type.compile(dialect=d) for d in (sqlite.dialect(), postgresql.dialect()))
    return f"`{column.name}`", *types, _column_default(column)


def _column_default(column: sa.Column[Any]) -> str:
    if isinstance(column.server_default, sa.DefaultClause):
        written = column.server_default.arg
        return f"`'{written}'`" if isinstance(column.type, sa.Text) else f"`{written}`"
    if column is column.table.autoincrement_column:
        return "the next number"
    return "`NULL`" if column.nullable else ""


def _rules(told: sa.Table) -> Iterator[str]:
    yield f"Primary key: {_names(told.primary_key.columns)}."
    for unique in _sorted(told, sa.UniqueConstraint):
        yield f"Unique: {_names(unique.columns)}."
    for check in _sorted(told, sa.CheckConstraint):
        yield f"Check: `{check.sqltext}`."
    for key in _sorted(told, sa.ForeignKeyConstraint):
        yield _reference(key)
    for index in sorted(told.indexes, key=lambda index: str(index.name)):
        yield _index(index)


def _sorted(told: sa.Table, kind: type[C]) -> list[C]:
    """The constraints of a kind, by name: a table keeps them in no order."""
    found = [constraint for constraint in told.constraints if isinstance(constraint, kind)]
    return sorted(found, key=lambda constraint: str(constraint.name))


def _reference(key: sa.ForeignKeyConstraint) -> str:
    targets = ", ".join(f"`{element.target_fullname}`" for element in key.elements)
    then = {"CASCADE": "is removed with it", "SET NULL": "becomes `NULL` when that is removed"}
    action = then[key.ondelete] if key.ondelete else "keeps it from being removed"
    return f"Reference: {_names(key.columns)} to {targets}; {action}."


def _index(index: sa.Index) -> str:
    sort = "Unique index" if index.unique else "Index"
    where = index.dialect_options["sqlite"]["where"]
    condition = "" if where is None else f", where `{where}`"
    return f"{sort} `{index.name}`: {_names(index.columns)}{condition}."


def _names(columns: Iterable[sa.Column[Any]]) -> str:
    return ", ".join(f"`{column.name}`" for column in columns)


# -- models ----------------------------------------------------------------------------------


def models_page() -> str:
    return page(
        "# Models",
        prose("""[How to choose a model](../how-to/choose-a-model.md) tells which of these is
            taken, [how to call a model](../how-to/call-a-model.md) how to call one from
            Python."""),
        "## Providers",
        prose("""In this order they are looked for when no provider is set. `base_url` replaces the
            address; `openai-compatible` has none of its own. A key is the first of its variables
            that is set, else what is in `~/.dodona/credentials/PROVIDER`."""),
        table(
            ("provider", "wire", "address", "key", "default model"),
            [
                *map(_provider, PROVIDERS.values()),
                ("`extractive`", "none", "", "none needed", "`extractive`"),
                ("`scripted`", "none", "", "none needed", "a file of answers must be named"),
            ],
        ),
        prose(f"""`{THINKING}` behind the name of a model, or `thinking` in a request, adds this to
            what is sent:"""),
        table(("provider", "with thinking", "without"), [*map(_thinking, PROVIDERS.values())]),
        prose("""OpenAI's models from GPT 5.2 on take no tools while they reason: with tools they
            are told `"reasoning_effort":"none"`."""),
        "## Context sizes",
        prose(f"""A name is looked up as it stands, then without vendor, date and variant, then in
            the list of genai-prices that Dodona was installed with, then by the longest beginning
            in this table. A model that nobody knows is taken to have
            {catalogue.DEFAULT_CONTEXT_SIZE:,} tokens. An answer may have as many tokens as the
            last column says for the longest beginning of the name; where it says nothing, nobody
            does."""),
        table(
            ("model", "tokens of context", "longest answer"),
            [_size(name, size) for name, size in DEFAULT_MODEL_CONTEXT_SIZES.items()],
        ),
        "## Limits",
        "How long a provider may take is [set in the config](config.md#agenttimeouts).",
        table(
            ("limit", "at most"),
            [
                ("one answer", f"{wire.ANSWER_LIMIT:,} bytes"),
                ("one event of a stream", f"{sse.EVENT_LIMIT:,} bytes"),
                ("what Anthropic is asked for if nobody says", f"{MAX_TOKENS:,} tokens"),
                ("… with thinking", f"{MAX_TOKENS_THINKING:,} tokens"),
                ("pause before another try", f"{fallback.LONGEST_PAUSE:g} seconds"),
                ("pause at the provider's demand", f"{fallback.PATIENCE:g} seconds"),
                ("rest of a model that failed twice", f"{fallback.REST:g} seconds"),
            ],
        ),
    )


def _provider(row: Provider) -> tuple[str, ...]:
    key = " or ".join(f"`{name}`" for name in row.key_env)
    return (
        f"`{row.name}`",
        row.wire,
        f"`{row.base_url}`" if row.base_url else "must be set",
        key or "none needed",
        f"`{row.default_model}`" if row.default_model else "the server's first",
    )


def _thinking(row: Provider) -> tuple[str, ...]:
    on, off = row.thinking_on.decode(), row.thinking_off.decode()
    budget = ""
    if row.wire == "anthropic":
        on = '"thinking":{"type":"adaptive","display":"summarized"}'
        budget = f"; up to 4.5 a budget: half of `max_tokens`, at least {LEAST_BUDGET:,}"
    return f"`{row.name}`", f"`{on}`{budget}", f"`{off}`" if off else ""


def _size(name: str, size: int) -> tuple[str, ...]:
    longest = catalogue.facts(name).max_output
    return f"`{name}`", f"{size:,}", f"{longest:,}" if longest else ""


PAGES: Mapping[str, Callable[[], str]] = {
    "nodes.md": nodes_page,
    "expressions.md": expressions_page,
    "errors.md": errors_page,
    "cli.md": cli_page,
    "config.md": config_page,
    "store.md": store_page,
    "models.md": models_page,
}


def main() -> None:
    for name, make in PAGES.items():
        (HERE / name).write_text(make(), encoding="utf-8")
        sys.stdout.write(f"docs/reference/{name}\n")


if __name__ == "__main__":
    main()

"""The reference names everything there is, and is up to date."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import re
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import msgspec
import pytest
from cyclopts import App
from prometheus_client import Metric
from sqlalchemy import Table

from dodona.agent.extensions import shipped_leaves
from dodona.agent.turn_control.settings import ModelSettings
from dodona.app.bootstrap import open_runtime
from dodona.app.config import shape as schema_of_settings
from dodona.app.config.config import load_config
from dodona.app.config.settings import PROVIDER_NAMES, Settings
from dodona.app.models.credentials import Credentials
from dodona.cli.main import app
from dodona.core import chunks, events
from dodona.core import errors as core_errors
from dodona.core.domain.rules import HOOKS
from dodona.core.errors import DodonaError
from dodona.core.messages import ToolSpec
from dodona.gateway import errors as http_errors
from dodona.gateway.openapi import build_openapi
from dodona.gateway.websocket import METHODS
from dodona.gateway.websocket.events import EVENT_BY_CHUNK_TYPE
from dodona.gateway.websocket.method import RpcMethod
from dodona.models import PROVIDERS
from dodona.models.catalogue.data import DEFAULT_MODEL_CONTEXT_SIZES
from dodona.net.redactor import Redactor
from dodona.notify import BUILTIN_SUBSCRIBERS
from dodona.notify.bus import EVENTS_LOST
from dodona.notify.subscriber import SubscriberFile, read_subscriber
from dodona.rules import RuleBook
from dodona.rules.sections import RULE_FILE_MODELS
from dodona.store import StoreLocation, migrate
from dodona.store.schema import metadata
from dodona.telemetry.metrics import Metrics
from dodona.trees.language.expressions import OPERATORS
from dodona.trees.language.node import NodeKind
from dodona.trees.language.schema import RESERVED_KEYS, TYPES, Scope
from dodona.trees.nodes import KINDS
from tests.cli.running import dodona

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs" / "reference"
COMMANDS = (
    "up",
    "ask",
    "chat",
    "context branch",
    "context checkout",
    "context close",
    "context label",
    "context prune",
    "context review",
    "context show",
    "context tree",
    "index",
    "init",
    "new agent",
    "new tool",
    "new tree",
    "onboard",
    "approve",
    "rules check",
    "rules disable",
    "rules enable",
    "rules list",
    "rules set",
    "rules test",
    "route",
    "extensions check",
    "extensions list",
    "run list",
    "run show",
    "sessions clear",
    "sessions list",
    "sessions show",
    "tree check",
    "tree show",
    "tree run",
    "tree trace",
    "tree test",
    "vault backlinks",
    "vault diff",
    "vault history",
    "vault index",
    "vault list",
    "vault move",
    "vault moves",
    "vault review",
    "vault search",
    "vault show",
    "vault tags",
    "vault undo",
    "budget set",
    "budget status",
    "usage",
    "backup create",
    "backup restore",
    "backup verify",
    "token create",
    "token list",
    "token revoke",
    "trust",
    "audit",
    "config check",
    "config get",
    "config schema",
    "config set",
    "config show",
    "db check",
    "db migrate",
    "doctor",
    "status",
)


def load_generator() -> ModuleType:
    sys.path.insert(0, str(ROOT / "docs"))  # as if it were started there
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GENERATOR = load_generator()


def text_of(page: str) -> str:
    return (REFERENCE / page).read_text(encoding="utf-8")


def sections(page: str) -> dict[str, str]:
    """The text below each second-level heading."""
    parts = re.split(r"^## (.+)\n", text_of(page), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize("page", GENERATOR.PAGES)
def test_a_generated_page_is_up_to_date(page: str) -> None:
    """What is committed is what would be written now. If this fails: make docs."""
    assert text_of(page) == GENERATOR.PAGES[page]()


@pytest.mark.parametrize("name", GENERATOR.SECTIONS)
def test_a_generated_section_is_up_to_date(name: str) -> None:
    """The same for a part of a page that is written by hand."""
    page, make = GENERATOR.SECTIONS[name]
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    assert text == GENERATOR.with_section(text, name, make())


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_node_has_a_section(kind: NodeKind) -> None:
    """Each kind has a section that names its options and choices, and a line in the summary."""
    pages = sections("nodes.md")
    found = [text for title, text in pages.items() if kind.name in title.split(", ")]
    assert len(found) == 1
    assert f"({kind.name}" in found[0]
    for name, option in kind.options.items():
        assert f"| `:{name}` |" in found[0]
        assert all(f"`:{choice}`" in found[0] for choice in option.choices)
    assert kind.summary in text_of("nodes.md")


@pytest.mark.parametrize("operator", OPERATORS)
def test_every_operator_is_documented(operator: str) -> None:
    """Each operator has a line that shows it in use."""
    lines = sections("expressions.md")["Operators"].splitlines()
    (line,) = [line for line in lines if line.startswith(f"| `{operator}` |")]
    assert f"`({operator} " in line


@pytest.mark.parametrize("key", RESERVED_KEYS)
def test_every_reserved_key_is_documented(key: str) -> None:
    assert f"| `:{key}` | {RESERVED_KEYS[key]} |" in sections("expressions.md")["Reserved keys"]


@pytest.mark.parametrize("word", [*TYPES, *(scope.value for scope in Scope)])
def test_every_type_and_scope_is_documented(word: str) -> None:
    assert f"| `:{word}` |" in sections("expressions.md")["Blackboard schema"]


def hierarchy(base: type[DodonaError]) -> Iterator[type[DodonaError]]:
    yield base
    for below in base.__subclasses__():
        yield from hierarchy(below)


def test_every_error_is_documented() -> None:
    """Each class is in a table with its code and status; those of all packages are drawn too."""
    page = text_of("errors.md")
    drawn = page.partition("```text\n")[2].partition("```")[0]
    for error in hierarchy(DodonaError):
        if error.__module__ == core_errors.__name__:
            row = f"| `{error.__name__}` | `{error.code}` | {error.exit_code} |"
            assert f"{row} {error.http_status} |" in page
            assert error.__name__ in drawn
        elif error.__module__ == http_errors.__name__:
            row = f"| `{error.__name__}` | `{error.code}` | {error.http_status} |"
            assert row in sections("errors.md")["HTTP errors"]
        elif error.__module__.startswith("dodona."):
            assert f"| `{error.code}` |" in page


CODE = re.compile(r'(?:"code": |ErrorBody\(code=)"(\w+)"')


def test_every_code_of_a_run_is_documented() -> None:
    """Also those that no class has."""
    page = text_of("errors.md")
    codes = [code for text in source("agent") for code in CODE.findall(text)]
    assert len(set(codes)) >= 3
    assert [code for code in codes if f"| `{code}` |" not in page] == []


def source(package: str) -> Iterator[str]:
    for file in sorted((ROOT / "src" / "dodona" / package).rglob("*.py")):
        yield file.read_text(encoding="utf-8")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_flag_is_documented(command: str) -> None:
    """Whatever --help names, the page names."""
    flags = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", help_of(*command.split())))
    section = sections("cli.md")[f"dodona {command}"]
    assert flags or command == "config schema"  # which has nothing to say otherwise
    assert {flag for flag in flags if not re.search(rf"^\| .*`{flag}`", section, re.M)} == set()


def test_every_command_is_documented() -> None:
    """Each command that does something itself has a section, and a test above."""
    assert set(commands(app)) == set(COMMANDS)
    assert {f"dodona {command}" for command in COMMANDS} <= sections("cli.md").keys()


def commands(above: App, *words: str) -> Iterator[str]:
    """The commands below one, down to those that have none below."""
    below = [word for word in above if not word.startswith("-")]
    if not below:
        yield " ".join(words)
    for word in below:
        yield from commands(above[word], *words, word)


def help_of(*words: str) -> str:
    done = dodona(Path.cwd(), *words, "--help")
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("title", sorted(sections("config.md").keys() - {"Limits"}))
def test_every_setting_is_documented(title: str) -> None:
    """Each key of each section has a line that tells what it is for, here or where it refers to."""
    path: tuple[str | int, ...] = tuple(n if n != "NAME" else "x" for n in title.split("."))
    if schema_of_settings.is_list_of_sections(path):
        path = (*path, 0)
    text = sections("config.md")[title]
    for name, field in schema_of_settings.fields(path).items():
        if (
            not schema_of_settings.section_type(field.annotation)
            and "The same settings" not in text
        ):
            assert re.search(rf"^\| `{name}` \|.*\w.* \|$", text, flags=re.MULTILINE), name


def test_every_section_is_documented() -> None:
    """By its name in the file."""
    titles = sections("config.md").keys()
    for name, field in Settings.model_fields.items():
        is_named = schema_of_settings.entry_type(field.annotation) is not None
        assert (f"{name}.NAME" if is_named else name) in titles


def test_every_table_is_documented(tmp_path: Path) -> None:
    """A store that was just made has the tables, columns, types and indexes of the page."""
    migrate(StoreLocation(path=tmp_path / "new.db"))
    with closing(sqlite3.connect(tmp_path / "new.db")) as made:
        kinds = dict(made.execute("SELECT name, type FROM pragma_table_list"))
        names = {name for name, kind in kinds.items() if kind == "table"}
        pages = sections("store.md")
        assert {n for n in names if not n.startswith("sqlite_")} == {*pages, "dodona_version"}
        indexes = {name for name, kind in kinds.items() if kind == "virtual"}
        assert {name for name in indexes if f"`{name}`" not in text_of("store.md")} == set()
        for name, text in pages.items():
            columns = made.execute("SELECT name, type FROM pragma_table_info(?)", (name,))
            lines = [line for line in text.splitlines() if line.startswith("| `")]
            # Those that a later migration adds come last in the database.
            assert sorted(line.split(" | ")[:2] for line in lines) == sorted(
                [f"| `{column}`", kind] for column, kind in columns
            )
            indexes = made.execute(
                "SELECT name FROM pragma_index_list(?) WHERE origin='c'", (name,)
            )
            assert set(re.findall(r"ndex `(\w+)`", text)) == {index for (index,) in indexes}


@pytest.mark.parametrize("table", metadata.tables.values(), ids=lambda table: table.name)
def test_every_constraint_is_documented(table: Table) -> None:
    """Primary keys, unique columns, checks and references have a line each."""
    section = sections("store.md")[table.name]
    told = re.findall(r"^- (Primary key|Unique|Check|Reference): ", section, flags=re.MULTILINE)
    assert len(told) == len(table.constraints)


@pytest.mark.parametrize("provider", PROVIDER_NAMES)
def test_every_provider_is_documented(provider: str) -> None:
    """What can be set has a line, with its address, its variables and its default model."""
    lines = sections("models.md")["Providers"].splitlines()
    found = "\n".join(line for line in lines if line.startswith(f"| `{provider}` |"))
    assert found
    if row := PROVIDERS.get(provider):
        values = (row.base_url, *row.key_env, row.default_model, row.thinking_off.decode())
        assert all(f"`{value}`" in found for value in values if value)


def test_every_context_size_is_documented() -> None:
    lines = sections("models.md")["Context sizes"].splitlines()
    for name, size in DEFAULT_MODEL_CONTEXT_SIZES.items():
        assert any(line.startswith(f"| `{name}` | {size:,} |") for line in lines), name


OPENAPI = build_openapi()
OPERATIONS = [
    (path, method, told) for path, all_ in OPENAPI["paths"].items() for method, told in all_.items()
]


@pytest.mark.parametrize(("path", "method", "told"), OPERATIONS)
def test_every_route_is_documented(path: str, method: str, told: dict[str, Any]) -> None:
    """Each has a section with its parameters and what it takes and answers."""
    section = sections("http.md")[f"{method.upper()} {path}"]
    assert told["summary"] in section
    for parameter in told.get("parameters", ()):
        assert f"| `{parameter['name']}` | {parameter['in']} |" in section
    schemas = set(re.findall(r"#/components/schemas/(\w+)", json.dumps(told)))
    assert {
        name
        for name in schemas - {"ErrorDocument", "V1Error"}
        if f"(#{name.lower()})" not in section
    } == set()


@pytest.mark.parametrize("name", OPENAPI["components"]["schemas"])
def test_every_schema_is_documented(name: str) -> None:
    """Each has a section with its fields."""
    found = re.search(rf"^### {name}\n(.*?)(?=^### |\Z)", text_of("http.md"), re.M | re.S)
    assert found
    for field in OPENAPI["components"]["schemas"][name].get("properties", {}):
        assert f"| `{field}` |" in found[1]


@pytest.mark.parametrize("name", [*shipped_leaves().leaves, *shipped_leaves().decorations])
def test_every_leaf_of_the_agent_is_documented(name: str) -> None:
    """Each has a line that tells what it does."""
    assert re.search(rf"^\| `{re.escape(name)}` \|.*\w+ \w+.*\.? \|$", text_of("leaves.md"), re.M)


async def test_every_tool_is_documented(tmp_path: Path) -> None:
    """What Dodona offers to its agents when it runs has a line and a section with its arguments."""
    offered = await tools_of_a_running_dodona(tmp_path)
    page = text_of("tools.md")
    assert {"vault_search", "thread_push", "find_definition", "web_fetch"} <= offered.keys()
    for name, spec in offered.items():
        assert re.search(rf"^\| \[`{name}`\]\(#{name}\) \|", page, re.M), name
        section = re.search(rf"^### {name}\n(.*?)(?=^##|\Z)", page, re.M | re.S)
        assert section, name
        assert " ".join(spec.description.split()) in " ".join(section[1].split())
        for argument in spec.parameters["properties"]:
            assert f"| `{argument}` |" in section[1]


async def tools_of_a_running_dodona(folder: Path) -> dict[str, ToolSpec]:
    """By name: those of the registry, and those by which work is handed on."""
    environment = {"DODONA_HOME": str(folder), "DODONA_AGENT__PROVIDER": "extractive"}
    redactor = Redactor()
    config = await asyncio.to_thread(load_config, environment, None)
    credentials = Credentials(config, environment, redactor)
    async with open_runtime(config, credentials, redactor, serve=False) as runtime:
        registry = runtime.get_registry().agent
        agents = ("oracle", *registry.subagents)
        specs = [spec for agent in agents for spec in registry.toolbox.specs_for(agent)]
        delegation = (each.delegation_tool for each in registry.subagents.values())
        return {spec.name: spec for spec in (*specs, *delegation)}


def test_every_chunk_is_documented() -> None:
    """What a run can send out has a section, and is in the schema that clients read."""
    types = {each.__struct_config__.tag for each in get_args(chunks.AnyChunk)}
    assert types == sections("chunks.md").keys() - {"Kinds of system chunks"}
    assert types == OPENAPI["components"]["schemas"]["Chunk"]["discriminator"]["mapping"].keys()


def test_every_kind_of_system_chunk_is_documented() -> None:
    """The kinds that the agent and the shipped subscribers make are those of the page."""
    made = re.compile(r'(?:TurnWarning\(\s*|SystemChunk\(\s*system_type=)"(\w+)"')
    kinds = {kind for text in source("agent") for kind in made.findall(text)}
    kinds |= {read_subscriber(file).system_type for file in BUILTIN_SUBSCRIBERS.glob("*.toml")}
    told = re.findall(r"^\| `(\w+)` \|", sections("chunks.md")["Kinds of system chunks"], re.M)
    assert kinds == set(told)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_every_method_of_the_websocket_is_documented(method: RpcMethod) -> None:
    """With what it takes, and the scope that it needs."""
    page = text_of("websocket.md")
    assert re.search(
        rf"^\| \[`{re.escape(method.name)}`\].*\w.* \| `{method.scope}` \|$", page, re.M
    )
    section = page.partition(f"### {method.name}\n")[2].partition("\n##")[0]
    for name in method.parameters:
        assert re.search(rf"^\| `{name}` \|.*\w.* \|$", section, re.M), name


def test_every_event_of_the_websocket_is_documented() -> None:
    """With the chunks that it is made of."""
    told = re.findall(r"^\| `(\w+)` \| (\[.*?) \|", sections("websocket.md")["Events"], re.M)
    assert {(event, chunk) for event, made in told for chunk in re.findall(r"`(\w+)`", made)} == {
        (event, chunk) for chunk, event in EVENT_BY_CHUNK_TYPE.items()
    }


def test_every_event_is_documented() -> None:
    """Types are the constants of core.events, and what the bus itself tells."""
    named = {name: value for name, value in vars(events).items() if name[0] != "_"}
    words = [v for name, v in named.items() if name.isupper() and isinstance(v, str)]
    types = {word for word in words if not word.endswith(".")}  # a prefix, or the hint
    told = re.findall(r"^\| `([a-z_.]+)` \|.*\w.* \|$", text_of("events.md"), re.M)
    assert {*types, EVENTS_LOST} == set(told)


@pytest.mark.parametrize("family", [*Metrics().registry.collect()], ids=lambda family: family.name)
def test_every_metric_is_documented(family: Metric) -> None:
    """Each has a line with its kind, its labels and what it counts."""
    name = f"{family.name}_total" if family.type == "counter" else family.name
    (line,) = [each for each in text_of("metrics.md").splitlines() if f"| `{name}` |" in each]
    assert line.startswith(f"| `{name}` | {family.type} | ")
    assert line.endswith(f" | {family.documentation} |")


def test_the_labels_of_metrics_are_documented() -> None:
    """In the order in which they are set."""
    row = "| `dodona_http_requests_total` | counter | `operation`, `method`, `status` | "
    assert row in text_of("metrics.md")
    assert "| `dodona_budget_used_ratio` | gauge | `scope`, `unit` | " in text_of("metrics.md")


@pytest.mark.parametrize(
    "file", sorted(BUILTIN_SUBSCRIBERS.glob("*.toml")), ids=lambda file: file.stem
)
def test_every_shipped_subscriber_is_documented(file: Path) -> None:
    """Each has a line with what it tells and the events that it hears."""
    found = read_subscriber(file)
    assert found.section.description
    line = f"| `{found.id}` | {found.section.description} | "
    (row,) = [each for each in text_of("subscribers.md").splitlines() if each.startswith(line)]
    assert all(f"`{pattern}`" in row for pattern in found.types)
    assert row.endswith("| core |") == found.section.core


def test_every_key_of_a_subscriber_is_documented() -> None:
    page = text_of("subscribers.md")
    for name, field in SubscriberFile.model_fields.items():
        section = page.partition(f"### {name}\n")[2].partition("\n##")[0]
        assert field.annotation is not None
        for key in field.annotation.model_fields:
            assert re.search(rf"^\| `{key}` \|.*\w.* \|$", section, re.M), f"{name}.{key}"


@pytest.mark.parametrize("rule", RuleBook().list(), ids=lambda rule: rule["id"])
def test_every_shipped_rule_is_documented(rule: dict[str, Any]) -> None:
    """Each has a line with what it does, and one for each of its parameters."""
    assert rule["description"]
    line = f"| `{rule['id']}` | `{rule['trigger']}` | {rule['description']} | "
    (row,) = [each for each in text_of("rules.md").splitlines() if each.startswith(line)]
    assert row.endswith("| core |") == rule["core"]
    for name in rule["parameters"]:
        assert f"| `{rule['id']}.{name}` |" in text_of("rules.md")


@pytest.mark.parametrize("kind", RULE_FILE_MODELS)
def test_every_action_of_rules_is_documented(kind: str) -> None:
    """With all that it takes."""
    section = text_of("rules.md").partition(f"### action: {kind}\n")[2].partition("\n##")[0]
    action: Any = RULE_FILE_MODELS[kind].model_fields["action"].annotation
    for key in action.model_fields:
        assert re.search(rf"^\| `{key}` \|.*\w.* \|$", section, re.M), key


@pytest.mark.parametrize("hook", HOOKS)
def test_every_hook_is_documented(hook: str) -> None:
    assert f"| `{hook}` | `{HOOKS[hook]}` | " in text_of("rules.md")


@pytest.mark.parametrize(("name", "default"), ModelSettings().as_dict().items())
def test_every_setting_of_a_user_is_documented(name: str, default: object) -> None:
    """With its default and its bounds."""
    (line,) = [row for row in text_of("settings.md").splitlines() if row.startswith(f"| `{name}`")]
    if type(default) is int:
        schema = msgspec.json.schema_components([ModelSettings])[1]["ModelSettings"]
        bounds = schema["properties"][name]
        lowest, highest = bounds["minimum"], bounds["maximum"]
        assert f"from {lowest:,} to {highest:,} | `{default:,}` |" in line

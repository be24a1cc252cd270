"""What settings demand of each other: agents, bindings, plugins, servers of tools, engines."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from dodona.app.agents.souls import MAX_SOUL_BYTES as LONGEST_SOUL
from dodona.app.config.config import MAX_PROBLEMS, Config, load_config
from dodona.app.config.validation import ExtensionNames, unused_sections
from dodona.core.errors import ConfigError, as_text
from dodona.models.catalogue.catalogue import model_facts
from dodona.net.egress_guard import FetchLimits, GuardedHttp
from dodona.tools import notify_self
from dodona.tools.code import add_code_tools
from dodona.tools.names import BUILTIN_TOOL_NAMES
from dodona.tools.registry import ToolRegistry
from dodona.tools.threads import add_thread_tools
from dodona.tools.vault import add_vault_tools
from dodona.tools.web import add_web_tools

KEY = "sk-ant-a-key-that-nobody-may-see"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder and a home of their own."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read(text: str, environment: Mapping[str, str] | None = None) -> Config:
    Path("dodona.toml").write_text(text, encoding="utf-8")
    return load_config(environment or {}, Path("dodona.toml"))


def unused(text: str) -> list[str]:
    config = read(text)
    return list(unused_sections(config.settings, config.origins))


def told(text: str, environment: Mapping[str, str] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        read(text, environment)
    return as_text(caught.value)


WHOLE = """\
[agent]
id = "personal"
[agents.work]
tools = ["vault_read", "echo", "delegate_librarian"]
queue = "collect"
[[bindings]]
agent_id = "work"
channel = "slack"
guild_id = "g"
[[bindings]]
agent_id = "personal"
peer_id = "me"
[[plugins]]
name = "echo"
path = "echo.wasm"
capabilities = ["http:api.example.org", "http:127.0.0.1:80", "store:sessions", "function:log"]
[[plugins]]
name = "telegram"
path = "telegram.wasm"
type = "channel"
description = "Messages of Telegram."
[mcp.files]
command = "mcp-files"
args = ["--root", "."]
env = { LOG = "debug", API_TOKEN = "env:TOKEN" }
[mcp.search]
url = "https://example.org/mcp"
headers = { Authorization = "file:~/token" }
timeout_seconds = 5
[engine]
kind = "local"
[budgets]
daily = 500000
[budgets.monthly]
usd = 20
"""


def test_all_of_it_is_taken() -> None:
    """Agents, bindings, plugins, servers, the engine and budgets."""
    settings = read(WHOLE).settings
    assert (settings.agent.id, settings.agents["work"].queue) == ("personal", "collect")
    assert [binding.agent_id for binding in settings.bindings] == ["work", "personal"]
    assert [(plugin.name, plugin.type) for plugin in settings.plugins] == [
        ("echo", "tool"),
        ("telegram", "channel"),
    ]
    assert settings.mcp["files"].env == {"LOG": "debug", "API_TOKEN": "env:TOKEN"}
    assert settings.mcp["search"].timeout_seconds == 5
    assert settings.engine.kind == "local"
    assert (settings.budgets.daily.tokens, settings.budgets.monthly.usd) == (500_000, 20)


def test_what_nothing_uses_yet_is_told() -> None:
    """With its place; what is used, is not."""
    assert unused(WHOLE) == [
        "dodona.toml:13: [[plugins]] has no effect yet.",
        "dodona.toml:22: [mcp.files] has no effect yet.",
        "dodona.toml:26: [mcp.search] has no effect yet.",
    ]
    assert unused("[agents.work]\n[[bindings]]\nagent_id='work'\nchannel='x'\n") == []


MISTAKES: dict[str, tuple[str, str]] = {
    "an agent that there is not": (
        "[agents.work]\n[[bindings]]\nagent_id = 'wrok'\npeer_id = 'x'\n",
        'dodona.toml:3: bindings[0].agent_id is not a configured agent (got "wrok"). '
        "Did you mean 'work'?",
    ),
    "an agent of nobody's": (
        "[[bindings]]\nagent_id = 'zzz'\npeer_id = 'x'\n",
        'dodona.toml:2: bindings[0].agent_id is not a configured agent (got "zzz"). '
        "Agents: oracle.",
    ),
    "a binding of everybody": (
        "\n[[bindings]]\nagent_id = 'oracle'\n",
        "dodona.toml:2: bindings[0] matches all messages, like the default agent. "
        "Set one of channel, account_id, peer_id, guild_id, team_id.",
    ),
    "a binding of nobody": (
        "[[bindings]]\nchannel = 'x'\n",
        "dodona.toml:1: bindings[0].agent_id is missing. The agent that answers.",
    ),
    "a misspelt key of a binding": (
        "[[bindings]]\nagent_id = 'oracle'\nchannel = 'x'\n[[bindings]]\nagent_id = 'oracle'\n"
        "channel = 'y'\npeer = 'z'\n",
        "dodona.toml:7: unknown key bindings[1].peer. Did you mean 'peer_id'?",
    ),
    "a section where there are several": (
        "[bindings]\nagent_id = 'x'\n",
        "dodona.toml:1: bindings must be a list of sections (got a section). "
        "Start each section with [[bindings]], in double brackets.",
    ),
    "a misspelt list of sections": (
        "[[binding]]\nagent_id = 'x'\n",
        "dodona.toml:1: unknown section [[binding]]. Did you mean 'bindings'?",
    ),
    "the default agent once more": (
        "[agents.oracle]\n",
        "dodona.toml:1: agents.oracle has the same name as the default agent. "
        "Configure the default agent in [agent], or choose another name.",
    ),
    "a subagent's name": (
        "[agents.librarian]\n",
        "dodona.toml:1: agents.librarian is the name of a subagent. Choose another name.",
    ),
    "a subagent's name by default": (
        "agent.id = 'librarian'\n",
        'dodona.toml:1: agent.id is the name of a subagent (got "librarian"). Choose another name.',
    ),
    "a name of an agent": (
        "agent.id = 'a_b'\n",
        'dodona.toml:1: agent.id is not a valid agent name (got "a_b"). '
        "Use up to 64 letters, digits and hyphens.",
    ),
    "a misspelt tool": (
        "[agents.x]\ntools = ['vault_read',\n 'web_serch']\n",
        'dodona.toml:3: agents.x.tools[1] is not a known tool (got "web_serch"). '
        "Did you mean 'web_search'?",
    ),
    "a longer answer than there is": (
        "[agent]\nprovider = 'openai'\nmodel = 'gpt-4o'\nmax_tokens = 20000\n",
        "dodona.toml:4: agent.max_tokens must be <= 16384, the maximum output of gpt-4o "
        "(got 20000).",
    ),
    "a longer answer than fits": (
        "[agents.x]\nmodel = 'qwen3'\nmax_tokens = 50000\n",
        "dodona.toml:3: agents.x.max_tokens must be <= 40960, the context window of qwen3 "
        "(got 50000).",
    ),
    "a plugin twice": (
        "[[plugins]]\nname = 'a'\npath = 'a'\n[[plugins]]\nname = 'a'\npath = 'b'\n",
        'dodona.toml:5: plugins[1].name is already used by plugins[0] (got "a"). '
        "Choose another name, or remove one of the plugins.",
    ),
    "a plugin with the name of a tool": (
        "[[plugins]]\nname = 'vault_read'\npath = 'a'\n",
        "dodona.toml:2: plugins[0].name is the name of a built-in tool "
        '(got "vault_read"). Choose another name.',
    ),
    "a plugin's name": (
        "[[plugins]]\nname = 'a b'\npath = 'a'\n",
        'dodona.toml:2: plugins[0].name is not a valid name (got "a b"). '
        "Use up to 64 letters, digits, _ and -.",
    ),
    "a plugin of another kind": (
        "[[plugins]]\nname = 'a'\npath = 'a'\ntype = 'chanel'\n",
        'dodona.toml:4: plugins[0].type must be one of tool, channel (got "chanel"). '
        "Did you mean 'channel'?",
    ),
    "a capability": (
        "[[plugins]]\nname = 'a'\npath = 'a'\ncapabilities = ['http:']\n",
        'dodona.toml:4: plugins[0].capabilities[0] is not a valid capability (got "http:"). '
        "Use http:HOST, store:NAME or function:NAME.",
    ),
    "an engine to come": (
        "[engine]\nkind = 'restate'\n",
        'dodona.toml:2: engine.kind must be "local": restate is not supported yet '
        '(got "restate"). Remove the setting.',
    ),
    "an engine of nobody's": (
        "[engine]\nkind = 'locl'\n",
        "dodona.toml:2: engine.kind must be one of local (got \"locl\"). Did you mean 'local'?",
    ),
    "a server of two kinds": (
        "[mcp.x]\nurl = 'http://x'\ncommand = 'x'\n",
        "dodona.toml:1: mcp.x has both url and command. Set one of them.",
    ),
    "a server of no kind": (
        "[mcp.x]\n",
        "dodona.toml:1: mcp.x has neither url nor command. Set one of them.",
    ),
    "a header for a program": (
        "[mcp.x]\ncommand = 'x'\nheaders = { A = 'b' }\n",
        "dodona.toml:3: mcp.x.headers has no effect: command does not use it. Remove it.",
    ),
    "a variable for an address": (
        "[mcp.x]\nurl = 'http://x'\nargs = ['b']\n",
        "dodona.toml:3: mcp.x.args has no effect: url does not use it. Remove it.",
    ),
    "a name of a variable": (
        "[mcp.x]\ncommand = 'x'\nenv = { 'A-B' = 'b' }\n",
        "dodona.toml:3: mcp.x.env.A-B is not a valid variable name. Use letters, digits and _.",
    ),
    "a part of a budget": (
        "budgets.daily = 1.5\n",
        "dodona.toml:1: budgets.daily must be a section (got 1.5).",
    ),
    "less than no budget": (
        "budgets.daily = -1\n",
        "dodona.toml:1: budgets.daily.tokens must be >= 0 (got -1).",
    ),
    "a soul of nobody's": (
        "agent.soul_path = 'none.md'\n",
        "dodona.toml:1: agent.soul_path is not a usable soul file: No such file or directory "
        f'(got "none.md"). A soul is a readable UTF-8 text file of at most {LONGEST_SOUL:,} '
        "bytes.",
    ),
    "a character that no path has": (
        'vault.path = "a\\u0000b"\n',
        "dodona.toml:1: vault.path must not contain a NUL character. Remove it.",
    ),
    "notes outside the vault": (
        'vault.untrusted = ["Clippings/**", "../others/**"]\n',
        "dodona.toml:1: vault.untrusted[1] must not contain empty names, . or .. "
        '(got "../others/**"). Give a pattern relative to the vault, such as Clippings/**.',
    ),
}


@pytest.mark.parametrize(("text", "expected"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake(text: str, expected: str) -> None:
    """File, line, key, what was found there, what to do."""
    assert told(text) == expected


@pytest.mark.parametrize(
    "server",
    [
        f"command = 'x'\nenv = {{ LOG = '{KEY}' }}",
        "command = 'x'\nenv = { API_KEY = 'letmein-letmein' }",
        "url = 'http://x'\nheaders = { Authorization = 'letmein-letmein' }",
        f"url = 'http://x'\nheaders = {{ X = 'Bearer {KEY}' }}",
    ],
)
def test_a_secret_is_named_and_not_written(server: str) -> None:
    """By what it is called and by what it looks like; the mistake does not repeat it."""
    words = told(f"[mcp.x]\n{server}\n")
    assert 'must be "env:NAME" or "file:PATH", never the secret itself' in words
    assert KEY not in words
    assert "letmein" not in words


def test_a_soul_is_relative_to_its_file(folder: Path) -> None:
    """It may begin with a mark, and must be a short text."""
    (folder / "etc").mkdir()
    soul = folder / "etc" / "soul.md"
    (folder / "etc" / "x.toml").write_text("agent.soul_path = 'soul.md'\n", encoding="utf-8")
    for good in (b"", b"\xef\xbb\xbfKind.", b"x" * LONGEST_SOUL):
        soul.write_bytes(good)
        assert load_config({}, folder / "etc" / "x.toml").settings.agent.soul_path == "soul.md"
    for bad, reason in ((b"\xff", "not UTF-8 text"), (b"x" * (LONGEST_SOUL + 1), "too long")):
        soul.write_bytes(bad)
        with pytest.raises(ConfigError, match=reason):
            load_config({}, folder / "etc" / "x.toml")
    soul.unlink()
    os.mkfifo(soul)  # whoever reads it waits for a writer
    with pytest.raises(ConfigError, match="it is not a regular file"):
        load_config({}, folder / "etc" / "x.toml")


def test_names_that_extensions_may_declare() -> None:
    """They are errors at once if there are no extensions, else when those have been loaded."""
    Path("dodona.toml").write_text("agent.tools = ['mine']\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="is not a known tool"):
        load_config({})
    config = load_config({}, has_extensions=True)
    config.check_names(ExtensionNames(tools=frozenset({"mine"})))
    with pytest.raises(ConfigError) as caught:
        config.check_names(ExtensionNames(tools=frozenset({"mind"})))
    assert str(caught.value) == (
        "dodona.toml:1: agent.tools[0] is not a known tool (got \"mine\"). Did you mean 'mind'?"
    )


def test_the_shipped_tools_are_those_that_are_registered() -> None:
    """The list for checks is complete, and has none that is gone."""
    registry = ToolRegistry()
    nobody: Any = None  # no tool is called here
    add_vault_tools(registry, nobody)
    add_thread_tools(registry, nobody)
    add_code_tools(registry, nobody)
    notify_self.add(registry, nobody)
    add_web_tools(registry, engine=None, http=GuardedHttp("test"), limits=FetchLimits())
    offered = [*registry.specs_for("oracle"), *registry.specs_for("librarian")]
    assert {spec.name for spec in offered} == BUILTIN_TOOL_NAMES


def test_a_model_that_nobody_knows_has_no_limit() -> None:
    """Nor one that is chosen at start."""
    assert model_facts("oak-of-dodona").source == "default"
    assert read("[agent]\nmodel = 'oak-of-dodona'\nmax_tokens = 900000\n")
    assert read("[agent]\nmax_tokens = 900000\n")


# -- plain numbers and the environment ---------------------------------------------------------


def test_a_plain_number_has_its_place() -> None:
    """It is where somebody wrote it, under the key that it is for."""
    config = read("[budgets]\ndaily = 500000\n")
    assert str(config.origins.of(("budgets", "daily", "tokens"))) == "dodona.toml:2"


def test_a_plain_number_takes_nothing_away() -> None:
    """A variable for one key leaves the other as the file has it."""
    for text, environment in (
        ("budgets.daily = 5\n", {"DODONA_BUDGETS__DAILY__USD": "2"}),
        ("budgets.daily.usd = 2\n", {"DODONA_BUDGETS__DAILY": "5"}),
        ("", {"DODONA_BUDGETS__DAILY": "5", "DODONA_BUDGETS__DAILY__USD": "2"}),
    ):
        daily = read(text, environment).settings.budgets.daily
        assert (daily.tokens, daily.usd) == (5, 2)


def test_a_list_of_sections_is_in_the_file_alone() -> None:
    """A variable would have to say which of them it is for."""
    assert told("", {"DODONA_BINDINGS__0__CHANNEL": "x"}) == (
        "DODONA_BINDINGS__0__CHANNEL: this variable has no effect: a list of sections cannot "
        "be set by variables. "
        "Write [[bindings]] in the config file."
    )


def test_names_of_variables_keep_their_case() -> None:
    """Those of a server's environment are no settings of ours."""
    text = "[mcp.my-files]\ncommand = 'x'\n"
    environment = {"DODONA_MCP__MY_FILES__ENV__API_TOKEN": "env:TOKEN"}
    assert read(text, environment).settings.mcp["my-files"].env == {"API_TOKEN": "env:TOKEN"}


def test_bytes_that_are_no_text_are_told() -> None:
    """A variable may hold them, and what tells so must be printable."""
    words = told("", {"DODONA_AGENT__MODEL": "\udcff"})
    assert words == 'DODONA_AGENT__MODEL: agent.model must be valid UTF-8 text (got "\\udcff").'
    assert words.encode()


# -- very many ---------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_hundred_thousand_bindings_are_read() -> None:
    """The time grows with their number: quadratic work would exceed the timeout."""
    rows = "".join(
        f'[[bindings]]\nagent_id = "oracle"\nchannel = "telegram"\npeer_id = "user-{number}"\n'
        for number in range(100_000)
    )
    assert len(read(rows).settings.bindings) == 100_000
    with pytest.raises(ConfigError) as caught:
        read(rows.replace('"oracle"', '"orcale"'))
    problems = caught.value.problems()
    assert len(problems) == MAX_PROBLEMS + 1
    assert str(problems[0]).endswith("Did you mean 'oracle'?")
    assert str(problems[-1]) == "there may be more errors. Fix these first."

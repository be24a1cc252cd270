"""`dodona config`, run as people run it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dodona.cli.commands.project import config
from dodona.cli.options import CommonOptions
from dodona.core.errors import DodonaError, as_text
from tests.cli.running import dodona

KEY = "sk-ant-a-key-that-nobody-may-see"

GOOD = """\
[agent]
provider = "openai"
api_key = "env:WORK_KEY"

[prices."gpt-4.1"]
input = 1
output = 2
"""
BAD = f"""\
[agent]
provider = "antropic"
api_key = "{KEY}"
max_tokens = -5
"""


def test_a_good_file_is_ok(tmp_path: Path) -> None:
    """It says which file that is; without one, that there is none."""
    done = dodona(tmp_path, "config", "check")
    assert (done.returncode, done.stdout, done.stderr) == (
        0,
        "ok: no config file, defaults and environment only\n",
        "",
    )
    (tmp_path / "dodona.toml").write_text(GOOD, encoding="utf-8")
    assert dodona(tmp_path, "trust", "--yes").returncode == 0
    done = dodona(tmp_path, "config", "check")
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok: dodona.toml\n", "")
    done = dodona(tmp_path, "config", "check", "--json", DODONA_CONFIG="dodona.toml")
    expected = {"ok": True, "file": "dodona.toml", "errors": [], "notes": []}
    assert json.loads(done.stdout) == expected


def test_every_mistake_is_told(tmp_path: Path) -> None:
    """On standard error, with exit code 3; a key that should not be there is not repeated."""
    (tmp_path / "x.toml").write_text(BAD, encoding="utf-8")
    done = dodona(tmp_path, "config", "check", "--config", "x.toml", DODONA_LOG__LEVEL="loud")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == (
        'x.toml:2: agent.provider must be a known provider (got "antropic"). '
        "Did you mean 'anthropic'?\n"
        'x.toml:3: agent.api_key must be "env:NAME" or "file:PATH", never the secret itself. '
        "Use env: and the name of an environment variable, or file: and the path of a file that "
        "only you can read (chmod 600).\n"
        "x.toml:4: agent.max_tokens must be > 0 (got -5).\n"
        'DODONA_LOG__LEVEL: log.level must be one of debug, info, warning, error (got "loud").\n'
    )


def test_mistakes_as_json(tmp_path: Path) -> None:
    """One document, each mistake with its place."""
    (tmp_path / "x.toml").write_text(BAD, encoding="utf-8")
    done = dodona(tmp_path, "config", "check", "--config", "x.toml", "--json")
    report: dict[str, Any] = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (3, "")
    assert (report["ok"], report["file"]) == (False, "x.toml")
    assert report["errors"][2] == {
        "code": "config_invalid",
        "message": "agent.max_tokens must be > 0 (got -5).",
        "hint": "",
        "where": {"file": "x.toml", "line": 4},
    }
    assert KEY not in done.stdout


@pytest.mark.parametrize("command", ["check", "show"])
def test_a_named_file_that_is_missing(tmp_path: Path, command: str) -> None:
    """An error of its own, in the shape of all errors."""
    done = dodona(tmp_path, "config", command, "--config", "x.toml")
    assert (done.returncode, done.stdout, done.stderr) == (
        3,
        "",
        "config file x.toml does not exist. Check the path in --config.\n",
    )


def test_every_setting_is_shown_with_its_origin(tmp_path: Path) -> None:
    """A line of the file, a variable, or its default; of a secret, where it is."""
    (tmp_path / "dodona.toml").write_text(GOOD, encoding="utf-8")
    assert dodona(tmp_path, "trust", "--yes").returncode == 0
    done = dodona(tmp_path, "config", "show", WORK_KEY=KEY, DODONA_AGENT__MAX_TOKENS="9")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        'agent.provider                "openai"        dodona.toml:2\n'
        "agent.model                   -               default\n"
        'agent.api_key                 "env:WORK_KEY"  dodona.toml:3\n'
        "agent.base_url                -               default\n"
        "agent.max_tokens              9               DODONA_AGENT__MAX_TOKENS\n"
        "agent.temperature             -               default\n"
        "agent.tree                    -               default\n"
        "agent.system_prompt           -               default\n"
        "agent.decision_tree           -               default\n"
        "agent.soul_path               -               default\n"
        "agent.tools                   -               default\n"
        'agent.queue                   "queue"         default\n'
        "agent.queue_limit             20              default\n"
        "agent.timeouts.connect        10.0            default\n"
        "agent.timeouts.first_token    180.0           default\n"
        "agent.timeouts.gap            90.0            default\n"
        "agent.fallback                -               default\n"
        'agent.id                      "oracle"        default\n'
        "extend.python                 []              default\n"
        'engine.kind                   "local"         default\n'
        "store.url                     -               default\n"
        "store.password                -               default\n"
        'store.durability              "full"          default\n'
        'gateway.host                  "127.0.0.1"     default\n'
        "gateway.port                  7200            default\n"
        "gateway.hosts                 []              default\n"
        "gateway.proxies               []              default\n"
        "gateway.token_rate            600             default\n"
        "gateway.address_rate          1200            default\n"
        "gateway.connections           20000           default\n"
        "gateway.address_connections   200             default\n"
        "gateway.in_flight             2000            default\n"
        "gateway.user_in_flight        64              default\n"
        "gateway.user_runs             32              default\n"
        "gateway.auth_failures         10              default\n"
        "gateway.cooldown              60.0            default\n"
        "audit.kept_days               365             default\n"
        "vault.path                    -               default\n"
        "vault.untrusted               []              default\n"
        "vault.versions_days           90              default\n"
        "vault.versions_mb             200             default\n"
        "code.paths                    []              default\n"
        "code.max_file_kb              1024            default\n"
        "code.embeddings               false           default\n"
        "code.untrusted                false           default\n"
        'web.search                    "none"          default\n'
        "web.searxng_url               -               default\n"
        "web.brave_api_key             -               default\n"
        "web.fetch                     true            default\n"
        "web.timeout_seconds           20.0            default\n"
        "web.max_kb                    2048            default\n"
        "web.robots                    true            default\n"
        "web.allow                     []              default\n"
        "trust.hold_calls              true            default\n"
        'trust.writes                  "approve"       default\n'
        "librarian.summarise           true            default\n"
        "librarian.summarise_lists     false           default\n"
        "context.idle_minutes          1440            default\n"
        "context.token_budget          16000           default\n"
        "context.compress              true            default\n"
        "subscribers.folder            -               default\n"
        "rules.folder                  -               default\n"
        "rules.packs                   -               default\n"
        "approvals.timeout_seconds     600.0           default\n"
        "budgets.session.tokens        -               default\n"
        "budgets.session.usd           -               default\n"
        "budgets.agent.tokens          -               default\n"
        "budgets.agent.usd             -               default\n"
        "budgets.user.tokens           -               default\n"
        "budgets.user.usd              -               default\n"
        "budgets.daily.tokens          -               default\n"
        "budgets.daily.usd             -               default\n"
        "budgets.monthly.tokens        -               default\n"
        "budgets.monthly.usd           -               default\n"
        "budgets.wait_seconds          10.0            default\n"
        'prices."gpt-4.1".input        1.0             dodona.toml:6\n'
        'prices."gpt-4.1".output       2.0             dodona.toml:7\n'
        'prices."gpt-4.1".cache_read   -               default\n'
        'prices."gpt-4.1".cache_write  -               default\n'
        'log.level                     "info"          default\n'
        'log.format                    "auto"          default\n'
    )


def test_settings_as_json(tmp_path: Path) -> None:
    """Key, value and origin; a password in an address is not shown."""
    url = "postgresql://me:a-password@host/db"
    done = dodona(tmp_path, "config", "show", "--json", DODONA_STORE__URL=url)
    report = json.loads(done.stdout)
    assert report["file"] is None
    assert {
        "key": "store.url",
        "value": "postgresql://me:[secret]@host/db",
        "origin": "DODONA_STORE__URL",
    } in report["settings"]
    assert "a-password" not in dodona(tmp_path, "config", "show", DODONA_STORE__URL=url).stdout


def test_what_nothing_uses_yet_is_told(tmp_path: Path) -> None:
    """Beside the output: the file is right."""
    (tmp_path / "dodona.toml").write_text(
        "[[plugins]]\nname = 'echo'\npath = 'echo.wasm'\n[mcp.x]\nurl = 'http://127.0.0.1:1'\n",
        encoding="utf-8",
    )
    assert dodona(tmp_path, "trust", "--yes").returncode == 0
    done = dodona(tmp_path, "config", "check")
    assert (done.returncode, done.stdout) == (0, "ok: dodona.toml\n")
    assert done.stderr == (
        "dodona.toml:1: [[plugins]] has no effect yet.\ndodona.toml:4: [mcp.x] has no effect yet.\n"
    )
    done = dodona(tmp_path, "config", "check", "--json")
    assert json.loads(done.stdout)["notes"] == [
        "dodona.toml:1: [[plugins]] has no effect yet.",
        "dodona.toml:4: [mcp.x] has no effect yet.",
    ]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder and a home for commands that are called in this process."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_setting_is_printed_by_itself(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For scripts: text as it is, other values as JSON; of a section, a line for each."""
    (here / "dodona.toml").write_text(GOOD, encoding="utf-8")
    assert dodona(here, "trust", "--yes").returncode == 0
    assert dodona(here, "config", "get", "agent.provider").stdout == "openai\n"

    def got(key: str, *, json: bool = False) -> str:
        config.get(key, options=CommonOptions(json=json))
        return capsys.readouterr().out

    assert got("agent.provider") == "openai\n"
    assert got("agent.max_tokens") == "4096\n"
    assert got("code.paths") == "[]\n"
    assert got("agent.model") == "\n"
    assert got("bindings") == ""
    assert got("log") == 'log.level   "info"\nlog.format  "auto"\n'
    assert json.loads(got('prices."gpt-4.1".input', json=True)) == {
        "key": 'prices."gpt-4.1".input',
        "value": 1.0,
        "origin": "dodona.toml:6",
    }


@pytest.mark.parametrize(
    ("key", "told"),
    [
        ("agent.modle", "unknown key agent.modle. Did you mean 'model'?"),
        ("stor.url", "unknown key stor. Did you mean 'store'?"),
        ("bindings[0].chanel", "unknown key bindings[0].chanel. Did you mean 'channel'?"),
        ("agent..model", "'agent..model' is not a valid setting name. Examples: agent.model, "),
        ("bindings[0].channel", "bindings[0].channel is not set. See: dodona config show"),
        ("agents.work.model", "agents.work.model is not set. See: dodona config show"),
    ],
)
@pytest.mark.usefixtures("here")
def test_a_setting_that_there_is_not(key: str, told: str) -> None:
    """The nearest is told."""
    with pytest.raises(DodonaError) as caught:
        config.get(key)
    assert str(caught.value).startswith(told)


def test_a_setting_is_changed_in_place(tmp_path: Path) -> None:
    """Comments stay; each value is written as its type; the line of it is told."""
    file = tmp_path / "dodona.toml"
    file.write_text(f"# ours\n{GOOD}", encoding="utf-8")
    assert dodona(tmp_path, "trust", "--yes").returncode == 0

    def changed(*words: str, **environment: str) -> str:
        done = dodona(tmp_path, "config", "set", *words, **environment)
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    assert changed("agent.max_tokens", "100") == "dodona.toml:5: agent.max_tokens = 100\n"
    assert changed("agent.tools", "vault_read, web_search") == (
        'dodona.toml:6: agent.tools = ["vault_read", "web_search"]\n'
    )
    assert changed("log.level", "debug", DODONA_LOG__LEVEL="error") == (
        'dodona.toml:13: log.level = "debug"\nDODONA_LOG__LEVEL is set and overrides the file.\n'
    )
    assert changed("agent.api_key", "--unset") == "dodona.toml: agent.api_key is not set\n"
    told = json.loads(changed("bindings[0]", "{agent_id='oracle', channel='x'}", "--json"))
    assert told == {
        "file": "dodona.toml",
        "key": "bindings[0]",
        "value": {"agent_id": "oracle", "channel": "x"},
        "notes": [],
    }
    assert file.read_text(encoding="utf-8") == (
        '# ours\n[agent]\nprovider = "openai"\nmax_tokens = 100\n'
        'tools = ["vault_read", "web_search"]\n\n[prices."gpt-4.1"]\ninput = 1\noutput = 2\n\n'
        '[log]\nlevel = "debug"\n\n[[bindings]]\nagent_id = "oracle"\nchannel = "x"\n'
    )


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("agent.api_key", KEY, "never the secret itself"),
        ("agent.modle", "x", "Did you mean 'model'?"),
        ("agent", "x", "agent must be a section"),
        ("agent.max_tokens", "many", "must be a whole number"),
        ("agent.max_tokens", None, "give either a value or --unset."),
    ],
)
def test_what_is_wrong_is_not_written(here: Path, key: str, value: str | None, told: str) -> None:
    """Not even the file is made, and a secret is not repeated."""
    with pytest.raises(DodonaError) as caught:
        config.set_(key, value)
    assert told in as_text(caught.value)
    assert KEY not in as_text(caught.value)
    assert not (here / ".dodona" / "config.toml").exists()


def test_a_value_may_begin_with_a_hyphen(tmp_path: Path) -> None:
    """It is no option, and told like any other that is wrong."""
    done = dodona(tmp_path, "config", "set", "agent.temperature", "-5")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.endswith("agent.temperature must be >= 0 (got -5.0).\n")


def test_a_named_file_is_made(tmp_path: Path) -> None:
    """By --config, or DODONA_CONFIG."""
    set_level = ("config", "set", "log.level")
    assert dodona(tmp_path, *set_level, "debug", "--config", "a.toml").returncode == 0
    assert dodona(tmp_path, *set_level, "info", DODONA_CONFIG="b.toml").returncode == 0
    assert (tmp_path / "a.toml").read_text(encoding="utf-8") == '[log]\nlevel = "debug"\n'
    assert (tmp_path / "b.toml").read_text(encoding="utf-8") == '[log]\nlevel = "info"\n'


def test_the_schema_is_printed(tmp_path: Path) -> None:
    """As one document."""
    done = dodona(tmp_path, "config", "schema")
    assert json.loads(done.stdout)["$schema"] == "http://json-schema.org/draft-07/schema#"


def test_a_broken_file_ends_other_commands_too(tmp_path: Path) -> None:
    """All of its mistakes, in JSON when that was asked for."""
    (tmp_path / "dodona.toml").write_text(BAD, encoding="utf-8")
    done = dodona(tmp_path, "status", "--json", "--config", "dodona.toml")
    report = json.loads(done.stdout)
    assert (done.returncode, report["error"]["code"]) == (3, "config_invalid")
    assert report["error"]["message"] == "3 problems."
    assert len(report["error"]["problems"]) == 3


def test_help_imports_nothing_heavy() -> None:
    """The root command knows its commands by name only."""
    script = (
        "import sys; sys.argv = ['dodona', '--help']\n"
        "from dodona.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'pydantic', 'aiohttp', 'structlog', 'sqlalchemy', 'dodona.trees', 'dodona.app'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run(  # noqa: S603 - ourselves
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=True
    )
    assert "config" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_crash_tells_no_secret() -> None:
    """A bug is told with its traceback, and what looks like a key is scrubbed from it."""
    script = (
        "import sys\n"
        "from dodona.cli.main import _print_traceback\n"
        "sys.excepthook = _print_traceback\n"
        f"raise RuntimeError('{KEY}')\n"
    )
    done = subprocess.run(  # noqa: S603 - ourselves
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 1
    assert "RuntimeError: [secret]" in done.stderr
    assert KEY not in done.stderr

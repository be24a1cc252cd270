"""Settings from a file and the environment: the right ones are taken, mistakes told at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from pydantic import ValidationError

from dodona.app.config.config import MAX_CONFIG_BYTES, Config, load_config
from dodona.app.config.settings import PROVIDER_NAMES, Settings
from dodona.core.errors import ConfigError, as_json, as_text
from dodona.models.providers import PROVIDERS

KEY = "sk-ant-a-key-that-nobody-may-see"
PROVIDERS_TEXT = f"The model provider: {', '.join(PROVIDER_NAMES)}, or that of an extension."

SECTIONS = f"Sections: {', '.join(sorted(Settings.model_fields))}."


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A current folder and a home of their own."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path


def loaded(text: str | bytes, environment: Mapping[str, str] | None = None) -> Config:
    Path("dodona.toml").write_bytes(text.encode() if isinstance(text, str) else text)
    return load_config(environment or {}, Path("dodona.toml"))


def told(text: str | bytes, environment: Mapping[str, str] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        loaded(text, environment)
    return as_text(caught.value)


# -- finding the file ------------------------------------------------------------------------


def test_no_file_is_needed(folder: Path) -> None:
    """Without one, everything has its default."""
    config = load_config({})
    assert config.settings == Settings()
    assert config.origins.file is None
    assert config.home == folder / "home" / ".dodona"


def test_the_first_file_counts(folder: Path) -> None:
    """--config, DODONA_CONFIG, ./dodona.toml, config.toml in Dodona's folder."""
    home = folder / "dodona-home"
    home.mkdir()
    places = [home / "config.toml", Path("dodona.toml"), Path("b.toml"), Path("a.toml")]
    for number, place in enumerate(places):
        place.write_text(f"agent.max_tokens = {number + 1}\n", encoding="utf-8")
    environment = {"DODONA_HOME": str(home)}
    named = {**environment, "DODONA_CONFIG": "b.toml"}
    assert load_config(named, Path("a.toml")).settings.agent.max_tokens == 4
    assert load_config(named).settings.agent.max_tokens == 3
    assert load_config(environment).settings.agent.max_tokens == 2
    Path("dodona.toml").unlink()
    assert load_config({**environment, "DODONA_CONFIG": ""}).settings.agent.max_tokens == 1


def test_a_named_file_must_be_there() -> None:
    """One that was asked for and is missing is a mistake, whoever named it."""
    with pytest.raises(
        ConfigError, match=r"config file x.toml does not exist. Check the path in --config."
    ):
        load_config({}, Path("x.toml"))
    with pytest.raises(
        ConfigError, match=r"config file y.toml does not exist. Check the path in DODONA_CONFIG."
    ):
        load_config({"DODONA_CONFIG": "y.toml"})


def test_a_home_that_cannot_be_known_is_told() -> None:
    """A user that there is not has no folder."""
    with pytest.raises(ConfigError) as caught:
        load_config({"DODONA_HOME": "~nobody-of-this-name/x"})
    assert str(caught.value) == (
        "cannot expand ~nobody-of-this-name/x: the user does not exist, or HOME is not set. "
        "Write the path without ~, or set DODONA_HOME."
    )


# -- what is right ---------------------------------------------------------------------------

WHOLE = """\
[agent]
provider = "anthropic"
model = "claude"
api_key = "env:WORK_KEY"
base_url = "https://proxy.example/anthropic/"
max_tokens = 100
temperature = 1
[agent.timeouts]
connect = 2
[agent.fallback]
provider = "ollama"
fallback = { provider = "extractive" }
[agents.night-shift]
model = "small"
[store]
url = "postgresql://me@host/db"
password = "file:~/pw"
durability = "normal"
[prices."gpt-4.1"]
input = 2
output = 8.5
cache_read = 0
[log]
level = "debug"
format = "json"
"""


def test_every_setting_is_taken() -> None:
    """Each from its key; a number may be written without a point."""
    settings = loaded(WHOLE, {"DODONA_CONFIG": "dodona.toml"}).settings
    agent = settings.agent
    assert (agent.provider, agent.model, agent.api_key) == ("anthropic", "claude", "env:WORK_KEY")
    assert (agent.base_url, agent.max_tokens) == ("https://proxy.example/anthropic", 100)
    assert (agent.temperature, agent.timeouts.connect, agent.timeouts.gap) == (1.0, 2.0, 90.0)
    assert agent.fallback
    assert agent.fallback.provider == "ollama"
    assert agent.fallback.fallback
    assert agent.fallback.fallback.provider == "extractive"
    assert settings.agents["night-shift"].model == "small"
    assert settings.store.model_dump() == {
        "url": "postgresql://me@host/db",
        "password": "file:~/pw",
        "durability": "normal",
    }
    assert settings.prices["gpt-4.1"].model_dump() == {
        "input": 2.0,
        "output": 8.5,
        "cache_read": 0.0,
        "cache_write": None,
    }
    assert (settings.log.level, settings.log.format) == ("debug", "json")


def test_settings_do_not_change() -> None:
    """They are parsed once; nobody can set one later."""
    with pytest.raises(ValidationError):
        load_config({}).settings.agent.max_tokens = 5  # type: ignore[misc]


def test_every_provider_of_the_table_can_be_named() -> None:
    """And the two that need no connection."""
    assert set(PROVIDER_NAMES) == {*PROVIDERS, "extractive", "scripted"}


@pytest.mark.parametrize(
    "text", [b"\xef\xbb\xbf[log]\nlevel = 'error'\n", b"[log]\r\nlevel = 'error'\r\n"]
)
def test_a_bom_and_crlf_are_taken(text: bytes) -> None:
    """As editors on other systems write them."""
    assert loaded(text).settings.log.level == "error"


def test_a_path_is_relative_to_the_file_that_says_it(folder: Path) -> None:
    """One from the environment is relative to the current folder."""
    file = folder / "etc" / "x.toml"
    file.parent.mkdir()
    file.write_text('store.url = "a.db"\n', encoding="utf-8")
    path = ("store", "url")
    assert load_config({}, file).resolve("a.db", path) == folder / "etc" / "a.db"
    assert load_config({"DODONA_STORE__URL": "a.db"}, file).resolve("a.db", path) == Path("a.db")
    assert load_config({}, file).resolve("~/a.db", path) == folder / "home" / "a.db"


# -- the environment -------------------------------------------------------------------------


def test_variables_come_before_the_file() -> None:
    """Each as the type that its setting has; sections and entries are made where they miss."""
    config = loaded(
        'agent.max_tokens = 1\n[agents.Night-shift]\n[prices."gpt-4.1"]\ninput = 1\noutput = 1\n',
        {
            "DODONA_AGENT__MAX_TOKENS": "2",
            "DODONA_AGENT__TEMPERATURE": "0.5",
            "DODONA_AGENT__MODEL": "123",
            "DODONA_AGENT__FALLBACK__PROVIDER": "extractive",
            "DODONA_AGENTS__NIGHT_SHIFT__MODEL": "small",
            "DODONA_AGENTS__DAY_SHIFT__MODEL": "large",
            "DODONA_PRICES__GPT_4_1__INPUT": "3",
            "DODONA_CODE__PATHS": "src, lib,",
            "DODONA_WEB__ROBOTS": "false",
            "DODONA_HOME": "x",
            "DODONA_TEST_OF_SOMETHING_ELSE": "y",
            "OTHER__THING": "z",
        },
    )
    settings = config.settings
    assert (settings.agent.max_tokens, settings.agent.temperature) == (2, 0.5)
    assert settings.agent.model == "123"
    assert settings.agent.fallback
    assert {name: agent.model for name, agent in settings.agents.items()} == {
        "Night-shift": "small",
        "day-shift": "large",
    }
    assert settings.prices["gpt-4.1"].input == 3.0
    assert settings.code.paths == ("src", "lib")
    assert settings.web.robots is False
    places = config.origins
    assert str(places.of(("agent", "max_tokens"))) == "DODONA_AGENT__MAX_TOKENS"
    assert str(places.of(("prices", "gpt-4.1", "output"))) == "dodona.toml:5"
    assert places.of(("log", "level")) is None


def test_a_mistake_in_the_environment_names_the_variable() -> None:
    """After those in the file, all of them."""
    assert told(
        "agent.max_tokens = 0\n",
        {
            "DODONA_AGENT__MODLE": "x",
            "DODONA_AGENT_MODEL": "x",
            "DODONA_AGENTS__WORK__MAX_TOKENS": "many",
            "DODONA_LOG__LEVEL": "loud",
            "DODONA_PRICES__X__INPUT": "-1",
            "DODONA_CHANNELS__PORT": "1",
            "DODONA_AGENT__API_KEY": KEY,
        },
    ) == (
        "dodona.toml:1: agent.max_tokens must be > 0 (got 0).\n"
        "DODONA_AGENTS__WORK__MAX_TOKENS: agents.work.max_tokens must be a whole number "
        '(got "many").\n'
        "DODONA_AGENT_MODEL: this variable has no effect. Did you mean 'DODONA_AGENT__MODEL'?\n"
        'DODONA_AGENT__API_KEY: agent.api_key must be "env:NAME" or "file:PATH", never the secret '
        "itself. Use env: and the name of an environment variable, or file: and the path of a file "
        "that only you can read (chmod 600).\n"
        "DODONA_AGENT__API_KEY: agent.provider is missing: api_key depends on it. "
        f"{PROVIDERS_TEXT}\n"
        "DODONA_AGENT__MODLE: unknown key agent.modle. Did you mean 'model'?\n"
        f"DODONA_CHANNELS__PORT: unknown section [channels]. {SECTIONS}\n"
        'DODONA_LOG__LEVEL: log.level must be one of debug, info, warning, error (got "loud").\n'
        "DODONA_PRICES__X__INPUT: prices.x.input must be >= 0 (got -1.0).\n"
        "DODONA_PRICES__X__INPUT: prices.x.output is missing. Price of output tokens."
    )


def test_a_variable_cannot_mend_a_section_that_is_none() -> None:
    """The file's own mistake is told, once."""
    assert told("agent = 3\n", {"DODONA_AGENT__MODEL": "x"}) == (
        "dodona.toml:1: agent must be a section (got 3)."
    )


def test_a_variable_of_a_thousand_names_is_a_mistake() -> None:
    """It nests no deeper than a file may."""
    text = told("", {"DODONA_AGENT" + "__FALLBACK" * 1000 + "__MODEL": "x"})
    assert "unknown key agent.fallback." in text


# -- what is wrong ---------------------------------------------------------------------------

MISTAKES: dict[str, tuple[str, str]] = {
    "below its limit": (
        "[agent]\n\nmax_tokens = -5\n",
        "dodona.toml:3: agent.max_tokens must be > 0 (got -5).",
    ),
    "above its limit": (
        "agent.temperature = 3\n",
        "dodona.toml:1: agent.temperature must be <= 2 (got 3).",
    ),
    "no number at all": (
        "agent.temperature = nan\n",
        "dodona.toml:1: agent.temperature must be a finite number (got NaN).",
    ),
    "text for a number": (
        'agent = { max_tokens = "many" }\n',
        'dodona.toml:1: agent.max_tokens must be a whole number (got "many").',
    ),
    "a part of a number": (
        "agent.max_tokens = 1.5\n",
        "dodona.toml:1: agent.max_tokens must be a whole number (got 1.5).",
    ),
    "true for a number": (
        "agent.max_tokens = true\n",
        "dodona.toml:1: agent.max_tokens must be a whole number (got true).",
    ),
    "a number for text": (
        "agent.model = 4\n",
        "dodona.toml:1: agent.model must be a string (got 4).",
    ),
    "an array for text": (
        'agent.model = ["a"]\n',
        "dodona.toml:1: agent.model must be a string (got an array).",
    ),
    "a section for text": (
        "[agent.model]\nx = 1\n",
        "dodona.toml:1: agent.model must be a string (got a section).",
    ),
    "a date for text": (
        "agent.model = 1979-05-27\n",
        'dodona.toml:1: agent.model must be a string (got "1979-05-27").',
    ),
    "an empty text": (
        'agent.model = ""\n',
        'dodona.toml:1: agent.model must be a non-empty string (got "").',
    ),
    "a long text": (
        f"log.level = '{'x' * 500}'\n",
        f'dodona.toml:1: log.level must be one of debug, info, warning, error (got "{"x" * 57}…).',
    ),
    "text for a section": (
        'log = "debug"\n',
        'dodona.toml:1: log must be a section (got "debug").',
    ),
    "text for named sections": (
        "agents = 1\n",
        "dodona.toml:1: agents must be a section (got 1).",
    ),
    "a misspelt choice": (
        'store.durability = "ful"\n',
        'dodona.toml:1: store.durability must be one of full, normal (got "ful"). '
        "Did you mean 'full'?",
    ),
    "a misspelt provider": (
        'agent.provider = "antropic"\n',
        'dodona.toml:1: agent.provider must be a known provider (got "antropic"). '
        "Did you mean 'anthropic'?",
    ),
    "a provider of nobody's": (
        'agent.provider = "zzz"\n',
        'dodona.toml:1: agent.provider must be a known provider (got "zzz"). '
        f"Providers: {', '.join(PROVIDER_NAMES)}.",
    ),
    "a misspelt key": (
        "[agent]\nmax_token = 4\n",
        "dodona.toml:2: unknown key agent.max_token. Did you mean 'max_tokens'?",
    ),
    "a key of nobody's": (
        "[log]\nzzz = 4\n",
        "dodona.toml:2: unknown key log.zzz. Keys of [log]: format, level.",
    ),
    "a key without its section": (
        "max_tokens = 4\n",
        "dodona.toml:1: unknown key max_tokens. It belongs under [agent].",
    ),
    "a misspelt section": (
        "\n[stor]\nurl = 'x'\n",
        "dodona.toml:2: unknown section [stor]. Did you mean 'store'?",
    ),
    "a section to come": (
        "[channels]\nport = 80\n",
        f"dodona.toml:1: unknown section [channels]. {SECTIONS}",
    ),
    "a section below": (
        "[agent.falback]\nprovider = 'openai'\n",
        "dodona.toml:1: unknown section [agent.falback]. Did you mean 'fallback'?",
    ),
    "an agent's name": (
        '[agents."a b"]\n',
        'dodona.toml:1: agents."a b" is not a valid agent name. Use up to 64 '
        "letters, digits and hyphens.",
    ),
    "a price that misses": (
        '[prices."a.b"]\ninput = 1\n',
        'dodona.toml:1: prices."a.b".output is missing. Price of output tokens.',
    ),
    "an address": (
        "agent.provider = 'ollama'\nagent.base_url = 'localhost:1'\n",
        "dodona.toml:2: agent.base_url must be an http(s) URL with only a host, port and path "
        '(got "localhost:1"). For example "http://127.0.0.1:8000/v1".',
    ),
    "a key without a provider": (
        "[agent]\napi_key = 'env:X'\nbase_url = 'http://x'\n",
        f"dodona.toml:2: agent.provider is missing: api_key depends on it. {PROVIDERS_TEXT}",
    ),
    "an address without a provider": (
        "[agents.x]\nbase_url = 'http://x'\n",
        f"dodona.toml:2: agents.x.provider is missing: base_url depends on it. {PROVIDERS_TEXT}",
    ),
    "a fallback without a provider": (
        "[agent.fallback]\nmodel = 'x'\n",
        "dodona.toml:1: agent.fallback.provider is missing: a fallback has no automatic provider. "
        f"{PROVIDERS_TEXT}",
    ),
    "a server of one's own without its address": (
        "[agent]\nprovider = 'openai-compatible'\n",
        "dodona.toml:2: agent.base_url is missing: openai-compatible requires it. The base URL "
        "of the provider's API, if not the usual one. Dodona sends an API key to a custom URL "
        "only if api_key is set.",
    ),
    "a script without its path": (
        "[agent]\nprovider = 'scripted'\n",
        "dodona.toml:2: agent.model is missing: scripted requires it. The model's name at the "
        "provider. For scripted, the path of the script. Defaults to the provider's default model.",
    ),
    "a setting without effect": (
        "[agent]\nprovider = 'extractive'\nmodel = 'x'\n",
        "dodona.toml:3: agent.model has no effect: extractive does not use it. Remove it.",
    ),
    "a password without effect": (
        "store.password = 'env:X'\n",
        "dodona.toml:1: store.password has no effect: SQLite does not use it. Remove it.",
    ),
    "a store of another kind": (
        "store.url = 'postgressql://h/db'\n",
        "dodona.toml:1: store.url must be a path, sqlite:// or postgresql:// (got postgressql://). "
        "Did you mean 'postgresql'?",
    ),
    "a store in memory": (
        "store.url = 'sqlite:///:memory:'\n",
        "dodona.toml:1: store.url must be a file. A database in memory is lost when Dodona stops.",
    ),
}


@pytest.mark.parametrize(("text", "expected"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake(text: str, expected: str) -> None:
    """File, line, key, what was found there, what to do."""
    assert told(text) == expected


def test_every_mistake_is_told_at_once() -> None:
    """In the order of lines; one does not hide another, not even in the same section."""
    text = told(
        "[agent]\nprovider = 'extractive'\nmodel = 'x'\nmax_tokens = 0\n[agent.fallback]\n"
        "[store]\nurl = ''\npassword = 4\n[x]\n"
    )
    assert text.splitlines() == [
        "dodona.toml:3: agent.model has no effect: extractive does not use it. Remove it.",
        "dodona.toml:4: agent.max_tokens must be > 0 (got 0).",
        "dodona.toml:5: agent.fallback has no effect: extractive does not use it. Remove it.",
        "dodona.toml:5: agent.fallback.provider is missing: a fallback has no automatic provider. "
        + PROVIDERS_TEXT,
        'dodona.toml:7: store.url must be a non-empty string (got "").',
        "dodona.toml:8: store.password must be a string.",
        "dodona.toml:8: store.password has no effect: SQLite does not use it. Remove it.",
        f"dodona.toml:9: unknown section [x]. {SECTIONS}",
    ]


LEAKS = {
    "a literal key": f"agent.provider = 'anthropic'\nagent.api_key = '{KEY}'\n",
    "a key of another kind": f"agent.provider = 'anthropic'\nagent.api_key = ['{KEY}']\n",
    "a key as a variable": f"agent.provider = 'anthropic'\nagent.api_key = 'env:{KEY}'\n",
    "a key under a wrong name": f"agent.apikey = '{KEY}'\n",
    "a key in a wrong section": f"[agnt]\napi_key = '{KEY}'\n",
    "a key for a model": f"agent.model = 4\nlog.level = '{KEY}'\n",
    "a password in an address": f"store.url = 'postgresql://me:{KEY}@host/db'\n",
    "a password as a parameter": f"store.url = 'postgresql://host/db?sslmode=x&password={KEY}'\n",
    "a password in a strange address": f"store.url = 'mysql://me:{KEY}@host/db'\n",
    "a password in an address of a provider": "agent.provider = 'openai-compatible'\n"
    f"agent.base_url = 'https://me:{KEY}@host'\n",
    "a key in broken text": f"agent.api_key = {KEY}\n",
}


@pytest.mark.parametrize("text", LEAKS.values(), ids=LEAKS.keys())
def test_no_mistake_tells_a_secret(text: str) -> None:
    """Wherever it was written, it is neither in the text nor in the JSON of the error."""
    with pytest.raises(ConfigError) as caught:
        loaded(text)
    assert KEY not in as_text(caught.value)
    assert KEY not in str(as_json(caught.value))


def test_a_password_in_the_address_is_refused_in_the_file_only() -> None:
    """The environment is where secrets may be."""
    url = "postgresql://me:a-password@host/db"
    assert told(f"store.url = '{url}'\n") == (
        "dodona.toml:1: store.url must not contain a password. Remove it and add: "
        'password = "env:PGPASSWORD". Or set the whole URL in the environment as '
        "DODONA_STORE__URL."
    )
    assert load_config({"DODONA_STORE__URL": url}, Path("/dev/null")).settings.store.url == url


# -- what is no config file ------------------------------------------------------------------

NO_TOML: dict[str, tuple[str | bytes, str]] = {
    "no value": (
        "[agent]\nmodel = gpt\n",
        "dodona.toml:2:9: invalid TOML: invalid value. Put text in quotes.",
    ),
    "twice": (
        "a = 1\na = 2\n",
        "dodona.toml:2:6: invalid TOML: cannot overwrite a value. "
        "This key is set twice. Remove one.",
    ),
    "a section twice": (
        "[log]\n[log]\n",
        "dodona.toml:2:5: invalid TOML: cannot declare ('log',) twice. "
        "This section is declared twice. Merge the two.",
    ),
    "no end": (
        'a = """\n\n',
        "dodona.toml:3: invalid TOML: unterminated string.",
    ),
    "a number without end": (
        f"a = {'9' * 5000}\n",
        "dodona.toml: invalid TOML: exceeds the limit",
    ),
    "binary": (
        b"\x7fELF\x02\xff\xfe",
        "dodona.toml:1: the file is not valid UTF-8. Is it the right file?",
    ),
    "latin-1": (
        "# ok\n# caf\xe9\n".encode("latin-1"),
        "dodona.toml:2: the file is not valid UTF-8. Is it the right file?",
    ),
    "too long": (
        b"x" * (MAX_CONFIG_BYTES + 1),
        f"dodona.toml: the config file is larger than {MAX_CONFIG_BYTES:,} bytes. Is it the "
        "right file?",
    ),
    "arrays in arrays": (
        "a = " + "[" * 100_000,
        "dodona.toml: keys or values are nested more than 64 levels deep. Is it the right file?",
    ),
    "keys in keys": (
        "a" + ".a" * 400_000 + " = 1",
        "dodona.toml:1: keys or values are nested more than 64 levels deep. Is it the right file?",
    ),
    "tables in tables": (
        "\na = " + "{a = " * 100 + "1" + "}" * 100,
        "dodona.toml:2: keys or values are nested more than 64 levels deep. Is it the right file?",
    ),
}


@pytest.mark.parametrize(("text", "expected"), NO_TOML.values(), ids=NO_TOML.keys())
def test_what_is_no_config_file_is_told(text: str | bytes, expected: str) -> None:
    """With its line and column where there is one, and never with a stack trace."""
    assert told(text).startswith(expected)


def test_a_folder_is_no_config_file() -> None:
    """The operating system's reason is told."""
    Path("dodona.toml").mkdir()
    with pytest.raises(ConfigError) as caught:
        load_config({})
    assert str(caught.value) == (
        "dodona.toml: the config file cannot be read: Is a directory. "
        "Check that it is a file and that you have permission to read it."
    )

"""The settings of what a run needs: where it listens, where notes are, what it may spend."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from dodona.app.config.config import load_config
from dodona.app.config.settings import Settings
from dodona.core.errors import ConfigError, as_text

NO_MORE = "A fallback always uses the value of its agent."


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A current folder and a home of their own."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


def read(text: str, environment: Mapping[str, str] | None = None) -> Settings:
    Path("dodona.toml").write_text(text, encoding="utf-8")
    return load_config(environment or {}, Path("dodona.toml")).settings


def test_nothing_has_to_be_set() -> None:
    """Zero configuration listens on loopback, has no ceilings, and follows the shipped tree."""
    settings = load_config({}).settings
    assert (settings.gateway.host, settings.gateway.port) == ("127.0.0.1", 7200)
    assert (settings.vault.path, settings.agent.tree) == (None, None)
    assert (settings.context.idle_minutes, settings.context.token_budget) == (1440, 16_000)
    for scope in ("session", "agent", "user", "daily", "monthly"):
        budget = getattr(settings.budgets, scope)
        assert (budget.tokens, budget.usd) == (None, None)


def test_all_of_it_can_be_set() -> None:
    """In the file, and in the environment before it."""
    settings = read(
        "[agent]\ntree = 'mine.lisp'\n[gateway]\nport = 0\n[vault]\npath = 'notes'\n"
        "[context]\nidle_minutes = 1\ntoken_budget = 4000\n"
        "[budgets]\ndaily = { usd = 5 }\n[budgets.session]\ntokens = 0\n",
        {"DODONA_GATEWAY__PORT": "81", "DODONA_BUDGETS__MONTHLY__USD": "2.5"},
    )
    assert (settings.agent.tree, settings.vault.path) == ("mine.lisp", "notes")
    assert settings.gateway.port == 81
    assert (settings.context.idle_minutes, settings.context.token_budget) == (1, 4000)
    assert (settings.budgets.daily.usd, settings.budgets.monthly.usd) == (5, 2.5)
    assert settings.budgets.session.tokens == 0


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[gateway]\nport = 65536", "gateway.port must be <= 65535 (got 65536)."),
        ("[gateway]\nport = -1", "gateway.port must be >= 0 (got -1)."),
        ("[gateway]\nport = '80'", 'gateway.port must be a whole number (got "80").'),
        ("[gateway]\nhost = ''", 'gateway.host must be a non-empty string (got "").'),
        ("[vault]\npath = ''", 'vault.path must be a non-empty string (got "").'),
        ("[context]\nidle_minutes = 0", "context.idle_minutes must be >= 1 (got 0)."),
        ("[context]\ntoken_budget = 3999", "context.token_budget must be >= 4000 (got 3999)."),
        (
            "[context]\ntoken_budget = 128001",
            "context.token_budget must be <= 128000 (got 128001).",
        ),
        ("[budgets.daily]\nusd = -1", "budgets.daily.usd must be >= 0 (got -1)."),
        ("[budgets.user]\ntokens = 1.5", "budgets.user.tokens must be a whole number (got 1.5)."),
        (
            "[agent.fallback]\nprovider = 'extractive'\ntree = 'x.lisp'",
            f"agent.fallback must not set tree (got a section). {NO_MORE}",
        ),
    ],
)
def test_what_is_out_of_bounds_is_refused(text: str, told: str) -> None:
    """With the key, the bound, and what was found."""
    with pytest.raises(ConfigError) as caught:
        read(text)
    assert as_text(caught.value).partition(": ")[2] == told


def test_an_unknown_budget_is_told() -> None:
    """A ceiling that is misspelt would be none."""
    with pytest.raises(ConfigError, match="Did you mean 'daily'"):
        read("[budgets.dayly]\nusd = 1")

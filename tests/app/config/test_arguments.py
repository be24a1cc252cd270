"""Settings that a program passes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dodona.app.config.arguments import apply_arguments
from dodona.app.config.config import parse_config
from dodona.core.errors import ConfigError
from dodona.documents import parse_document


@pytest.mark.parametrize(
    ("settings", "table", "paths"),
    [
        ({"a": {"b": 1}}, {"a": {"b": 1, "x": 0}}, [("a", "b")]),
        ({"a": {"x": None}}, {"a": {}}, []),
        ({"a": None}, {}, []),
        ({"c": {}}, {"a": {"x": 0}, "c": {}}, [("c",)]),
        (
            {"c": [Path("d"), {"e": (1,)}]},
            {"a": {"x": 0}, "c": ["d", {"e": [1]}]},
            [("c",), ("c", 0), ("c", 1), ("c", 1, "e"), ("c", 1, "e", 0)],
        ),
        (
            {"budgets": {"daily": 5}},
            {"a": {"x": 0}, "budgets": {"daily": {"tokens": 5}}},
            [("budgets",), ("budgets", "daily"), ("budgets", "daily", "tokens")],
        ),
        ({"a": {"x": {"y": 1}}}, {"a": {"x": {"y": 1}}}, [("a", "x"), ("a", "x", "y")]),
    ],
)
def test_settings_are_merged(
    settings: dict[str, Any], table: dict[str, Any], paths: list[tuple[str | int, ...]]
) -> None:
    """Key by key into the table, as a file would write them; None removes."""
    merged: dict[str, Any] = {"a": {"x": 0}}
    applied = list(apply_arguments(merged, {"open()": settings}))
    assert merged == table
    assert applied == [(path, "open()") for path in paths]


def test_paths_are_relative_to_the_current_folder(tmp_path: Path) -> None:
    """As those in variables are; those in the file to its folder."""
    document = parse_document(tmp_path / "my.toml", '[vault]\npath = "a"\n[extend]\npython = []\n')
    arguments = {"open(settings=…)": {"extend": {"python": ["mine.py"]}}}
    config = parse_config(document, {}, arguments=arguments)
    assert config.resolve("mine.py", ("extend", "python", 0)) == Path("mine.py")
    assert config.resolve("a", ("vault", "path")) == tmp_path / "a"


def test_secrets_are_not_shown() -> None:
    """As for a file."""
    arguments = {"open(settings=…)": {"agent": {"api_key": "sk-secret"}}}
    with pytest.raises(ConfigError) as error:
        parse_config(None, {}, arguments=arguments)
    assert "sk-secret" not in str(error.value)
    assert str(error.value).startswith("open(settings=…): agent.api_key ")

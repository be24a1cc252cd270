"""The JSON Schema of the config file: editors take it, and it says what Dodona says."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import jsonschema_rs
import pytest

from dodona.app.config.json_schema import DIALECT, json_schema
from dodona.app.config.settings import Settings
from tests.app.config.test_validation import WHOLE
from tests.app.test_mangled_config import GOOD

SCHEMA = json_schema()
JUDGE = jsonschema_rs.Draft7Validator(SCHEMA)


def is_right(text: str) -> bool:
    return JUDGE.is_valid(tomllib.loads(text))


def test_it_is_a_schema_of_every_section() -> None:
    """In the dialect that editors of TOML know; each key is described."""
    assert SCHEMA["$schema"] == DIALECT
    assert jsonschema_rs.meta.is_valid(SCHEMA)
    assert set(SCHEMA["properties"]) == set(Settings.model_fields)
    agent = SCHEMA["definitions"]["AgentSection"]["properties"]
    assert all(value.get("description") for key, value in agent.items() if key != "timeouts")


def test_it_has_no_null() -> None:
    """TOML has none."""
    assert "null" not in json.dumps(SCHEMA)


@pytest.mark.parametrize("text", [GOOD, WHOLE, "", "[budgets.daily]\ntokens = 5\n"])
def test_what_dodona_takes_is_right(text: str) -> None:
    """Sources of secrets, lists, names of one's own, plain numbers."""
    assert list(JUDGE.iter_errors(tomllib.loads(text))) == []


WRONG: dict[str, Any] = {
    "a key": "[agent]\napi_key = 'sk-ant-of-this-example'\n",
    "a password": "[store]\npassword = 'secret'\n",
    "an unknown key": "[agent]\nmodle = 'x'\n",
    "an unknown section": "[stor]\n",
    "a provider": "[agent]\nprovider = 'anthropic!'\n",
    "a name": "[agents.'a b']\n",
    "a binding of everybody": "[[bindings]]\nagent_id = 'x'\n",
    "a section for several": "[bindings]\nagent_id = 'x'\n",
    "a part of a budget": "budgets.daily = 1.5\n",
    "less than no budget": "budgets.daily = -1\n",
    "a limit": "agent.max_tokens = 0\n",
    "text for a list": "code.paths = 'src'\n",
    "a capability": "[[plugins]]\nname = 'x'\npath = 'x'\ncapabilities = ['x']\n",
    "an engine": "engine.kind = 'restate'\n",
    "a server of two kinds": "[mcp.x]\nurl = 'http://x'\ncommand = 'x'\n",
    "a fallback of a fallback": "[agent.fallback.fallback]\nprovider = 'x y'\n",
}


@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG.keys())
def test_what_dodona_refuses_is_wrong(text: str) -> None:
    """As far as a key can be judged by itself."""
    assert not is_right(text)

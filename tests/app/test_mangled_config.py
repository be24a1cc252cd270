"""No TOML, however mangled, yields anything but a config or a list of mistakes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from dodona.app.config import shape as schema
from dodona.app.config.config import Config, load_config
from dodona.app.config.settings import Settings
from dodona.core.errors import ConfigError, as_json, as_text
from dodona.documents import KeyPath
from dodona.documents.toml_editing import format_toml_key, format_toml_value

GOOD = """\
# who answers
[agent]
provider = "openai-compatible"
base_url = "http://127.0.0.1:9000/v1"
tools = ["vault_read", "echo"]
[agent.fallback]
provider = "extractive"
[agents.night-shift]
model = "qwen3"
max_tokens = 100
[[bindings]]
agent_id = "night-shift"
channel = "telegram"
[[plugins]]
name = "echo"
path = "echo.wasm"
capabilities = ["http:example.org", "store:x"]
[mcp.files]
command = "files"
env = { TOKEN = "env:TOKEN" }
[budgets]
daily = 500000
monthly = { usd = 1.5 }
[engine]
kind = "local"
[store]
url = "postgresql://x@127.0.0.1/y"
password = "env:PGPASSWORD"
[prices."gpt-4.1"]
input = 1
output = 2
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mangled") / "x.toml"


def outcome(file: Path, raw: bytes, **environment: str) -> Config | ConfigError:
    """Anything else that is raised is a stack trace for somebody. Mistakes can be printed."""
    file.write_bytes(raw)
    try:
        return load_config({"DODONA_HOME": "/nowhere", **environment}, file)
    except ConfigError as error:
        told = error
    assert as_text(told).encode()
    assert as_json(told)
    assert all(str(problem) for problem in told.problems())
    return told


MANGLED = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None
)


def test_the_good_file_is_good(file: Path) -> None:
    """What the tests below mangle."""
    assert isinstance(outcome(file, GOOD.encode()), Config)


@MANGLED
@given(raw=st.binary(max_size=300))
@example(raw=b"\xef\xbb\xbf")
@example(raw=b"agent = 1\n[agent]\n")
@example(raw=b"[agent]\n[agent]\n")
@example(raw=b"[[agent]]\n")
@example(raw=b"[bindings]\n[[bindings]]\n")
@example(raw=b"bindings = [[[[1]]]]\n")
@example(raw=b"[[bindings]]\n[bindings.agent_id]\nx = 1\n")
@example(raw=b"[[plugins]]\n[[plugins.capabilities]]\n")
@example(raw=b"[mcp]\nx = 1\n")
@example(raw=b'[mcp."\\u0000"]\nurl = "\\u0000"\n')
@example(raw=b'[agent]\nsoul_path = "~nobody-of-this-name/x"\n')
@example(raw=b'[agent]\nsoul_path = "\\u0000"\n')
@example(raw=b'[agent]\nprovider = "anthropic"\nmax_tokens = 99999999999999999999999999\n')
@example(raw=b"[budgets]\ndaily = 99999999999999999999999999\n")
@example(raw=b"[agent]\ntools = [[], {}, 1, '']\n")
@example(raw=b"[agents]\nx = 1\n[agent]\nid = 5\n[[bindings]]\nagent_id = {}\n")
@example(raw=b"a = 1979-05-27T07:32:00Z\nagent.model = 07:32:00\n")
@example(raw=b'agent.provider = "\\U0001F600"\n')
@example(raw=b"[agent" + b".fallback" * 63 + b"]\n")
@example(raw=b"agent = " + b"{fallback = " * 60 + b"{}" + b"}" * 60)
@example(raw=b"x = " + b"[" * 5000)
@example(raw=b"x = " + b"{a=" * 5000)
def test_bytes(file: Path, raw: bytes) -> None:
    """Text or not."""
    outcome(file, raw)


@MANGLED
@given(seed=st.integers(0, 2**32))
def test_a_good_file_with_bytes_changed(file: Path, seed: int) -> None:
    """A byte lost, doubled, swapped or replaced; a line moved or written twice."""
    chance = random.Random(seed)  # noqa: S311 - of no secret
    raw = bytearray(GOOD.encode())
    for _ in range(chance.randint(1, 4)):
        place = chance.randrange(len(raw))
        match chance.randrange(5):
            case 0:
                del raw[place : place + chance.randint(1, 12)]
            case 1:
                raw[place:place] = raw[place : place + chance.randint(1, 40)]
            case 2:
                raw[place] = chance.choice(b"\"'[]{}=.,#\n\x00\xff0\\")
            case 3:
                lines = raw.split(b"\n")
                lines.insert(chance.randrange(len(lines)), chance.choice(lines))
                raw = bytearray(b"\n".join(lines))
            case _:
                lines = raw.split(b"\n")
                chance.shuffle(lines)
                raw = bytearray(b"\n".join(lines))
    outcome(file, bytes(raw))


def paths(above: KeyPath = (), depth: int = 0) -> Iterator[KeyPath]:
    """Every section and key that there is; names and places of one's own are made up."""
    for name in schema.fields(above):
        path: KeyPath = (*above, name)
        yield path
        found = schema.at(path)
        if schema.entry_type(found):
            path = (*path, "some")
            yield path
        elif schema.is_list_of_sections(path):
            path = (*path, 0)
        if depth < 4:
            yield from paths(path, depth + 1)


KNOWN = sorted(set(paths()), key=str)
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    st.sampled_from(["env:X", "file:x", "http://x", "local", "restate", "oracle", "librarian"]),
    st.sampled_from(["../..", "~", "~x/y", "/dev/zero", "/", "extractive", "openai", "gpt-4o"]),
    st.dates(),
    st.times(),
)
VALUES = st.recursive(
    ODD.filter(lambda value: value is not None),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)


def nested(path: KeyPath, value: Any) -> str:
    """One line of TOML that puts the value at the path."""
    for place in range(len(path) - 1, -1, -1):
        if isinstance(path[place], int):
            names = path[place + 1 :]
            value = [{str(names[0]): value} if names else value]
            path = path[:place]
    return f"{format_toml_key(path)} = {format_toml_value(value)}\n"


@MANGLED
@given(pairs=st.lists(st.tuples(st.sampled_from(KNOWN), VALUES), max_size=6))
@pytest.mark.slow
def test_any_value_at_any_key(file: Path, pairs: list[tuple[KeyPath, Any]]) -> None:
    """Of whatever type; some of them twice."""
    outcome(file, "".join(nested(*pair) for pair in pairs).encode(errors="replace"))


@MANGLED
@given(
    path=st.sampled_from([path for path in KNOWN if all(isinstance(n, str) for n in path)]),
    text=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
    | st.sampled_from(["\udcff", "1", "-1", "true", "a,b", "env:X", "500000"]),
)
def test_any_variable(file: Path, path: KeyPath, text: str) -> None:
    """With a file that is good, and one that is not."""
    variable = "DODONA_" + "__".join(str(name).upper() for name in path)
    outcome(file, GOOD.encode(), **{variable: text})
    outcome(file, b"agent = 1\nbudgets = []\n", **{variable: text})


def test_every_key_is_among_the_paths() -> None:
    """What is set nowhere here would not be tried."""
    assert {path[0] for path in KNOWN} == set(Settings.model_fields)
    assert ("agent", "fallback", "timeouts", "gap") in KNOWN
    assert ("bindings", 0, "peer_id") in KNOWN
    assert ("mcp", "some", "env", "some") in KNOWN

"""The config while Dodona runs: what can change does, a mistake changes nothing."""

from __future__ import annotations

import asyncio
import logging
import os
from functools import partial
from pathlib import Path

import pytest

from dodona.app.config.config import Config, load_config
from dodona.app.config.reload import ConfigReloader, changed_keys

NOTED: list[str] = []


class Taker:
    """Remembers what it was given."""

    def __init__(self) -> None:
        self.taken: list[Config] = []

    async def __call__(self, config: Config) -> None:
        self.taken.append(config)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "dodona.toml"


def reread(file: Path) -> Config:
    return load_config({"DODONA_HOME": str(file.parent)}, file)


def write(file: Path, text: str) -> None:
    file.write_text(text)


async def reloading(file: Path, text: str, **live: Taker) -> ConfigReloader:
    write(file, text)
    again = partial(reread, file)
    takers = {(name,): take for name, take in live.items()}
    NOTED.clear()
    return await asyncio.to_thread(lambda: ConfigReloader(again(), again, takers, NOTED.append))


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


async def test_what_has_changed_is_taken(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    """By whom it concerns, once, however much of it changed; and it is told."""
    caplog.set_level(logging.INFO, logger="dodona")  # other tests may have set it
    log, context = Taker(), Taker()
    live = await reloading(file, "[log]\nlevel = 'info'\n", log=log, context=context)
    await live.reload()
    assert told(caplog) == []
    write(file, "[log]\nlevel = 'debug'\nformat = 'json'\n")
    await live.reload()
    assert [taken.settings.log.level for taken in log.taken] == ["debug"]
    assert context.taken == []
    assert told(caplog) == ["config: changed: log.level, log.format"]
    assert NOTED == ["config changed: log.level, log.format"]
    await live.reload()
    assert len(log.taken) == 1


async def test_what_cannot_change_is_told(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Once, with its name; what stands beside it changes."""
    caplog.set_level(logging.INFO, logger="dodona")  # other tests may have set it
    log = Taker()
    live = await reloading(file, "", log=log)
    write(file, "[gateway]\nport = 7300\n[log]\nlevel = 'error'\n")
    await live.reload()
    await live.reload()
    assert len(log.taken) == 1
    assert told(caplog) == [
        "config: changed: log.level",
        "config: restart required: gateway.port",
    ]


async def test_a_mistake_changes_nothing(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is told once, with its place, until another is made; mended, all is taken."""
    log = Taker()
    live = await reloading(file, "", log=log)
    write(file, "[log]\nlevel = 'debug'\nlevl = 1\n")
    for _ in range(2):
        await live.reload()
    assert log.taken == []
    (said,) = told(caplog)
    assert "keeping the previous one" in said
    assert "dodona.toml:3" in said
    assert "Did you mean 'level'?" in said
    write(file, "[log]\nlevel = 'debug'\n")
    await live.reload()
    assert len(log.taken) == 1


async def test_a_file_that_is_gone_is_no_config(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An editor that replaces it leaves a moment without: nothing falls back to defaults."""
    log = Taker()
    live = await reloading(file, "[log]\nlevel = 'debug'\n", log=log)
    os.unlink(file)
    await live.reload()
    assert log.taken == []
    assert "does not exist" in told(caplog)[0]


async def test_a_soul_is_followed(file: Path) -> None:
    """Its file is no part of the config, and counts as if it were."""
    soul = file.parent / "soul.md"
    write(soul, "An oak.")
    agents = Taker()
    live = await reloading(file, "[agents.work]\nsoul_path = 'soul.md'\n", agents=agents)
    await live.reload()
    assert agents.taken == []
    write(soul, "A beech, that is.")
    await live.reload()
    assert len(agents.taken) == 1


async def test_who_cannot_take_it_keeps_the_old(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What is refused when it is taken is tried again with the next change, not forgotten."""
    log = Taker()
    soul = file.parent / "soul.md"
    write(soul, "x")
    agent = "[agents.a]\nsoul_path = 'soul.md'\n"
    live = await reloading(file, agent, log=log)
    os.unlink(soul)
    write(file, f"{agent}[log]\nlevel = 'debug'\n")
    await live.reload()
    assert log.taken == []
    assert "soul" in told(caplog)[0]
    write(soul, "x")
    await live.reload()
    assert len(log.taken) == 1


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ("", "[agents.a]\nmodel = 'x'", [("agents", "a")]),
        ("[agents.a]\nmodel = 'x'", "[agents.a]\nmodel = 'y'", [("agents", "a", "model")]),
        ("[agents.a]", "", [("agents", "a")]),
        ("[agent.timeouts]\ngap = 1.5", "", [("agent", "timeouts", "gap")]),
        (
            "[[bindings]]\nagent_id = 'oracle'\nchannel = 'a'",
            "[[bindings]]\nagent_id = 'oracle'\nchannel = 'b'",
            [("bindings",)],
        ),
    ],
)
def test_differences(file: Path, old: str, new: str, changed: list[tuple[str, ...]]) -> None:
    """The keys that are not the same; a list is one key."""
    both = []
    for text in (old, new):
        file.write_text(text)
        both.append(reread(file).settings)
    assert [*changed_keys((), *both)] == changed

"""The subscribers there are: shipped and users' own, as their files are now."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dodona.core.domain.notices import InjectionPoint
from dodona.notify import BUILTIN_SUBSCRIBERS, Inbox, SubscriberRegistry
from tests.notify.subscribing import Folder, event

LIMIT = 20.0
TEXT = '[subscriber]\nid = "{id}"\n[events]\ntypes = ["made.up"]\n[output]\ntemplate = "{says}"\n'


def test_a_bad_file_is_told_and_the_others_load(folder: Folder) -> None:
    """Each mistake of it, and no subscriber."""
    folder.write("a", TEXT.format(id="good", says="hi"))
    folder.write("b", "[subscriber\n")
    folder.write("c", TEXT.format(id="bad", says="{{ no }}") + "kep = true\n")
    folder.subscribers.load()
    assert [each["id"] for each in folder.subscribers.list()] == ["good"]
    told = [each.replace(f"{folder.path}/", "") for each in folder.subscribers.problems()]
    assert told == [
        "b.toml:1:12: invalid TOML: expected ']' at the end of a table declaration.",
        "c.toml:6: output.template is invalid: the template uses an undefined value: 'no' is "
        "undefined. Available variables: count, event, events, payload, rows.",
        "c.toml:7: unknown key output.kep. Did you mean 'keep'?",
    ]


def test_an_id_is_there_once(tmp_path: Path) -> None:
    """The first keeps it, so that nobody can take the place of a shipped one."""
    own = tmp_path / "own"
    own.mkdir()
    file = own / "mine.toml"
    file.write_text(TEXT.format(id="budget_exceeded", says=""))
    subscribers = SubscriberRegistry([own])
    subscribers.load()
    assert subscribers.problems() == (
        f"{file}: subscriber 'budget_exceeded' already exists in "
        f"{BUILTIN_SUBSCRIBERS / 'budget_exceeded.toml'}. Choose another id.",
    )
    (found,) = [each for each in subscribers.list() if each["id"] == "budget_exceeded"]
    assert found["core"]


def test_folders_are_added_to_those_that_are_shipped(tmp_path: Path) -> None:
    """One of a user's, those of packs, and one that is not there."""
    for name in ("own/a", "packs/one/subscribers/b", "packs/two/subscribers/c"):
        file = tmp_path / f"{name}.toml"
        file.parent.mkdir(parents=True)
        file.write_text(TEXT.format(id=file.stem, says=""))
    folders = (tmp_path / "own", tmp_path / "packs/*/subscribers", tmp_path / "none")
    subscribers = SubscriberRegistry(folders)
    subscribers.load()
    ids = [each["id"] for each in subscribers.list()]
    assert ids[-3:] == ["a", "b", "c"]
    assert len(ids) == len(list(BUILTIN_SUBSCRIBERS.iterdir())) + 3


def test_a_live_inbox_uses_what_is_loaded_from_the_next_event_on(folder: Folder) -> None:
    """What it heard before is told too."""
    inbox = Inbox(folder.subscribers)
    inbox.receive(event("made.up"))
    folder.write("a", TEXT.format(id="a", says="one"))
    folder.subscribers.load()
    inbox.receive(event("made.up"))
    folder.write("a", TEXT.format(id="a", says="two {{ count }}"))
    folder.subscribers.load()
    inbox.receive(event("made.up"))
    assert [each.text for each in inbox.drain(InjectionPoint.TURN_START)] == ["two 2"]
    (folder.path / "a.toml").unlink()
    folder.subscribers.load()
    inbox.receive(event("made.up"))
    assert inbox.drain(*InjectionPoint) == []


def test_reloading_tells_of_a_problem_once(
    folder: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    """A file that stays bad is not told again with each change of another."""
    file = folder.write("a", "x = 1\n[subscriber]\n[events]\n[output]\n")
    folder.subscribers.reload()
    assert len(caplog.messages) == 4
    assert caplog.messages[0] == (
        f"skipped a subscriber: {file}:1: unknown key x. "
        "Sections: batching, events, output, subscriber."
    )
    folder.subscribers.reload()
    assert len(caplog.messages) == 4


async def test_a_file_that_is_added_works_within_a_second_or_so(folder: Folder) -> None:
    """Also for a run that goes on; a bad one changes nothing, a folder may come later."""
    path = folder.path / "later"
    subscribers = SubscriberRegistry([path], builtin=folder.path, clock=folder.clock)
    async with subscribers.watching(), asyncio.timeout(LIMIT):
        inbox = Inbox(subscribers)
        path.mkdir()
        (path / "a.toml").write_text(TEXT.format(id="a", says="heard"))
        while not inbox.has_notices(InjectionPoint.TURN_START):
            await asyncio.sleep(0.01)
            inbox.receive(event("made.up"))
        assert inbox.drain(InjectionPoint.TURN_START)[0].text == "heard"
        (path / "b.toml").write_text("no")
        while not subscribers.problems():  # noqa: ASYNC110 - nobody tells that a file was read
            await asyncio.sleep(0.01)
        inbox.receive(event("made.up"))
        assert inbox.drain(InjectionPoint.TURN_START)[0].text == "heard"

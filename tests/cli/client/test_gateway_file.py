"""`gateway.json`: how commands find the gateway, and what they do not believe."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from dodona.cli.client.gateway_file import GATEWAY_FILE_NAME, Announcement

URL = "http://127.0.0.1:7200"


def mine(pid: int = os.getpid()) -> Announcement:
    return Announcement(URL, pid, "/x/dodona.db")


def test_what_was_written_is_found(tmp_path: Path) -> None:
    """By its user alone; a second one takes the place of the first."""
    home = tmp_path / "home"
    mine().write(home)
    mine().write(home)
    assert Announcement.read(home) == mine()
    assert stat.S_IMODE((home / GATEWAY_FILE_NAME).stat().st_mode) == 0o600
    assert os.listdir(home) == [GATEWAY_FILE_NAME]


def test_the_folders_are_told_too(tmp_path: Path) -> None:
    """Where the notes and the code are; an announcement that does not say is one all the same."""
    whole = Announcement(URL, os.getpid(), "/x", vault="/notes", code=("/a", "/b"))
    whole.write(tmp_path)
    assert Announcement.read(tmp_path) == whole
    bare = {"url": URL, "pid": os.getpid(), "store": "/x"}
    (tmp_path / GATEWAY_FILE_NAME).write_text(json.dumps(bare), encoding="utf-8")
    assert Announcement.read(tmp_path) == Announcement(URL, os.getpid(), "/x")


def test_it_is_removed_by_who_wrote_it(tmp_path: Path) -> None:
    """Not by a process that stops after another has started."""
    mine().write(tmp_path)
    Announcement("http://127.0.0.1:1", os.getpid(), "").remove(tmp_path)
    assert Announcement.read(tmp_path) == mine()
    mine().remove(tmp_path)
    assert Announcement.read(tmp_path) is None
    mine().remove(tmp_path)


def test_that_of_a_dead_process_is_ignored(tmp_path: Path) -> None:
    """Another program may have its port by now."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait(timeout=30)
    mine(ended.pid).write(tmp_path)
    assert Announcement.read(tmp_path) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "{}",
        json.dumps({"url": URL, "pid": "x", "store": ""}),
        json.dumps({"url": URL, "pid": 0, "store": ""}),
        json.dumps({"url": URL, "pid": -1, "store": ""}),
        json.dumps({"url": URL, "pid": 10**30, "store": ""}),
        json.dumps({"url": "http://example.org:7200", "pid": 4242, "store": ""}),
        json.dumps({"url": "http://[", "pid": 4242, "store": ""}),
        json.dumps({"url": None, "pid": 4242, "store": ""}),
        json.dumps({"url": URL, "pid": 4242, "store": "", "code": 1}),
    ],
)
def test_what_makes_no_sense_is_ignored(tmp_path: Path, text: str) -> None:
    """And so is an address of another machine: questions stay here."""
    told = text.replace("4242", str(os.getpid()))  # alive, and not in the test's name
    (tmp_path / GATEWAY_FILE_NAME).write_text(told, encoding="utf-8")
    assert Announcement.read(tmp_path) is None

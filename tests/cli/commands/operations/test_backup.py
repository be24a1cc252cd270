"""`dodona backup`, run as people run it, beside a gateway too."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from dodona.store.db.migrate import NEWEST_REVISION
from tests.cli.running import Started, Up, dodona, until

pytestmark = pytest.mark.timeout(180)

TOLD = rf"[\d,]+ rows in \d+ tables, [\d,]+ bytes, schema {NEWEST_REVISION}, created 20\S+"


def test_while_a_gateway_runs(tmp_path: Path, scripted: Callable[[str], None]) -> None:
    """It is backed up while it answers; it is not replaced until it has stopped."""
    scripted("answers = ['One.', 'Two.']\n# api_key = sk-ant-planted-0123456789abcdef\n")
    config = tmp_path / "dodona.toml"
    with config.open("a") as file:
        file.write("# sk-ant-planted-0123456789abcdef0123456789abcdef\n")
    with Up(tmp_path) as up:
        assert dodona(tmp_path, "ask", "First?").stdout == "One.\n"
        done = dodona(tmp_path, "backup", "create", "copy")
        assert re.fullmatch(rf"copy: {TOLD}\n", done.stdout), done.stderr
        assert dodona(tmp_path, "ask", "Second?").stdout == "Two.\n"
        refused = dodona(tmp_path, "backup", "restore", "copy", "--force")
        assert refused.returncode == 4
        assert re.search(
            rf"is in use by process {up.process.pid} on .*Stop the gat", refused.stderr
        )
        up.interrupt()
        assert up.ended() == 0
    assert "sk-ant-planted" not in (tmp_path / "copy" / "config.toml").read_text()
    assert "provider = 'scripted'" in (tmp_path / "copy" / "config.toml").read_text()

    done = dodona(tmp_path, "backup", "verify", "copy")
    assert re.fullmatch(rf"copy: {TOLD}\n  ✓ files\n  ✓ rows\n  ✓ schema\n", done.stdout)
    done = dodona(tmp_path, "backup", "restore", "copy")
    assert (done.returncode, done.stdout) == (2, "")
    assert "With --force, it is kept next to the restored one." in done.stderr
    told = json.loads(dodona(tmp_path, "backup", "restore", "copy", "--force", "--json").stdout)
    assert told["kept"] == f"{told['store']}.before-restore"
    runs = json.loads(dodona(tmp_path, "run", "list", "--json").stdout)
    assert [run["question"] for run in runs["runs"]] == ["First?"]


def test_a_damaged_one(tmp_path: Path) -> None:
    """The exit code tells."""
    dodona(tmp_path, "db", "migrate")
    assert dodona(tmp_path, "backup", "create").returncode == 0
    (folder,) = tmp_path.glob("dodona-backup-*")
    file = folder / "store.db"
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    done = dodona(tmp_path, "backup", "verify", folder.name, "--json")
    told = json.loads(done.stdout)
    assert (done.returncode, told["ok"]) == (4, False)
    assert told["checks"]["files"] == ["store.db has changed since it was written"]
    assert dodona(tmp_path, "backup", "verify", "nowhere").returncode == 2


def test_a_restore_that_is_killed_leaves_the_store_as_it_was(tmp_path: Path) -> None:
    """Written beside: what it leaves is a file that nobody takes for the store."""
    dodona(tmp_path, "db", "migrate")
    file = tmp_path / ".dodona" / "dodona.db"
    with closing(sqlite3.connect(file)) as db, db:
        db.execute(
            "INSERT INTO pins VALUES ('large', zeroblob(150000000), 0)"  # some time to be killed
        )
    dodona(tmp_path, "backup", "create", "copy")
    with closing(sqlite3.connect(file)) as db, db:
        db.execute("INSERT INTO settings VALUES ('ada', '{}', 0)")
    with Started(tmp_path, "backup", "restore", "copy", "--force") as restoring:
        until(lambda: [*file.parent.glob(".*.restoring-*")] or restoring.process.poll() is not None)
        restoring.process.kill()
        assert restoring.ended() == -9
    with closing(sqlite3.connect(file)) as db:
        assert db.execute("SELECT count(*) FROM settings").fetchone() == (1,)
    assert dodona(tmp_path, "backup", "restore", "copy", "--force").returncode == 0
    with closing(sqlite3.connect(file)) as db:
        assert db.execute("SELECT count(*) FROM settings").fetchone() == (0,)

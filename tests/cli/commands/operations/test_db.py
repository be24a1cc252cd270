"""`dodona db`, run as people run it."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

from dodona.store.db.migrate import NEWEST_REVISION, VERSION_TABLE
from tests.cli.running import dodona


def test_a_store_is_made_once(tmp_path: Path) -> None:
    """It says what it found and what it did."""
    file = tmp_path / ".dodona" / "dodona.db"
    done = dodona(tmp_path, "db", "migrate")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{file}: created with schema {NEWEST_REVISION}\n"
    assert (
        dodona(tmp_path, "db", "migrate").stdout
        == f"{file}: schema {NEWEST_REVISION}, nothing to do\n"
    )
    told = json.loads(dodona(tmp_path, "db", "migrate", "--json").stdout)
    assert told == {"store": str(file), "before": NEWEST_REVISION, "now": NEWEST_REVISION}


def test_a_sound_store(tmp_path: Path) -> None:
    """Each thing that was looked at, on a line."""
    dodona(tmp_path, "db", "migrate", DODONA_STORE__URL="a.db")
    done = dodona(tmp_path, "db", "check", DODONA_STORE__URL="a.db")
    names = ["pages", "references", "heads", "branches", "messages", "tokens", "api tokens"]
    names.append("budgets")
    assert done.stdout.splitlines() == [str(tmp_path / "a.db"), *(f"  ✓ {name}" for name in names)]
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(dodona(tmp_path, "db", "check", "--json", DODONA_STORE__URL="a.db").stdout)
    assert told["ok"] is True
    assert list(told["checks"]) == names


def test_no_store(tmp_path: Path) -> None:
    """There is nothing to check, and nothing is made."""
    done = dodona(tmp_path, "db", "check")
    assert (done.returncode, done.stdout) == (2, "")
    file = tmp_path / ".dodona" / "dodona.db"
    assert done.stderr == f"there is no store at {file}. Create it: dodona db migrate.\n"
    assert not file.exists()


def test_what_is_wrong_with_a_store(tmp_path: Path) -> None:
    """Every sort of fault is found, in rows that no code of ours would write."""
    dodona(tmp_path, "db", "migrate", DODONA_STORE__URL="a.db")
    with sqlite3.connect(tmp_path / "a.db") as db:
        db.executescript(BROKEN)
    db.close()
    done = dodona(tmp_path, "db", "check", "--json", DODONA_STORE__URL="a.db")
    told = json.loads(done.stdout)
    assert (done.returncode, told["ok"]) == (4, False)
    assert told["checks"] == {
        "pages": [],
        "references": ["a row of messages has a broken reference"],
        "heads": ["the head of conversation 1 has not ended, or is in another conversation"],
        "branches": ["run 3 is not reachable from a root", "run 4 is not reachable from a root"],
        "messages": ["run 2 has gaps in its messages", "run 99 has gaps in its messages"],
        "tokens": ["run 2 has a wrong token count"],
        "api tokens": ["run 2 has an API token that does not exist"],
        "budgets": [
            "the budget daily 2026-11-16 has 5 tokens reserved, "
            "but its reservations sum to 7 tokens"
        ],
    }


def test_a_store_of_a_development_version(tmp_path: Path) -> None:
    """Every command says the same about it, with what to do; not a byte of it changes."""
    file = tmp_path / "a.db"
    dodona(tmp_path, "db", "migrate", DODONA_STORE__URL="a.db")
    with closing(sqlite3.connect(file)) as db:
        db.execute(f"UPDATE {VERSION_TABLE} SET version_num = '0006'")  # noqa: S608
        db.commit()
    before = file.read_bytes()
    message = (
        f"the store {file} was written by a development version of Dodona (its schema is 0006), "
        "and this version cannot migrate it."
    )
    hint = (
        "Nothing was changed. Read it with the version that wrote it. To start with a new store, "
        "move the old one away, or set [store] url to another one."
    )
    env = {"DODONA_STORE__URL": "a.db", "DODONA_AGENT__PROVIDER": "extractive"}
    for words in (
        ("db", "migrate"),
        ("db", "check"),
        ("backup", "create", "backup"),
        ("usage",),
        ("ask", "Why?"),
    ):
        done = dodona(tmp_path, *words, **env)
        assert (done.returncode, done.stdout, done.stderr) == (4, "", f"{message} {hint}\n"), words
    status = json.loads(dodona(tmp_path, "status", "--json", **env).stdout)
    assert status["store"]["error"]["message"] == message
    report = json.loads(dodona(tmp_path, "doctor", "--json", **env).stdout)
    (found,) = [each for each in report["findings"] if each["name"] == "store"]
    assert (found["state"], found["message"]) == ("wrong", message)
    assert hint in found.values()
    assert file.read_bytes() == before
    assert not (tmp_path / "backup").exists()


BROKEN = """
INSERT INTO conversations (id, user_id, created_at, updated_at) VALUES (1, 'ada', 0, 0);
INSERT INTO runs (id, conversation_id, parent_id, follows_head, status, tokens, created_at) VALUES
  (1, 1, NULL, 1, 'queued', 0, 0), (2, 1, NULL, 1, 'failed', 3, 0),
  (3, 1, 4, 1, 'failed', 0, 0), (4, 1, 3, 1, 'failed', 0, 0);
UPDATE conversations SET head_id = 1;
UPDATE runs SET token_id = 7 WHERE id = 2;
INSERT INTO messages (conversation_id, run_id, ordinal, role, content, token_count, created_at)
  VALUES (1, 2, 1, 'user', 'x', 1, 0), (1, 99, 1, 'user', 'x', 1, 0);
INSERT INTO budgets VALUES ('daily', '2026-11-16', 'tokens', 100, 0, 5);
INSERT INTO reservations (step_key, attempt, lines_json, created_at) VALUES ('x', 1,
  '[{"scope":"daily","period":"2026-11-16","unit":"tokens","amount":7,"ceiling":100}]', 0);
"""

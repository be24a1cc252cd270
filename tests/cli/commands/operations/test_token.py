"""`dodona token` and `dodona audit`: on the store, with or without a gateway."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.cli.running import Up, dodona, until

pytestmark = pytest.mark.timeout(180)

TOKEN = re.compile(r"dod_[A-Za-z0-9_-]{43}")


def made(folder: Path, *words: str) -> dict[str, object]:
    done = dodona(folder, "token", "create", *words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def status(url: str, token: object) -> int:
    headers = {"Authorization": f"Bearer {token}"}
    asked = urllib.request.Request(f"{url}/api/runs", headers=headers)  # noqa: S310
    try:
        with urllib.request.urlopen(asked, timeout=30) as answer:  # noqa: S310 - our own gateway
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def test_the_limits_of_a_token_are_shown(tmp_path: Path) -> None:
    """When it is made, in the list, and its budget by `dodona budget`."""
    limits = ("--budget-tokens", "5000", "--budget-usd", "0.25", "--period", "month")
    names = ("--agent", "oracle", "--model", "openai/oak", "--model", "elm")
    done = dodona(tmp_path, "token", "create", "--user", "ada", "--scope", "chat", *limits, *names)
    shown = "5,000 tokens and $0.2500 a month, agent oracle, model elm, model openai/oak"
    assert done.stderr == (
        f"Token 1 for ada: chat, limited to {shown}. It cannot be shown again.\n"
    )
    made(tmp_path, "--user", "bob", "--scope", "chat")
    assert shown in dodona(tmp_path, "token", "list").stdout
    first, second = json.loads(dodona(tmp_path, "token", "list", "--json").stdout)["tokens"]
    assert first["budget"] == {"tokens": 5000, "usd": 0.25, "period": "month"}
    assert (first["agents"], first["models"]) == (["oracle"], ["elm", "openai/oak"])
    assert (second["budget"], second["agents"], second["models"]) == (None, None, None)
    for user, found in (("ada", [("token:1", 5000), ("token:1", 0.25)]), ("bob", []), ("*", None)):
        told = json.loads(dodona(tmp_path, "budget", "status", "--user", user, "--json").stdout)
        budgets = [(each["scope"], each["ceiling"]) for each in told["budgets"]]
        assert budgets == (found if found is not None else [("token:1", 5000), ("token:1", 0.25)])
    dodona(tmp_path, "token", "revoke", "1")
    told = json.loads(dodona(tmp_path, "budget", "status", "--user", "ada", "--json").stdout)
    assert told["budgets"] == []


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("--agent", "orcle"), "there is no agent 'orcle'. Did you mean 'oracle'?"),
        (("--period", "day"), "--period needs --budget-tokens or --budget-usd."),
        (("--model", " "), "the name of an allowed model is empty."),
    ],
)
def test_limits_that_make_no_sense(tmp_path: Path, words: tuple[str, ...], error: str) -> None:
    done = dodona(tmp_path, "token", "create", "--user", "ada", "--scope", "chat", *words)
    assert (done.returncode != 0, done.stderr.strip()) == (True, error)


def test_a_token_is_made_shown_once_listed_and_revoked(tmp_path: Path) -> None:
    """Its text is on the output alone, and not in the audit log, which has who did it."""
    done = dodona(
        tmp_path,
        *("token", "create", "--user", "ada", "--scope", "chat, admin", "--label", "laptop"),
        *("--expires", "90d"),
    )
    assert TOKEN.fullmatch(done.stdout.strip())
    assert re.fullmatch(
        r"Token 1 for ada: admin,chat, until \d{4}-\d\d-\d\d \d\d:\d\d\. "
        r"It cannot be shown again\.\n",
        done.stderr,
    )
    listed = dodona(tmp_path, "token", "list")
    assert done.stdout.strip() not in listed.stdout
    assert re.search(r"^1 +ada +admin,chat +until .* never +laptop$", listed.stdout, re.MULTILINE)
    assert dodona(tmp_path, "token", "revoke", "1").stdout == "Revoked token 1 of ada.\n"
    (token,) = json.loads(dodona(tmp_path, "token", "list", "--json").stdout)["tokens"]
    assert (token["active"], token["scopes"]) == (False, ["admin", "chat"])
    assert token["revoked_at"] is not None
    told = dodona(tmp_path, "audit", "--since", "1h", "--kind", "admin").stdout
    assert "token 1 was created for ada: admin, chat." in told
    assert "token 1 of ada was revoked." in told
    assert done.stdout.strip() not in told
    entries = json.loads(dodona(tmp_path, "audit", "--json", "--limit", "1").stdout)["entries"]
    assert [(each["kind"], each["user"], each["outcome"]) for each in entries] == [
        ("admin", "local", "done")
    ]
    later = dodona(tmp_path, "audit", "--since", "2999-01-01")
    assert later.stdout == "No audit entries.\n"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("create", "--user", "A/b", "--scope", "chat"), "'A/b' is not a valid user name."),
        (("create", "--user", "ada", "--scope", "chatt"), "there is no scope 'chatt'. Did you"),
        (
            ("create", "--user", "ada", "--scope", "chat", "--expires", "soon"),
            "--expires must be a number and a unit, at most 100y (got 'soon').",
        ),
        (("revoke", "7"), "there is no token 7."),
    ],
)
def test_mistakes_are_told(tmp_path: Path, words: tuple[str, ...], told: str) -> None:
    """With exit code 2, and nothing is made."""
    done = dodona(tmp_path, "token", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert told in done.stderr


def test_a_kind_that_is_none(tmp_path: Path) -> None:
    """The near one is named."""
    done = dodona(tmp_path, "audit", "--kind", "admn")
    assert (done.returncode, done.stderr) == (
        2,
        "unknown kind 'admn'. Did you mean 'admin'?\n",
    )


def test_a_gateway_that_runs_obeys_at_once(tmp_path: Path) -> None:
    """A token made beside it counts, and one that is revoked does not."""
    with Up(tmp_path) as up:
        token = made(tmp_path, "--user", "ada", "--scope", "read")
        assert status(up.url, token["token"]) == 200
        assert dodona(tmp_path, "token", "revoke", str(token["id"])).returncode == 0
        until(lambda: status(up.url, token["token"]) == 401)
        until(lambda: "this token was revoked" in dodona(tmp_path, "audit").stdout)


def test_where_others_can_come_in_a_token_must_be_there(tmp_path: Path) -> None:
    """Without one it does not start, and says how to make one; nobody listens meanwhile."""
    words = ("up", "--host", "0.0.0.0", "--port", "0")  # noqa: S104 - that is the point
    done = dodona(tmp_path, *words)
    assert (done.returncode, done.stdout) == (3, "")
    assert "needs a token. Create one first: dodona token create" in done.stderr
    token = made(tmp_path, "--user", "ada", "--scope", "read")
    with Up(tmp_path, "--host", "0.0.0.0") as up:  # noqa: S104
        here = up.url.replace("0.0.0.0", "127.0.0.1")  # noqa: S104
        assert status(here, token["token"]) == 200
        assert status(here, "nonsense") == 401
        with urllib.request.urlopen(f"{here}/healthz", timeout=30) as answer:  # noqa: S310
            assert answer.status == 200
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(f"{here}/api/projects", timeout=30)  # noqa: S310


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('hosts = ["Dodona"]', "gateway.hosts contains 'Dodona', which is not a valid host"),
        ('proxies = ["box"]', "gateway.proxies contains 'box', which is not an IP address"),
        ('host = "box"', "'box' is not an IP address to listen on"),
    ],
)
def test_settings_of_the_gateway_are_checked(tmp_path: Path, line: str, told: str) -> None:
    """Before anything is opened."""
    (tmp_path / "dodona.toml").write_text(f"[gateway]\n{line}\n")
    done = dodona(tmp_path, "up", "--port", "0", "--config", "dodona.toml")
    assert done.returncode == 3
    assert told in done.stderr

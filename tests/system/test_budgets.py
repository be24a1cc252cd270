"""Budgets over HTTP: what is spent is counted, and what may not be spent is not asked for."""

from __future__ import annotations

import asyncio
import itertools
import json
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.fork_server import run_dodona
from tests.system.client import Answered, Client, of_type
from tests.system.dodona_up import Home, Up
from tests.system.waiting import LIMIT, until, until_found
from tests.system.wire_model import Call, Script, WireModel, calls, says

CEILING = 500_000  # tokens of a session, which is a user's project
LONG = "The oak has leaves and acorns and much more than that to speak of. " * 40
ALL = (CEILING, 1)  # what a provider says that has used all of it
_projects = itertools.count(1)


def make(folder: Path, url: str, more: str) -> Up:
    """A gateway whose model has another behind it, at the same place."""
    home = Home(folder, url)
    fallback = f'[agent.fallback]\nprovider = "openai-compatible"\nbase_url = "{url}"\n'
    home.write(base_url=url, more=f'{fallback}model = "second-model"\n{more}')
    return Up(home)


@pytest.fixture(scope="module")
def penniless(wire: WireModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """A gateway that may spend nothing."""
    up = make(tmp_path_factory.mktemp("penniless"), wire.url, "[budgets.daily]\ntokens = 0\n")
    yield up
    up.end()


@pytest.fixture(scope="module")
def thrifty(wire: WireModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """A gateway with a budget for each session, and contexts that hold little."""
    more = f"[budgets.session]\ntokens = {CEILING}\n[context]\ntoken_budget = 4000\n"
    up = make(tmp_path_factory.mktemp("thrifty"), wire.url, more)
    yield up
    up.end()


@pytest.fixture
async def session_client(
    thrifty: Up, session: aiohttp.ClientSession, script: Script, vault: Path
) -> AsyncIterator[Client]:
    """A client with a project, and so a session and a budget, of its own."""
    if not thrifty.is_alive:
        await thrifty.begin()
    client = Client(session, thrifty, project=f"budget-{next(_projects)}", tag=script.tag)
    await client.make_project(vault)
    yield client
    script.release()
    await client.clean_up()


# -- nothing goes out ------------------------------------------------------------------------------

Way = Callable[[Client], Awaitable[dict[str, Any]]]  # the error that came of it


async def oracle(client: Client) -> dict[str, Any]:
    answered = await client.try_to_ask("Why?")
    assert answered.status == 429
    assert "Retry-After" not in answered.headers  # tomorrow's budget will be too small as well
    return answered.error


async def stream(client: Client) -> dict[str, Any]:
    (error,) = of_type(await client.streamed("Why?"), "error")
    return error["error"]


async def other_model(client: Client) -> dict[str, Any]:
    return (await client.try_to_ask("Why?", model="another-model")).error


async def in_process(client: Client) -> dict[str, Any]:
    """The command, while no gateway runs."""
    up = client.up
    await up.leave()
    try:
        done = await asyncio.to_thread(run, up.home, "ask", f"Why? {client.tag}", "--json")
    finally:
        await up.begin()
    assert done.returncode == 6
    return json.loads(done.stdout)["error"]


async def websocket(client: Client) -> dict[str, Any]:
    """A message of a channel."""
    said = {"channel": "chat", "account": "acme", "content": f"Why? {client.tag}"}
    async with asyncio.timeout(LIMIT), client.session.ws_connect(f"{client.url}/ws") as line:
        await line.send_json({"id": 1, "method": "chat.send", "params": said})
        while (frame := await line.receive_json()).get("event") != "error":
            assert "error" not in frame, frame
        return frame["data"]["error"]


# Every way to a model, but /v1: see test_v1.py.
WAYS: tuple[Way, ...] = (oracle, stream, other_model, websocket, in_process)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_with_a_budget_of_zero_nothing_goes_out(
    way: Way, penniless: Up, session: aiohttp.ClientSession, script: Script
) -> None:
    """Whoever asks, and by whichever way: no request reaches a model, also not a second one."""
    if not penniless.is_alive:
        await penniless.begin()
    error = await way(Client(session, penniless, project="default", tag=script.tag))
    assert error["code"] == "budget_exceeded"
    details = error["details"]
    assert (details["scope"], details["limit"], details["used"]) == ("daily", 0, 0)
    assert details["resets_at"] > datetime.now(UTC).isoformat()
    assert script.asked == script.summing == []
    assert penniless.home.rows("SELECT * FROM token_records") == []
    assert penniless.home.rows("SELECT * FROM reservations") == []


async def librarian(client: Client, script: Script) -> None:
    task = calls(Call("delegate_librarian", {"task": f"Tidy up. {script.tag}"}), usage=ALL)
    script.will(task, says("Never said."))
    await client.try_to_ask("Put the notes in order.")
    assert len(script.asked) == 1


async def summary(client: Client, script: Script) -> None:
    """Of a note that is too large to read."""
    projects = (await client.get("/api/projects"))["projects"]
    vault = next(each["vault_path"] for each in projects if each["id"] == client.project)
    note = Path(vault) / "large.md"
    await asyncio.to_thread(note.write_text, "The oak spoke again. \n" * 20_000)
    script.will(calls(Call("vault_read", {"path": "large.md"}), usage=ALL), says("Never said."))
    await client.try_to_ask("What is in the large note?")
    assert len(script.asked) == 1


async def compression(client: Client, script: Script) -> None:
    """The window is crowded, and the last answer has used all there was."""
    script.will_by(lambda asked: says(LONG, usage=ALL if "last" in asked.question else (10, 10)))
    for question in ("One?", "Two?", "Three?", "Four?", "The last?"):
        await client.ask(question)

    async def find() -> object:
        return (await client.context())["compression_count"]

    await until_found(find, "a summary that no model has made")
    assert script.summing == []


@pytest.mark.parametrize("way", [librarian, summary, compression], ids=lambda way: way.__name__)
async def test_what_comes_later_in_a_run_goes_out_no_more_either(
    way: Callable[[Client, Script], Awaitable[None]], session_client: Client, script: Script
) -> None:
    """A budget that is used up in mid-run stops all that the runtime does by itself."""
    await way(session_client, script)
    held = session_client.up.home.rows("SELECT * FROM budgets WHERE held > 0")
    assert held == []
    refused = await session_client.try_to_ask("And now?")
    assert (refused.status, "Retry-After" in refused.headers) == (429, False)
    assert "It does not reset." in refused.error["hint"]


# -- what is counted -------------------------------------------------------------------------------


async def records(client: Client) -> list[dict[str, Any]]:
    key = f"oracle:web:local:{client.project}"
    return client.up.home.rows("SELECT * FROM token_records WHERE session_key = ?", key)


async def test_a_record_says_what_the_provider_said(session_client: Client, script: Script) -> None:
    """To the token, for every call of a run."""
    call = Call("vault_read", {"path": "oak.md"})
    script.will(calls(call, usage=(1234, 56)), says("Yes.", usage=(2345, 67)))
    await session_client.ask("What does the oak say?")
    names = ("input_tokens", "output_tokens", "estimated")
    found = [tuple(record[name] for name in names) for record in await records(session_client)]
    assert found == [(1234, 56, 0), (2345, 67, 0)]


async def test_a_record_without_an_account_is_counted(
    session_client: Client, script: Script
) -> None:
    """What was sent and what came, not all that could have come."""
    script.will(says(LONG, usage=None))
    answered = await session_client.ask("Why?")
    (record,) = await records(session_client)
    assert record["estimated"]
    assert 400 < record["output_tokens"] < 1000
    assert record["input_tokens"] > 200
    (run,) = await session_client.runs()
    assert answered["answer"].startswith("The oak has")
    assert run["status"] == "succeeded"


async def test_a_model_that_does_not_stop_is_cut(session_client: Client, script: Script) -> None:
    """It was told how much it may say. What it said till then is the answer, and is paid."""
    script.will(says(*["The oak spoke, and spoke, and spoke. " * 10] * 50_000, usage=None))
    answered = await session_client.ask("Why?", max_tokens=500)
    asked = script.asked[0]  # if much has arrived at once, another request summarises it
    assert asked.json["max_tokens"] == 500
    await until(lambda: asked.left, "the end of the connection to the model")
    assert "spoke" in answered["answer"] or "without an answer" in answered["answer"]
    record = (await records(session_client))[0]
    assert (record["output_tokens"], bool(record["estimated"])) == (500, True)

    def budget() -> dict[str, Any]:
        key = f"session:local:oracle:web:local:{session_client.project}"
        query = "SELECT used, held FROM budgets WHERE scope = ?"
        return session_client.up.home.rows(query, key)[0]

    await until(lambda: budget()["held"] == 0, "the end of all calls")
    paid = await records(session_client)
    assert budget()["used"] == sum(each["input_tokens"] + each["output_tokens"] for each in paid)


async def test_a_call_that_a_crash_cut_is_paid_in_full(
    session_client: Client, script: Script
) -> None:
    """The provider may have billed it. The answer that is asked for again is paid as told."""
    client, up = session_client, session_client.up
    script.will_in_turn(says("Half of ", "it.", hold=1), says("Yes.", usage=(70, 7)))
    run_id = await client.begin("Why?", max_tokens=900)
    await script.reached(1)
    await up.begin_again()
    await client.ended(run_id)
    cut, whole = await records(client)
    assert (cut["output_tokens"], bool(cut["estimated"])) == (900, True)
    assert (whole["output_tokens"], bool(whole["estimated"])) == (7, False)
    (budget,) = up.home.rows(
        "SELECT used, held FROM budgets WHERE scope = ?",
        f"session:local:oracle:web:local:{client.project}",
    )
    assert budget == {"used": cut["input_tokens"] + 900 + 77, "held": 0}


# -- what is told ----------------------------------------------------------------------------------


async def usage(client: Client, **params: str) -> dict[str, Any]:
    return await client.get("/api/usage", params=params)


async def test_usage_is_told_by_what_one_asks_for(
    session_client: Client, script: Script, thrifty: Up
) -> None:
    """By session here, since the gateway is shared; the command tells the same."""
    script.will(says("Yes.", usage=(1000, 10)))
    await session_client.ask("Why?")
    await session_client.ask("Why not?")
    key = f"oracle:web:local:{session_client.project}"
    found = await usage(session_client, by="session", limit="1000")
    (mine,) = [each for each in found["usage"] if each["session_key"] == key]
    assert (mine["calls"], mine["input_tokens"], mine["output_tokens"]) == (2, 2000, 20)
    assert (mine["cost_usd"], mine["unpriced"]) == (0, 2)
    told = await asyncio.to_thread(run, thrifty.home, "usage", "--by", "session", "--json")
    assert mine in json.loads(told.stdout)["usage"]
    today = datetime.now(UTC).date().isoformat()
    assert (await usage(session_client, by="day"))["usage"][0]["day"] >= today
    assert (await usage(session_client, until="2020-01-01"))["total"]["calls"] == 0
    assert [u["user_id"] for u in (await usage(session_client, by="user", user="*"))["usage"]] == [
        "local"
    ]
    assert (await usage(session_client, user="nobody"))["usage"] == []
    models = (await usage(session_client, by="model", since=today))["usage"]
    assert ("openai-compatible", "test-model") in {(u["provider"], u["model"]) for u in models}


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("by=days", "by must be day, agent, model, session or user (got 'days')."),
        ("by=cost", "by must be day, agent, model, session or user (got 'cost')."),
        ("since=yesterday", "since must be a day (got 'yesterday')."),
        ("until=2026-13-01", "until must be a day (got '2026-13-01')."),
        ("limit=0", "limit must be a whole number from 1 to 1,000"),
    ],
)
async def test_what_usage_cannot_be_asked_for(client: Client, asked: str, words: str) -> None:
    answered: Answered = await client.send("GET", f"/api/usage?{asked}")
    assert answered.status == 400
    assert words in f"{answered.error['message']} {answered.error['hint']}"


async def test_budgets_are_told(session_client: Client, script: Script) -> None:
    """What is used and held, while a call is on its way and after it."""
    script.will_in_turn(says("Yes.", usage=(1000, 10)), says("Half of ", "it.", hold=1))
    await session_client.ask("Why?")

    async def mine() -> dict[str, Any]:
        found = (await session_client.get("/api/budgets?limit=1000"))["budgets"]
        key = f"session:local:oracle:web:local:{session_client.project}"
        return next(each for each in found if each["scope"] == key)

    told = {"kind": "session", "period": None, "period_start": None, "resets_at": None}
    assert (await mine()).items() >= {**told, "ceiling": CEILING, "used": 1010, "held": 0}.items()
    async with session_client.stream("And?", max_tokens=700) as chunks:
        await script.reached(2)
        waiting = await mine()
        assert waiting["held"] > 700
        assert waiting["left"] == CEILING - 1010 - waiting["held"]
        script.release()
        await chunks.rest()
    assert (await mine())["held"] == 0


async def test_a_ceiling_that_is_saved_counts_at_once(
    own: Client, script: Script, wire: WireModel
) -> None:
    """What was spent before counts too; a running gateway needs no restart."""
    script.will(says("Yes.", usage=(1000, 10)))
    await own.up.begin()
    await own.ask("Why?")
    own.up.home.write(base_url=wire.url, more="[budgets.user]\ntokens = 1100\n")

    async def is_refused() -> bool:
        return (await own.try_to_ask("Why?", max_tokens=100)).status == 429

    await until_found(is_refused, "a refusal")
    (budget,) = (await own.get("/api/budgets"))["budgets"]
    assert (budget["scope"], budget["ceiling"]) == ("user:local", 1100)
    assert budget["used"] >= 1010
    told = await asyncio.to_thread(run, own.up.home, "budget", "status")
    assert "user:local" in told.stdout
    assert "never" in told.stdout


def run(home: Home, *words: str) -> subprocess.CompletedProcess[str]:
    """The command, beside a gateway or without one."""
    return run_dodona(*words, cwd=home.folder, env=home.environment, timeout=LIMIT)

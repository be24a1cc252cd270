"""Notices outlive runs: kept once, told with the briefs of runs, delivered with what tells them."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from time import time
from typing import Any

import pytest
from msgspec.structs import replace

from dodona.core.domain.conversations.conversation import (
    ClaimedRun,
    Conversation,
    QueuedRun,
    RunEnd,
    RunRequest,
    RunStatus,
)
from dodona.core.domain.notices import Deferral, DeferUntil, NewNotice, StoredNotice
from dodona.core.domain.projects import Project
from dodona.core.domain.trust import MAX_MARKS, Mark
from dodona.core.errors import BadRequest, NotFound, RunFenced
from dodona.core.events import SELF_NOTIFY, Event, Severity
from dodona.core.messages import Origin
from dodona.store import Store
from dodona.store.notifications.notices import MAX_PENDING, MAX_RUN_NOTICES
from dodona.store.schema import notices as table
from tests.conformance.store.saying import asked, ended, rows_of
from tests.conformance.store.worker import Workers, all_told, told
from tests.stored import undelivered

EVENT = Event(
    SELF_NOTIFY,
    "notify_self",
    Severity.WARNING,
    {"message": "water the oak 🌳", "priority": "high", "nested": [1, 2.5, None, True]},
    timestamp=1234.5,
    dedupe_key="oak",
    id="e-1",
)
NEXT_RUN = Deferral(DeferUntil.SESSION)
HERS = NewNotice(user_id="ada", project_id="default", event=EVENT, due=NEXT_RUN)


async def put(store: Store, **more: Any) -> StoredNotice:
    return await store.notices.put(replace(HERS, **more))


async def pending(store: Store, user_id: str = "ada", project_id: str = "default") -> list[int]:
    return [each.id for each in await undelivered(store, user_id, project_id)]


async def brief_of(store: Store, project_id: str = "default", user_id: str = "ada") -> ClaimedRun:
    """What a question begins with that is asked now."""
    question = RunRequest(user_id=user_id, project_id=project_id, question="?", token_count=10)
    found = await store.runs.submit(question)
    assert isinstance(found, ClaimedRun)
    await ended(store, found)
    return found


def ids(notices: Sequence[StoredNotice]) -> list[int]:
    return [each.id for each in notices]


# -- marks -----------------------------------------------------------------------------------------

SOURCES = frozenset(Mark(Origin.WEB, f"{number:02}{'🌳' * 198}") for number in range(MAX_MARKS))


async def test_a_notice_keeps_the_marks_of_its_event(store: Store) -> None:
    """They do not count against its size: many long names must not make it fail."""
    large = replace(EVENT, payload={"message": "x" * 15_000}, marks=SOURCES)
    kept = await put(store, event=large)
    assert kept.event == large
    (listed,) = await store.notices.list("ada", limit=5)
    assert listed.event.marks == SOURCES
    assert (await brief_of(store)).notices == (kept,)


# -- putting and looking ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "due",
    [
        NEXT_RUN,
        Deferral(DeferUntil.TIME, at=1_800_000_000.25),
        Deferral(DeferUntil.TIME, at=0.0),
        Deferral(DeferUntil.TOOL, tool="vault_search"),
        Deferral(DeferUntil.CONDITION, condition="event.severity == 'error'"),
    ],
    ids=str,
)
async def test_what_is_put_comes_back(store: Store, talk: Conversation, due: Deferral) -> None:
    """The event whole, when it is due, and the run that it came from."""
    claim = await asked(store, talk)
    before = time()
    kept = await put(store, due=due, run_id=claim.run_id)
    assert (kept.event, kept.due, kept.run_id) == (EVENT, due, claim.run_id)
    assert (kept.project_id, kept.delivered_at) == ("default", None)
    assert before <= kept.created_at <= time()
    assert await undelivered(store, "ada", "default") == [kept]
    assert await store.notices.list("ada", limit=5) == [kept]
    (row,) = await rows_of(store, table)
    assert (row["event_type"], row["severity"]) == ("self.notify", "warning")


async def test_notices_are_listed_page_by_page(store: Store) -> None:
    """The newest first, delivered or not, of one project or all; what waits the oldest first."""
    await store.projects.create(Project("ada", "wald"))
    kept = [(await put(store, project_id=("default", "wald")[n % 2])).id for n in range(6)]
    await store.notices.dismiss("ada", kept[2])
    assert ids(await store.notices.list("ada", limit=4)) == kept[:1:-1]
    assert ids(await store.notices.list("ada", before=kept[2], limit=4)) == kept[1::-1]
    hers = await store.notices.list("ada", project_id="wald", limit=4)
    assert ids(hers) == [kept[5], kept[3], kept[1]]
    assert await pending(store) == [kept[0], kept[4]]
    assert await pending(store, project_id="wald") == kept[1::2]


async def test_a_notice_that_is_dismissed_waits_no_longer(store: Store) -> None:
    """Dismissed again it stays as it was."""
    kept = await put(store)
    gone = await store.notices.dismiss("ada", kept.id)
    assert gone == replace(kept, delivered_at=gone.delivered_at)
    assert gone.delivered_at is not None
    assert await pending(store) == []
    assert await store.notices.dismiss("ada", kept.id) == gone


@pytest.mark.parametrize(
    "message",
    ["\0 ok", "\ud800 ok", "'; DROP TABLE notices; --", "🌳" * 3_000, "x" * 15_860],
    ids=len,
)
async def test_any_text_is_kept(store: Store, message: str) -> None:
    """Up to the bound; half a character is made visible."""
    kept = await put(store, event=replace(EVENT, payload={"message": message}))
    assert kept.event.payload == {"message": message.replace("\ud800", "\ufffd")}


async def test_known_secrets_are_not_kept(url: str) -> None:
    """Neither in a payload nor in a key of it."""
    async with await Store.open(url, redact=lambda t: t.replace("hunter2", "[secret]")) as store:
        payload = {"said": ["hunter2 \n\\ is it"], "hunter2": 1}
        kept = await put(store, event=replace(EVENT, payload=payload))
        assert kept.event.payload == {"said": ["[secret] \n\\ is it"], "[secret]": 1}
        assert "hunter2" not in str(await rows_of(store, table))


# -- what is refused -------------------------------------------------------------------------------

LONG = replace(EVENT, payload={"message": "x" * 16_000})
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"user_id": ""}, "a notice needs a user."),
    ({"event": replace(EVENT, type="")}, "the type of an event must not be empty."),
    (
        {"event": replace(EVENT, type="x" * 201)},
        "the type of an event must have at most 200 characters (got 201).",
    ),
    (
        {"event": LONG},
        "the event of a notice must have at most 16,000 bytes as JSON (got 16,140).",
    ),
    (
        {"event": replace(EVENT, payload={"at": math.nan})},
        "the event of a notice cannot be encoded as JSON: "
        "nan is neither text, number, list nor map.",
    ),
    ({"key": ""}, "the key of a notice must not be empty."),
    ({"key": "x" * 201}, "the key of a notice must have at most 200 characters (got 201)."),
    ({"due": Deferral(DeferUntil.TIME)}, "a notice deferred by time needs 'at'."),
    ({"due": Deferral(DeferUntil.TOOL)}, "a notice deferred by tool needs 'tool'."),
    ({"due": Deferral(DeferUntil.CONDITION)}, "a notice deferred by condition needs 'condition'."),
    (
        {"due": Deferral(DeferUntil.SESSION, at=1.0)},
        "a notice deferred by session must not have 'at'.",
    ),
    (
        {"due": Deferral(DeferUntil.TIME, at=1.0, tool="t")},
        "a notice deferred by time must not have 'tool'.",
    ),
    (
        {"due": Deferral(DeferUntil.TIME, at=math.inf)},
        "'at' must be seconds since 1970 (got inf).",
    ),
    (
        {"due": Deferral(DeferUntil.TOOL, tool="x" * 201)},
        "'tool' must have at most 200 characters (got 201).",
    ),
    (
        {"due": Deferral(DeferUntil.CONDITION, condition="x" * 2_001)},
        "'condition' must have at most 2,000 characters (got 2,001).",
    ),
]


@pytest.mark.parametrize(("change", "said"), REFUSED, ids=[said for _, said in REFUSED])
async def test_what_is_wrong_is_refused(store: Store, change: dict[str, Any], said: str) -> None:
    """With what would be right; nothing is left of it."""
    with pytest.raises(BadRequest) as refused:
        await put(store, **change)
    assert str(refused.value) == said
    assert await rows_of(store, table) == []


async def test_there_is_room_for_so_many(store: Store, second: Store) -> None:
    """Of each project, however many put at once; what was told makes room."""
    both = (store, second)
    found = await asyncio.gather(
        *(put(both[n % 2]) for n in range(MAX_PENDING + 4)), return_exceptions=True
    )
    refused = [each for each in found if isinstance(each, BaseException)]
    assert [str(each) for each in refused] == [
        "the project 'default' has 500 undelivered notices, which is the limit. "
        "Dismiss some, or ask a question: a run delivers the notices that are due."
    ] * 4
    waiting = await pending(store)
    assert len(waiting) == MAX_PENDING
    await put(store, user_id="bob")
    await store.projects.create(Project("ada", "wald"))
    await put(store, project_id="wald")
    await store.commit(store.notices.mark_delivered("ada", waiting[:1]))
    await put(store)


# -- whose they are --------------------------------------------------------------------------------


async def test_anothers_are_not_found(store: Store, talk: Conversation) -> None:
    """As what does not exist, in the same words; and cannot be marked as delivered."""
    theirs = await put(store, user_id="bob")
    for number in (theirs.id, 999, 10**18):
        with pytest.raises(NotFound) as refused:
            await store.notices.dismiss("ada", number)
        assert str(refused.value) == f"there is no notice {number}."
    assert await store.notices.list("ada", limit=5) == []
    assert await pending(store) == []
    await store.commit(store.notices.mark_delivered("ada", [theirs.id]))
    assert await undelivered(store, "bob", "default") == [theirs]
    claim = await asked(store, talk)
    for run_id in (claim.run_id, 999):
        with pytest.raises(NotFound) as refused:
            await put(store, user_id="bob", run_id=run_id)
        assert str(refused.value) == f"there is no run {run_id}."


@pytest.mark.parametrize("project", ["nowhere", "../x", "bobs"])
async def test_a_project_that_is_not_there(store: Store, project: str) -> None:
    """Or is another's: nothing is put in it, and nothing waits there."""
    await store.projects.create(Project("bob", "bobs"))
    await put(store, user_id="bob", project_id="bobs")
    with pytest.raises(NotFound) as refused:
        await put(store, project_id=project)
    assert str(refused.value) == f"there is no project {project!r}."
    assert await pending(store, project_id=project) == []


async def test_a_notice_goes_with_its_run(store: Store, talk: Conversation) -> None:
    """Others stay, and its id is not given again: a run may remember it."""
    claim = await asked(store, talk)
    stays, goes = await put(store), await put(store, run_id=claim.run_id)
    await ended(store, claim)
    await store.conversations.delete("ada", talk.id)
    assert await pending(store) == [stays.id]
    assert (await put(store)).id > goes.id


# -- once ------------------------------------------------------------------------------------------


async def test_a_key_is_put_once(store: Store, second: Store) -> None:
    """A call that a crash cut is made again, by another process: what is there counts."""
    await store.projects.create(Project("ada", "wald"))
    first = await put(store, key="run/1")
    other = replace(EVENT, id="e-2", payload={})
    assert await put(second, key="run/1", event=other) == first
    assert await put(second, key="run/1", project_id="wald") == first
    told = await store.notices.dismiss("ada", first.id)
    assert await put(second, key="run/1") == told
    assert await pending(store) == []
    theirs = await put(store, key="run/1", user_id="bob")
    assert (theirs.id == first.id, theirs.delivered_at) == (False, None)


async def test_a_key_is_known_when_there_is_no_room(store: Store) -> None:
    """Whoever repeats is not refused for what it was told before."""
    first = await put(store, key="k")
    await asyncio.gather(*(put(store) for _ in range(MAX_PENDING - 1)))
    assert await put(store, key="k") == first
    with pytest.raises(BadRequest):
        await put(store)


async def test_many_at_once_put_one_key_once(store: Store, second: Store) -> None:
    """Eight in two processes, all of them first."""
    both = (store, second)
    found = await asyncio.gather(*(put(both[n % 2], key="k") for n in range(8)))
    assert len(set(ids(found))) == 1
    assert len(await rows_of(store, table)) == 1


async def test_nothing_acknowledged_is_lost(store: Store, url: str, workers: Workers) -> None:
    """Whenever the process is killed: what it was told is kept, whole, and with it its state."""
    worker = await workers.start("put", url)
    acknowledged = [await told(worker) for _ in range(3)]
    worker.kill()
    acknowledged += await all_told(worker)
    waiting = await undelivered(store, "ada", "default")
    assert set(acknowledged) <= set(ids(waiting))
    assert len(waiting) - len(acknowledged) <= 1  # what was on its way
    numbers = [each.event.payload["number"] for each in waiting]
    assert numbers == list(range(1, len(waiting) + 1))
    kept = await store.pack_state.all("ada")
    assert kept["counting"]["last"].value in (len(waiting) - 1, len(waiting))


# -- delivered -------------------------------------------------------------------------------------


async def test_notices_are_delivered_with_the_run_that_tells_them(
    store: Store, talk: Conversation
) -> None:
    """In one transaction with its end, or with what it commits; once."""
    kept = [(await put(store)).id for _ in range(3)]
    claim = await asked(store, talk)
    journal = await store.journals.open(claim)
    journal.add_to_next_commit(store.notices.mark_delivered("ada", [kept[2], kept[0], kept[2]]))
    assert await pending(store) == kept
    await journal.commit(lambda _: None)
    assert await pending(store) == [kept[1]]
    told = await store.notices.list("ada", limit=5)
    journal.add_to_next_commit(store.notices.mark_delivered("ada", kept))
    await journal.end(RunEnd(status=RunStatus.SUCCEEDED))
    assert await pending(store) == []
    again = await store.notices.list("ada", limit=5)
    assert [again[0], again[2]] == [told[0], told[2]]  # the time of the first telling stays


async def test_who_has_lost_its_run_delivers_nothing(
    store: Store, second: Store, talk: Conversation
) -> None:
    """Another process tells it then."""
    kept = await put(store)
    claim = await asked(store, talk)
    journal = await store.journals.open(claim)
    journal.add_to_next_commit(store.notices.mark_delivered("ada", [kept.id]))
    store.runs.release_claim(claim)
    taken = await store.runs.claim_next(talk.id)
    assert isinstance(taken, ClaimedRun)
    with pytest.raises(RunFenced):
        await journal.end(RunEnd(status=RunStatus.SUCCEEDED))
    assert await pending(second) == [kept.id]
    assert ids(taken.notices) == [kept.id]


# -- briefs ----------------------------------------------------------------------------------------


async def test_a_run_begins_with_what_waits_to_be_told(store: Store) -> None:
    """Of its user and project alone, the oldest first; what was told is not told again."""
    await store.projects.create(Project("ada", "wald"))
    assert (await brief_of(store)).notices == ()
    kept = [await put(store, event=replace(EVENT, id=f"e-{n}")) for n in range(3)]
    other = await put(store, project_id="wald")
    await put(store, user_id="bob")
    await store.notices.dismiss("ada", kept[1].id)
    assert (await brief_of(store)).notices == (kept[0], kept[2])
    assert (await brief_of(store, "wald")).notices == (other,)
    await store.commit(store.notices.mark_delivered("ada", [kept[0].id, kept[2].id]))
    assert (await brief_of(store)).notices == ()


async def test_a_run_that_waited_or_was_cut_is_told_what_waits_by_then(store: Store) -> None:
    """Not what waited when it was asked: that may have been told since."""
    question = RunRequest(user_id="ada", project_id="default", question="?", token_count=10)
    first = await store.runs.submit(question)
    assert isinstance(first, ClaimedRun)
    before = await put(store)
    queued = await store.runs.submit(question)
    assert isinstance(queued, QueuedRun)
    later = await put(store)
    await ended(store, first, also=[store.notices.mark_delivered("ada", [before.id])])
    for attempt in (1, 2):
        driven = await store.runs.claim_next(queued.conversation_id)
        assert isinstance(driven, ClaimedRun)
        assert (driven.run_id, driven.attempt) == (queued.run_id, attempt)
        assert driven.notices == (later,)
        store.runs.release_claim(driven)


async def test_a_run_is_not_told_of_another_day(store: Store) -> None:
    """What is due while it may go on comes with it, and what was due before."""
    now = time()
    due = [now - 86_400 * 30, now + 60, now + 3_600, now + 86_400 * 2]
    kept = [(await put(store, due=Deferral(DeferUntil.TIME, at=at))).id for at in due]
    assert ids((await brief_of(store)).notices) == kept[:3]


async def test_what_may_never_happen_takes_the_place_of_nothing(store: Store) -> None:
    """A run begins with so many at most: first what is due for sure, then the oldest."""
    tool = Deferral(DeferUntil.TOOL, tool="never")
    waiting = [(await put(store, due=tool)).id for _ in range(MAX_RUN_NOTICES + 10)]
    sure = [(await put(store)).id, (await put(store, due=Deferral(DeferUntil.TIME, at=1.0))).id]
    found = ids((await brief_of(store)).notices)
    assert found == [*waiting[: MAX_RUN_NOTICES - 2], *sure]

"""The subscribers that are shipped: what each tells of its events, when, and whether it stays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from dodona.core import events
from dodona.core.domain.notices import InjectionPoint, Notice
from dodona.core.events import Event, Severity
from dodona.notify import BUILTIN_SUBSCRIBERS, Inbox, SubscriberRegistry
from tests.notify.subscribing import event

LIMIT = {"limit": "tokens", "current_value": 80, "limit_value": 100, "advice": "Come to an end."}
OWNER = {"user_id": "ada", "project_id": "oak", "run_id": 7}


@pytest.fixture(scope="module")
def shipped() -> SubscriberRegistry:
    subscribers = SubscriberRegistry()
    subscribers.load()
    assert subscribers.problems() == ()
    return subscribers


@dataclass(frozen=True)
class Case:
    """Events, and what is told of them. `system_type` is the subscriber's id unless it says."""

    subscriber: str
    heard: tuple[Event, ...]
    point: InjectionPoint
    text: str
    shown: str = ""
    system_type: str = ""
    is_kept: bool = True
    metadata: Any = None


CASES = (
    Case(
        "tool_failure",
        tuple(
            event(events.TOOL_CALL_FAILURE, tool="search", call=f"c{n}", error=f"no {n}", **OWNER)
            for n in range(3)
        ),
        InjectionPoint.AFTER_TOOL,
        "search failed 3 times:\n[3]{tool,error}:\n  search,no 0\n  search,no 1\n  search,no 2\n"
        "Do not call it the same way again.",
        shown="search failed 3 times.",
        metadata={"tool": "search", "call": "c2", "error": "no 2", "count": 3},
    ),
    Case(
        "budget_warning",
        (event(events.BUDGET_TOKEN_WARNING, message="80 of 100.", **LIMIT, **OWNER),),
        InjectionPoint.TURN_START,
        "80 of 100.",
        system_type="limit_warning",
        is_kept=False,
        metadata=LIMIT,
    ),
    Case(
        "budget_exceeded",
        (event(events.BUDGET_TIMEOUT_EXCEEDED, message="Time is up.", **LIMIT),),
        InjectionPoint.IMMEDIATE,
        "Time is up.",
        system_type="limit_reached",
        is_kept=False,
        metadata=LIMIT,
    ),
    Case(
        "no_progress",
        (event(events.AGENT_NO_PROGRESS, message="Stopped.", **LIMIT),),
        InjectionPoint.IMMEDIATE,
        "Stopped.",
        is_kept=False,
        metadata=LIMIT,
    ),
    Case(
        "error_limit",
        (event(events.AGENT_ERROR_LIMIT, message="Stopped.", **LIMIT),),
        InjectionPoint.IMMEDIATE,
        "Stopped.",
        is_kept=False,
        metadata=LIMIT,
    ),
    Case(
        "loop_detected",
        (event(events.AGENT_LOOP_DETECTED, pattern="read(a.md)"),),
        InjectionPoint.TURN_START,
        "You repeat the same calls: read(a.md). Try something else, or answer with the "
        "information you have.",
        is_kept=False,
    ),
    Case(
        "loop_detected",
        (event(events.AGENT_LOOP_DETECTED, pattern="read(a.md)", message="Stop that."),),
        InjectionPoint.TURN_START,
        "Stop that.",
        is_kept=False,
    ),
    Case(
        "context_limit",
        (event(events.CONTEXT_APPROACHING_LIMIT, **LIMIT),),
        InjectionPoint.TURN_END,
        "80 of 100 tokens of the context window are used.",
        system_type="context_approaching_limit",
        is_kept=False,
    ),
    Case(
        "context_limit",
        (event(events.CONTEXT_APPROACHING_LIMIT, message="Nearly full.", **LIMIT),),
        InjectionPoint.TURN_END,
        "Nearly full.",
        system_type="context_approaching_limit",
        is_kept=False,
    ),
    Case(
        "session_resumed",
        (event(events.SESSION_RESUMED, previous_model="a", model="b"),),
        InjectionPoint.TURN_START,
        "This conversation continues with the model b; the previous model was a.",
    ),
    Case(
        "session_resumed",
        (event(events.SESSION_RESUMED, previous_model="a", model="a", idle_seconds=3600),),
        InjectionPoint.TURN_START,
        "This conversation continues after 1 hour. Sources that you read before may have changed.",
    ),
    Case(
        "source_stale",
        tuple(event(events.SOURCE_STALE, path=f"{n}.md") for n in range(2)),
        InjectionPoint.TURN_START,
        "Changed since you read them; read again before you rely on the old content:\n"
        "[2]{path}:\n  0.md\n  1.md",
        shown="Changed since they were read:\n- 0.md\n- 1.md",
        is_kept=False,
    ),
    Case(
        "self_notify",
        (event(events.SELF_NOTIFY, message="Mind the gap.", priority="high", category="hint"),),
        InjectionPoint.TURN_START,
        "Mind the gap.",
        metadata={"priority": "high", "category": "hint"},
    ),
    Case(
        "task_checkpoint",
        (event(events.TASK_CHECKPOINT, message="Half is done."),),
        InjectionPoint.TURN_START,
        "Half is done.",
    ),
    Case(
        "task_checkpoint",
        (event(events.TASK_CHECKPOINT, task="tidy up"),),
        InjectionPoint.TURN_START,
        "A checkpoint was reached: tidy up.",
    ),
    Case(
        "subagent_done",
        (event(events.SUBAGENT_COMPLETE, agent="librarian"),),
        InjectionPoint.AFTER_TOOL,
        "",
        shown="The librarian is done.",
    ),
    Case(
        "subagent_done",
        (event(events.SUBAGENT_FAILED, agent="librarian", error="out of tokens."),),
        InjectionPoint.AFTER_TOOL,
        "",
        shown="The librarian failed.",
    ),
    Case(
        "subagent_done",
        tuple(event(events.SUBAGENT_FAILED, agent=f"a{n}", error="no") for n in range(2)),
        InjectionPoint.AFTER_TOOL,
        "2 subagents failed. Continue without them, or give them smaller tasks.",
        shown="2 subagents failed.",
    ),
    Case(
        "tree_trouble",
        (event(events.TREE_CONFLICT, key="answer"),),
        InjectionPoint.TURN_START,
        "Two branches of the tree wrote different values to :answer. One of them was not used.",
    ),
    Case(
        "tree_trouble",
        (event(events.TREE_STUCK, nodes=["a/b"], seconds=3.5, blackboard={"secret": 1}),),
        InjectionPoint.TURN_START,
        "The tree was stuck for 3.5 seconds at a/b. The watchdog stopped it.",
        metadata={"nodes": ["a/b"], "seconds": 3.5},
    ),
)


def told(shipped: SubscriberRegistry, case: Case) -> list[Notice]:
    inbox = Inbox(shipped)
    for each in case.heard:
        inbox.receive(each)
    others = [
        point for point in InjectionPoint if point not in (case.point, InjectionPoint.IMMEDIATE)
    ]
    if case.point is not InjectionPoint.IMMEDIATE:
        assert inbox.drain(*others) == []
    return inbox.drain(case.point)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.subscriber)
def test_one_notice_tells_it(shipped: SubscriberRegistry, case: Case) -> None:
    """By one subscriber only, at its point, in words that need nothing else."""
    (notice,) = told(shipped, case)
    assert notice.subscriber == case.subscriber
    assert notice.text == case.text
    assert notice.user_text == (case.shown or case.text)
    assert notice.system_type == (case.system_type or case.subscriber)
    assert (notice.point, notice.is_persistent) == (case.point, case.is_kept)
    assert len(notice.events) == len(case.heard)
    if case.metadata is not None:
        assert notice.metadata == case.metadata


@pytest.mark.parametrize("kind", [events.TOOL_CALL_FAILURE, events.TOOL_CALL_TIMEOUT])
def test_a_single_failure_is_not_told(shipped: SubscriberRegistry, kind: str) -> None:
    """The result of the call says it."""
    inbox = Inbox(shipped)
    inbox.receive(event(kind, tool="search", call="c1", ms=3))
    assert inbox.drain(*InjectionPoint, is_last=True) == []


def test_every_file_has_a_case() -> None:
    """A subscriber that is added is tested here."""
    assert {case.subscriber for case in CASES} == {
        file.stem for file in BUILTIN_SUBSCRIBERS.iterdir()
    }


def test_which_cannot_be_turned_off(shipped: SubscriberRegistry) -> None:
    """What keeps a run within its limits."""
    core = {each["id"] for each in shipped.list() if each["core"]}
    assert core == {
        *("budget_warning", "budget_exceeded", "loop_detected", "no_progress", "error_limit"),
    }
    assert all(each["description"] and each["name"] != each["id"] for each in shipped.list())


@pytest.mark.parametrize(
    "heard",
    [
        event(events.SESSION_RESUMED, previous_model="a", model="a", idle_seconds=3599),
        event(events.SESSION_RESUMED, previous_model="a", model="a"),
        event(events.TOOL_CALL_SUCCESS, tool="search"),
        event(events.AGENT_TURN_START, turn=1),
        event(events.TREE_RELOADED, tree="x"),
    ],
)
def test_what_is_not_worth_a_word(shipped: SubscriberRegistry, heard: Event) -> None:
    """What the agent knows anyway, or need not know."""
    inbox = Inbox(shipped)
    inbox.receive(heard)
    assert inbox.drain(*InjectionPoint, is_last=True) == []


def test_warnings_of_two_limits_are_two_notices(shipped: SubscriberRegistry) -> None:
    """What was said of one must not be hidden by the other."""
    inbox = Inbox(shipped)
    inbox.receive(event(events.BUDGET_TOKEN_WARNING, Severity.WARNING, message="tokens"))
    inbox.receive(event(events.BUDGET_ITERATION_WARNING, Severity.WARNING, message="turns"))
    assert [each.text for each in inbox.drain(InjectionPoint.TURN_START)] == ["tokens", "turns"]


def test_notes_to_itself_come_by_their_own_priority(shipped: SubscriberRegistry) -> None:
    """Each by itself."""
    inbox = Inbox(shipped)
    for priority in ("low", "critical", "normal"):
        inbox.receive(event(events.SELF_NOTIFY, message=priority, priority=priority))
    told = [each.text for each in inbox.drain(InjectionPoint.TURN_START)]
    assert told == ["critical", "normal", "low"]

"""An inbox: what a run heard is gathered, told at its point, and survives the run's process."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dodona.core.domain.notices import Deferral, DeferUntil, InjectionPoint, Notice, StoredNotice
from dodona.core.domain.trust import Mark
from dodona.core.events import Event, Severity
from dodona.core.messages import Origin
from dodona.notify import Inbox
from dodona.notify.inbox import MAX_BATCHES, MAX_SCHEDULED, InboxState
from tests.notify.subscribing import Clock, Folder, event


def texts(notices: list[Notice]) -> list[str]:
    return [notice.text for notice in notices]


# Marks


def test_a_notice_has_the_marks_of_its_events(folder: Folder) -> None:
    """Of all that it counts, also after a crash and of an event that another one replaces."""
    folder.add("notes", "self.notify", template="{{ count }}")
    page, peer = Mark(Origin.WEB, "https://example.org/"), Mark(Origin.PEER, "eve")
    plain = event("self.notify", n=1)
    first = replace(event("self.notify", dedupe_key="k"), marks=frozenset({page}))
    then = replace(event("self.notify", dedupe_key="k"), marks=frozenset({peer}))
    inbox = Inbox(folder.subscribers)
    inbox.receive(plain)
    inbox.receive(first)
    resumed = Inbox(folder.subscribers)
    saved = msgspec.to_builtins(inbox.state())
    resumed.restore(msgspec.convert(saved, InboxState))
    resumed.receive(then)
    (notice,) = resumed.drain(*InjectionPoint, is_last=True)
    assert (notice.text, notice.marks) == ("3", {page, peer})
    assert msgspec.convert(msgspec.to_builtins(notice), Notice).marks == {page, peer}


def test_a_notice_of_plain_events_has_no_marks(folder: Folder) -> None:
    folder.add("notes", "self.notify", template="{{ count }}")
    inbox = Inbox(folder.subscribers)
    inbox.receive(event("self.notify"))
    (notice,) = inbox.drain(*InjectionPoint, is_last=True)
    assert notice.marks == frozenset()


# What becomes one notice


def test_equal_events_become_one_notice_that_counts_them(folder: Folder) -> None:
    """Those of another key are told by themselves."""
    folder.add(
        "failures", "tool.call.failure",
        batching="dedupe_key = '{{ payload.tool }}'",
        template="{{ payload.tool }} failed {{ count }} times",
        output="inject_at = 'after_tool'",
    )  # fmt: skip
    inbox = Inbox(folder.subscribers)
    heard = [
        event("tool.call.failure", Severity.WARNING, tool=tool, call=str(number), run_id=7)
        for number, tool in enumerate(("search", "read", "search", "search"))
    ]
    for each in heard:
        inbox.receive(each)
    first, second = inbox.drain(InjectionPoint.AFTER_TOOL)
    assert first == Notice(
        subscriber="failures",
        event_type="tool.call.failure",
        severity=Severity.WARNING,
        point=InjectionPoint.AFTER_TOOL,
        text="search failed 3 times",
        user_text="search failed 3 times",
        system_type="failures",
        metadata={"tool": "search", "call": "3", "count": 3},
        events=(heard[0].id, heard[2].id, heard[3].id),
    )
    assert (second.text, second.metadata) == ("read failed 1 times", {"tool": "read", "call": "1"})
    assert inbox.drain(*InjectionPoint, is_last=True) == []


def test_of_events_that_say_the_same_the_last_is_shown(folder: Folder) -> None:
    """They are counted all the same."""
    folder.add("paths", template="{{ count }}: {% for e in events %}{{ e.payload.n }} {% endfor %}")
    inbox = Inbox(folder.subscribers)
    for number, key in enumerate(("a", "b", "a", "", "")):
        inbox.receive(event("x", n=number, dedupe_key=key))
    assert texts(inbox.drain(InjectionPoint.TURN_START)) == ["5: 1 2 3 4"]


def test_a_batch_waits_for_its_window_unless_it_is_full_or_the_last(folder: Folder) -> None:
    """The window begins with the first event."""
    folder.add("slow", batching="window_ms = 5000\nmax_size = 3")
    inbox = Inbox(folder.subscribers)
    inbox.receive(event("x"))
    folder.clock.now += 4.9
    inbox.receive(event("x"))
    assert inbox.drain(InjectionPoint.TURN_START) == []
    assert inbox.has_notices(InjectionPoint.TURN_START)
    folder.clock.now += 0.2
    assert texts(inbox.drain(InjectionPoint.TURN_START)) == ["2"]
    assert not inbox.has_notices(*InjectionPoint)
    for _ in range(4):
        inbox.receive(event("x"))
    assert texts(inbox.drain(InjectionPoint.TURN_START)) == ["3"]
    assert texts(inbox.drain(InjectionPoint.TURN_START, is_last=True)) == ["1"]


def test_a_clock_that_is_set_back_holds_nothing(folder: Folder) -> None:
    """It is told a little early instead of hours late."""
    folder.add("slow", batching="window_ms = 5000")
    inbox = Inbox(folder.subscribers)
    inbox.receive(event("x"))
    folder.clock.now -= 10_000
    assert texts(inbox.drain(InjectionPoint.TURN_START)) == ["1"]


def test_the_same_is_not_told_again_within_its_window(folder: Folder) -> None:
    """It is counted, and told after it; another key is not held back."""
    folder.add("same", batching="dedupe_key = '{{ payload.key }}'\ndedupe_window_ms = 10_000",
               template="{{ payload.key }}{{ count }}")  # fmt: skip
    inbox = Inbox(folder.subscribers)
    inbox.receive(event("x", key="a"))
    assert texts(inbox.drain(InjectionPoint.TURN_START)) == ["a1"]
    folder.clock.now += 9
    for key in "aab":
        inbox.receive(event("x", key=key))
    assert texts(inbox.drain(InjectionPoint.TURN_START)) == ["b1"]
    folder.clock.now += 2
    assert texts(inbox.drain(InjectionPoint.TURN_START)) == ["a2"]


# Who hears what, and when it is told


def test_filters_are_by_type_severity_and_condition(folder: Folder) -> None:
    """All must hold."""
    condition = "payload.n > 2 && event.source == 'test'"
    folder.add(
        "picky", "tool.*", template="{{ payload.n }}", batching="max_size = 1",
        events=f'severity = "warning"\nfilter = "{condition}"',
    )  # fmt: skip
    inbox = Inbox(folder.subscribers)
    for type_, severity, number in (
        ("tool.a", Severity.WARNING, 3),
        ("tool.a", Severity.CRITICAL, 4),
        ("tool.a", Severity.WARNING, 1),
        ("tool.a", Severity.INFO, 5),
        ("agent.a", Severity.ERROR, 6),
    ):
        inbox.receive(event(type_, severity, n=number))
    assert texts(inbox.drain(InjectionPoint.TURN_START)) == ["3", "4"]


def test_each_point_has_its_own_and_what_is_immediate_is_told_at_any(folder: Folder) -> None:
    """A point that nobody drains keeps what it has."""
    for point in InjectionPoint:
        folder.add(point.value, template=point.value, output=f"inject_at = '{point.value}'")
    inbox = Inbox(folder.subscribers)
    inbox.receive(event("x"))
    assert texts(inbox.drain(InjectionPoint.AFTER_TOOL)) == ["after_tool", "immediate"]
    assert not inbox.has_notices(InjectionPoint.AFTER_TOOL)
    assert inbox.has_notices(InjectionPoint.AFTER_TOOL, InjectionPoint.TURN_END)
    assert texts(inbox.drain(InjectionPoint.TURN_END, InjectionPoint.TURN_START)) == [
        "turn_end",
        "turn_start",
    ]


def test_the_most_urgent_is_told_first_then_what_came_first(folder: Folder) -> None:
    """A subscriber may leave it to the event; what is no priority is normal."""
    for name in ("low", "normal", "high", "critical"):
        folder.add(name, "x", template=name, output=f"priority = '{name}'")
    folder.add("by_event", "y", template="{{ payload.n }}", output="priority = 'event'",
               batching="max_size = 1")  # fmt: skip
    inbox = Inbox(folder.subscribers)
    for number, priority in enumerate(("low", "critical", "??", None, "normal")):
        inbox.receive(event("y", n=number, priority=priority))
    inbox.receive(event("x"))
    assert texts(inbox.drain(InjectionPoint.TURN_START)) == [
        "1", "critical", "high", "2", "3", "4", "normal", "0", "low",
    ]  # fmt: skip


def test_users_turn_subscribers_off_and_on_but_no_core_ones(folder: Folder) -> None:
    """One that is off by default is on for who wants it."""
    folder.add("plain", template="plain")
    folder.add("core", template="core", about="core = true\nenabled = false")
    folder.add("shy", template="shy", about="enabled = false")
    made = partial(Inbox, folder.subscribers)
    for inbox, told in (
        (made(), ["core", "plain"]),
        (made(disabled=("plain", "core")), ["core"]),
        (made(enabled=("shy",)), ["core", "plain", "shy"]),
        (made(disabled=("shy",), enabled=("shy",)), ["core", "plain"]),
    ):
        inbox.receive(event("x"))
        assert sorted(texts(inbox.drain(InjectionPoint.TURN_START))) == told


# What goes wrong


def test_a_template_that_fails_gives_a_plain_line(
    folder: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    """The event is told, and the log says what is wrong."""
    folder.add("asks", template="{{ payload.nothing }}")
    inbox = Inbox(folder.subscribers)
    inbox.receive(event("x.y", message="hello"))
    inbox.receive(event("x.y", message="again"))
    assert texts(inbox.drain(InjectionPoint.TURN_START)) == ["x.y: again (2 times)"]
    inbox.receive(event("x.z"))
    assert texts(inbox.drain(InjectionPoint.TURN_START)) == ["x.z"]
    assert caplog.messages[0] == (
        "subscriber asks: the template failed: 1: the template uses an undefined value: "
        "'dict object' has no attribute 'nothing'."
    )


def test_a_filter_that_fails_does_not_hold_and_says_so_once(
    folder: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    """Others hear the event."""
    folder.add("broken", events='filter = "payload.nothing > 1"')
    folder.add("sound", template="sound")
    inbox = Inbox(folder.subscribers)
    for _ in range(3):
        inbox.receive(event("x"))
    assert texts(inbox.drain(InjectionPoint.TURN_START)) == ["sound"]
    (message,) = caplog.messages
    assert message.startswith("subscriber broken: the filter failed: ")


def test_a_key_that_fails_puts_the_events_together(
    folder: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    """None is lost."""
    folder.add("keyed", batching="dedupe_key = '{{ payload.tool }}'")
    inbox = Inbox(folder.subscribers)
    inbox.receive(event("x"))
    inbox.receive(event("x"))
    assert texts(inbox.drain(InjectionPoint.TURN_START)) == ["2"]
    assert len(caplog.messages) == 1


def test_a_template_may_have_nothing_to_say(folder: Folder) -> None:
    """Then nothing is told."""
    folder.add("choosy", template="{% if payload.n > 1 %}{{ payload.n }}{% endif %}")
    inbox = Inbox(folder.subscribers)
    inbox.receive(event("x", n=1))
    assert inbox.drain(InjectionPoint.TURN_START) == []


def test_a_long_text_is_cut(folder: Folder) -> None:
    """A model would read it again with each request."""
    folder.add("long", template="{{ payload.text }}")
    inbox = Inbox(folder.subscribers)
    inbox.receive(event("x", text="y" * 100_000))
    (notice,) = inbox.drain(InjectionPoint.TURN_START)
    assert notice.text == "y" * 3999 + "…"


def test_past_the_most_the_oldest_of_the_least_severe_is_dropped(folder: Folder) -> None:
    """How many events that were is told first."""
    folder.add("each", batching="max_size = 1", template="{{ payload.n }}")
    inbox = Inbox(folder.subscribers)
    inbox.receive(event("x", Severity.ERROR, n=0))
    for number in range(1, MAX_BATCHES + 3):
        inbox.receive(event("x", n=number))
    assert len(msgspec.json.encode(inbox.state())) < 100_000
    lost, *rest = inbox.drain(InjectionPoint.TURN_START)
    assert (lost.text, lost.metadata, lost.system_type) == (
        "3 events were dropped because too many arrived at once.",
        {"count": 3}, "notices_lost",
    )  # fmt: skip
    assert texts(rest) == [str(n) for n in (0, *range(4, MAX_BATCHES + 3))]
    assert inbox.drain(*InjectionPoint, is_last=True) == []


# What was put off


def stored(number: int, due: Deferral, **payload: Any) -> StoredNotice:
    return StoredNotice(
        id=number,
        project_id="p",
        event=event("self.notify", n=number, **payload),
        due=due,
        run_id=None,
        created_at=0,
        delivered_at=None,
    )


@pytest.fixture
def waiting(folder: Folder) -> Inbox:
    folder.add("notes", "self.notify", template="{{ payload.n }}", batching="max_size = 1")
    return Inbox(folder.subscribers)


def test_what_was_put_off_to_the_next_run_is_told_at_once(waiting: Inbox) -> None:
    """With its number, so that it is marked as delivered; once, though it is handed over twice."""
    notice = stored(5, Deferral(DeferUntil.SESSION))
    waiting.schedule([notice])
    waiting.schedule([notice])
    (told,) = waiting.drain(InjectionPoint.TURN_START)
    assert (told.text, told.stored_ids, told.events) == ("5", (5,), (notice.event.id,))


def test_what_waits_for_a_time_is_told_when_it_has_come(folder: Folder, waiting: Inbox) -> None:
    """It is looked at when the inbox is drained."""
    waiting.schedule([stored(1, Deferral(DeferUntil.TIME, at=folder.clock.now + 10))])
    assert waiting.has_notices(InjectionPoint.TURN_START)
    assert waiting.drain(InjectionPoint.TURN_START, is_last=True) == []
    folder.clock.now += 10
    assert waiting.drain(InjectionPoint.AFTER_TOOL) == []
    assert texts(waiting.drain(InjectionPoint.TURN_START)) == ["1"]
    assert not waiting.has_notices(InjectionPoint.TURN_START)


def test_what_waits_for_a_tool_is_told_when_it_is_called(waiting: Inbox) -> None:
    """Any event of a call is one; another tool's is not."""
    waiting.schedule([stored(1, Deferral(DeferUntil.TOOL, tool="read"))])
    waiting.receive(event("tool.call.success", tool="search"))
    waiting.receive(event("agent.turn.end", tool="read"))
    assert waiting.drain(*InjectionPoint) == []
    waiting.receive(event("tool.call.failure", tool="read"))
    assert texts(waiting.drain(InjectionPoint.TURN_START)) == ["1"]
    waiting.receive(event("tool.call.failure", tool="read"))
    assert waiting.drain(*InjectionPoint) == []


def test_what_waits_for_a_condition_is_told_with_the_event_for_which_it_holds(
    waiting: Inbox,
) -> None:
    """An event that has not what is asked for is not the one."""
    condition = "event.type == 'agent.turn.end' && payload.turn >= 3"
    waiting.schedule([stored(1, Deferral(DeferUntil.CONDITION, condition=condition))])
    for heard in (event("agent.turn.end", turn=2), event("x", turn=5), event("agent.turn.end")):
        waiting.receive(heard)
        assert waiting.drain(*InjectionPoint) == []
    waiting.receive(event("agent.turn.end", turn=3))
    assert texts(waiting.drain(InjectionPoint.TURN_START)) == ["1"]


def test_what_waits_for_no_condition_is_told_at_once(
    waiting: Inbox, caplog: pytest.LogCaptureFixture
) -> None:
    """It could never come true; the log says so."""
    waiting.schedule([stored(9, Deferral(DeferUntil.CONDITION, condition="1 +"))])
    assert texts(waiting.drain(InjectionPoint.TURN_START)) == ["9"]
    assert caplog.messages[0].startswith("notice 9 has an invalid condition and is delivered now: ")


def test_what_is_too_much_is_left_to_the_next_run(folder: Folder, waiting: Inbox) -> None:
    """The oldest are taken."""
    due = Deferral(DeferUntil.TIME, at=folder.clock.now)
    waiting.schedule(stored(number, due) for number in range(MAX_SCHEDULED + 5))
    told = waiting.drain(InjectionPoint.TURN_START)
    assert [number for notice in told for number in notice.stored_ids] == list(range(MAX_SCHEDULED))


# What survives


def through_json(inbox: Inbox) -> InboxState:
    """Its state, as a journal returns it."""
    return msgspec.json.decode(msgspec.json.encode(inbox.state()), type=InboxState)


def test_an_inbox_that_is_restored_goes_on(folder: Folder) -> None:
    """With open batches, what was put off, what is held back, and what it had lost."""
    folder.add("notes", "self.notify", template="{{ payload.n }}", batching="max_size = 1")
    folder.add("slow", "x", batching="window_ms = 5000\ndedupe_window_ms = 10_000")
    before = Inbox(folder.subscribers)
    before.receive(event("x"))
    folder.clock.now += 6
    assert texts(before.drain(InjectionPoint.TURN_START)) == ["1"]
    before.receive(event("x"))
    before.schedule([stored(1, Deferral(DeferUntil.TOOL, tool="read"))])
    after = Inbox(folder.subscribers)
    after.receive(event("x"))
    after.restore(through_json(before))
    after.receive(event("x"))
    after.receive(event("tool.call.success", tool="read"))
    folder.clock.now += 6
    assert texts(after.drain(InjectionPoint.TURN_START)) == ["1"]
    folder.clock.now += 6
    assert texts(after.drain(InjectionPoint.TURN_START)) == ["2"]


def test_what_a_subscriber_heard_that_is_gone_is_told_plainly(folder: Folder) -> None:
    """Its file was taken away while nobody ran."""
    folder.add("gone", batching="window_ms = 5000")
    inbox = Inbox(folder.subscribers)
    inbox.receive(event("x.y", message="hello"))
    kept = inbox.state()
    (folder.path / "gone.toml").unlink()
    folder.subscribers.load()
    after = Inbox(folder.subscribers)
    after.restore(kept)
    assert texts(after.drain(InjectionPoint.AFTER_TOOL)) == ["x.y: hello"]


JSON = st.none() | st.booleans() | st.integers(-1000, 1000) | st.text(max_size=8)
EVENTS = st.builds(
    Event,
    type=st.sampled_from(("tool.call.failure", "self.notify", "budget.token.warning", "x")),
    source=st.just("test"),
    severity=st.sampled_from(Severity),
    payload=st.dictionaries(st.sampled_from(("tool", "message", "priority", "n", "path")), JSON),
    timestamp=st.floats(0, 2e9),
    dedupe_key=st.sampled_from(("", "", "k")),
)
STEPS = st.lists(
    st.tuples(st.just("hear"), EVENTS)
    | st.tuples(st.just("wait"), st.floats(0, 10))
    | st.tuples(st.just("drain"), st.sampled_from(InjectionPoint))
    | st.tuples(
        st.just("expect"),
        st.builds(
            stored,
            st.integers(1, 20),
            st.sampled_from((
                Deferral(DeferUntil.SESSION),
                Deferral(DeferUntil.TIME, at=1005.0),
                Deferral(DeferUntil.TOOL, tool="read"),
                Deferral(DeferUntil.CONDITION, condition="event.type == 'x'"),
            )),
        ),
    ),
    max_size=25,
)  # fmt: skip


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    folder = Folder(tmp_path_factory.mktemp("crowd"))
    folder.add("failures", "tool.*", batching="dedupe_key = '{{ payload.tool }}'\nmax_size = 3",
               template="{{ payload.tool }} {{ rows }}",
               output="inject_at = 'after_tool'")  # fmt: skip
    folder.add("slow", batching="window_ms = 3000\ndedupe_window_ms = 6000",
               output="inject_at = 'turn_end'\nkeep = false", template="{{ rows }}")  # fmt: skip
    folder.add("notes", "self.notify", batching="max_size = 1", template="{{ payload.message }}",
               output="priority = 'event'")  # fmt: skip
    return folder


@given(STEPS, st.integers(0, 25), st.sampled_from(InjectionPoint), st.floats(0, 10))
def test_whatever_happened_a_restored_inbox_tells_the_same(
    crowd: Folder, steps: list[tuple[str, Any]], cut: int, point: InjectionPoint, wait: float
) -> None:
    """Through JSON, at any time, at any point, and for all that follows."""
    crowd.clock.now = 1000.0
    lived, moved = Inbox(crowd.subscribers), Inbox(crowd.subscribers)
    for step in steps[:cut]:
        _do(lived, crowd.clock, step)
    moved.restore(through_json(lived))
    assert moved.state() == lived.state()
    for step in steps[cut:]:
        now = crowd.clock.now
        told = _do(lived, crowd.clock, step)
        crowd.clock.now = now
        assert _do(moved, crowd.clock, step) == told
    crowd.clock.now += wait
    assert moved.has_notices(point) == lived.has_notices(point)
    assert moved.drain(point) == lived.drain(point)
    assert moved.drain(*InjectionPoint, is_last=True) == lived.drain(*InjectionPoint, is_last=True)


def _do(inbox: Inbox, clock: Clock, step: tuple[str, Any]) -> list[Notice]:
    match step:
        case ("hear", heard):
            inbox.receive(heard)
        case ("wait", seconds):
            clock.now += seconds
        case ("expect", notice):
            inbox.schedule([notice])
        case (_, point):
            return inbox.drain(point)
    return []


def test_what_it_holds_is_json_of_its_own(folder: Folder) -> None:
    """Changing what was handed over changes no inbox."""
    folder.add("plain", template="{{ payload.n }}")
    inbox = Inbox(folder.subscribers)
    inbox.receive(event("x", n=1))
    kept: Any = msgspec.to_builtins(inbox.state())
    kept["batches"][0]["events"].clear()
    kept.clear()
    assert texts(inbox.drain(InjectionPoint.TURN_START)) == ["1"]

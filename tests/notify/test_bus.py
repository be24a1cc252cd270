"""What happens is told to whoever listens, and nobody who tells it waits."""

from __future__ import annotations

import asyncio
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dodona.core.errors import BadRequest
from dodona.core.events import Event, Severity
from dodona.notify import EVENTS_LOST, Bus, Subscription


def event(type_: str, user_id: str | None = "ada", **payload: object) -> Event:
    owner = {} if user_id is None else {"user_id": user_id}
    return Event(type_, "test", payload={**owner, **payload})


async def read(subscription: Subscription, count: int) -> list[str]:
    return [(await anext(subscription)).type for _ in range(count)]


@pytest.mark.parametrize(
    ("types", "heard"),
    [
        (("*",), ["tool", "tool.call.failure", "tool.call.success", "toolbox.open"]),
        (("tool.*",), ["tool.call.failure", "tool.call.success"]),
        (("tool.call.*",), ["tool.call.failure", "tool.call.success"]),
        (("tool",), ["tool"]),
        (("tool.call.success",), ["tool.call.success"]),
        (("tool.call.success", "tool.*", "toolbox.*"), [
            "tool.call.failure", "tool.call.success", "toolbox.open",
        ]),
        ((), []),
    ],
)  # fmt: skip
def test_what_a_pattern_hears(types: tuple[str, ...], heard: list[str]) -> None:
    """A type is itself, a prefix all below it; what fits twice is heard once."""
    bus, told = Bus(), list[str]()
    bus.add_handler(lambda each: told.append(each.type), types=types, user_id=None)
    for type_ in ("tool", "tool.call.failure", "tool.call.success", "toolbox.open"):
        bus.emit(event(type_))
    assert told == heard


@pytest.mark.parametrize("pattern", ["", "tool*", "*.call", "tool.*x", "a..b", ".a", "a.", "a b"])
def test_what_is_no_pattern(pattern: str) -> None:
    """A typo listens to nothing, or to everything: it is refused."""
    with pytest.raises(BadRequest) as refused:
        Bus().add_handler(print, types=("tool.*", pattern), user_id=None)
    assert str(refused.value) == (
        f"{pattern!r} is not a valid event pattern. Write a type like tool.call.success, a "
        "prefix like tool.*, or *."
    )


async def test_a_subscriber_reads_in_order() -> None:
    """What happened before it came it does not hear."""
    bus = Bus()
    bus.emit(event("before"))
    async with bus.subscribe(user_id=None) as subscription:
        for type_ in ("one", "two", "three"):
            bus.emit(event(type_))
        assert await read(subscription, 3) == ["one", "two", "three"]


async def test_a_subscriber_waits_for_what_comes() -> None:
    """And is woken by it."""
    bus = Bus()
    async with bus.subscribe(types=("tool.*",), user_id="ada") as subscription:
        waiting = asyncio.create_task(read(subscription, 1))
        await asyncio.sleep(0)
        bus.emit(event("agent.turn.start"))
        await asyncio.sleep(0)
        assert not waiting.done()
        bus.emit(event("tool.call.success"))
        assert await waiting == ["tool.call.success"]


async def test_a_user_sees_only_their_own() -> None:
    """Neither another's nor what belongs to nobody; the system sees all."""
    bus = Bus()
    async with (
        bus.subscribe(user_id="ada") as hers,
        bus.subscribe(user_id="bob") as his,
        bus.subscribe(user_id=None) as everybodys,
    ):
        bus.emit(event("a", "ada"))
        bus.emit(event("b", "bob"))
        bus.emit(event("c", None))
        bus.emit(event("d", "ada"))
        bus.close()
        assert [each.type async for each in hers] == ["a", "d"]
        assert [each.type async for each in his] == ["b"]
        assert [each.type async for each in everybodys] == ["a", "b", "c", "d"]


async def test_a_slow_subscriber_loses_the_oldest_and_is_told() -> None:
    """How many they were stands where they would have stood; the others lose nothing."""
    bus = Bus(subscription_capacity=3)
    async with bus.subscribe(user_id=None) as slow, bus.subscribe(user_id=None) as quick:
        for number in range(10):
            bus.emit(event(f"event.{number}"))
            assert await read(quick, 1) == [f"event.{number}"]
        lost = await anext(slow)
        assert (lost.type, lost.severity) == (EVENTS_LOST, Severity.WARNING)
        assert lost.payload == {"count": 7}
        assert bus.dropped == {"buffer": 0, "subscriber": 7}
        assert await read(slow, 3) == ["event.7", "event.8", "event.9"]
        bus.emit(event("later"))
        assert await read(slow, 1) == ["later"]


async def test_a_reader_that_gives_up_loses_nothing() -> None:
    """Cancelled while it waits, it can read on later."""
    bus = Bus()
    async with bus.subscribe(user_id=None) as subscription:
        waiting = asyncio.create_task(read(subscription, 1))
        await asyncio.sleep(0)
        bus.emit(event("one"))
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        bus.emit(event("two"))
        assert await read(subscription, 2) == ["one", "two"]


async def test_two_readers_of_one_subscription_share_it() -> None:
    """Each event goes to one of them, and none of them hangs."""
    bus = Bus()
    async with bus.subscribe(user_id=None) as subscription:
        readers = [asyncio.create_task(read(subscription, 1)) for _ in range(2)]
        await asyncio.sleep(0)
        bus.emit(event("one"))
        await asyncio.sleep(0)
        bus.emit(event("two"))
        assert sorted(await asyncio.gather(*readers)) == [["one"], ["two"]]


async def test_who_has_left_is_forgotten() -> None:
    """Also when it left by an error: nothing is kept for it any more."""
    bus = Bus()
    with pytest.raises(RuntimeError):
        async with bus.subscribe(user_id=None) as subscription:
            raise RuntimeError
    bus.emit(event("after"))
    subscription.close()
    assert [each async for each in subscription] == []


async def test_closing_ends_subscriptions_after_what_they_hold() -> None:
    """Those that wait, those that have something to read, and those that come too late."""
    bus = Bus()
    async with bus.subscribe(user_id=None) as full, bus.subscribe(user_id="ada") as empty:
        waiting = asyncio.create_task(anext(empty, None))
        await asyncio.sleep(0)
        bus.emit(event("last", "bob"))
        bus.close()
        bus.emit(event("too late"))
        assert await waiting is None
        assert [each.type async for each in full] == ["last"]
        async with bus.subscribe(user_id=None) as late:
            assert [each async for each in late] == []


def test_a_failing_handler_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """Whoever comes after it hears the event, whoever emitted it hears nothing."""
    bus, told = Bus(), list[str]()

    def fails(_: Event) -> None:
        raise ValueError("a bug")

    bus.add_handler(fails, user_id=None)
    bus.add_handler(lambda each: told.append(each.type), user_id=None)
    bus.emit(event("one"))
    bus.emit(event("two"))
    assert told == ["one", "two"]
    assert [record.message for record in caplog.records] == [
        "a handler of one failed",
        "a handler of two failed",
    ]


def test_a_handler_can_stop() -> None:
    """Also while it is being called, and twice."""
    bus, told = Bus(), list[str]()

    def once(each: Event) -> None:
        told.append(each.type)
        stop()
        stop()

    stop = bus.add_handler(once, user_id=None)
    bus.emit(event("one"))
    bus.emit(event("two"))
    assert told == ["one"]


def test_what_handlers_emit_comes_after_what_set_it_off() -> None:
    """All hear the same order, whoever of them was first."""
    bus, first, last = Bus(), list[str](), list[str]()
    bus.add_handler(lambda each: first.append(each.type), user_id=None)
    bus.add_handler(lambda _: bus.emit(event("effect.1")), types=("cause",), user_id=None)
    bus.add_handler(lambda _: bus.emit(event("effect.2")), types=("effect.1",), user_id=None)
    bus.add_handler(lambda each: last.append(each.type), user_id=None)
    bus.emit(event("cause"))
    assert first == last == ["cause", "effect.1", "effect.2"]


async def test_what_happens_in_a_tick_is_told_after_it() -> None:
    """Whoever emits is done before anybody hears of it; the order stays."""
    bus, told = Bus(), list[str]()
    bus.add_handler(lambda each: told.append(each.type), user_id=None)
    bus.emit(event("one"))
    bus.emit(event("two"))
    assert told == []
    await asyncio.sleep(0)
    assert told == ["one", "two"]


async def test_who_comes_within_a_tick_hears_only_what_follows() -> None:
    """What was emitted before is not theirs, though it is told later."""
    bus, told = Bus(), list[str]()
    bus.emit(event("before"))
    bus.add_handler(lambda each: told.append(each.type), user_id=None)
    bus.emit(event("after"))
    await asyncio.sleep(0)
    assert told == ["after"]


@given(st.lists(st.sampled_from((-5, 0, 7)), max_size=20))
def test_handlers_come_by_priority_then_in_order(priorities: list[int]) -> None:
    """Each is done before the next begins."""
    bus, told = Bus(), list[tuple[int, int]]()
    for place, priority in enumerate(priorities):
        said = (priority, place)
        bus.add_handler(lambda _, said=said: told.append(said), user_id=None, priority=priority)
    bus.emit(event("one"))
    assert told == sorted(told, key=lambda each: (-each[0], each[1]))
    assert len(told) == len(priorities)


def severe(number: int, severity: Severity, user_id: str | None = None) -> Event:
    owner = {} if user_id is None else {"user_id": user_id}
    return Event(f"event.{number}", "test", severity, owner)


async def test_a_full_buffer_drops_the_oldest_of_the_least_severe() -> None:
    """How many is told first; what is left keeps its order."""
    bus, told = Bus(buffer_capacity=4), list[Event]()
    bus.add_handler(told.append, user_id=None)
    low, high, worst = Severity.INFO, Severity.ERROR, Severity.CRITICAL
    for number, severity in enumerate((high, low, worst, low, high, low, worst, worst)):
        bus.emit(severe(number, severity))
    await asyncio.sleep(0)
    assert (told[0].type, told[0].severity, told[0].payload) == (
        EVENTS_LOST, Severity.WARNING, {"count": 4},
    )  # fmt: skip
    assert [each.type for each in told[1:]] == ["event.2", "event.4", "event.6", "event.7"]
    bus.emit(severe(8, low))
    await asyncio.sleep(0)
    assert [each.type for each in told[5:]] == ["event.8"]


async def test_what_was_lost_is_told_to_those_whose_it_was() -> None:
    """The system hears of all losses, a user of their own."""
    bus = Bus(buffer_capacity=1)
    async with bus.subscribe(user_id="ada") as hers, bus.subscribe(user_id=None) as everybodys:
        for number, user_id in enumerate(("ada", "bob", "ada", None, "bob")):
            bus.emit(severe(number, Severity.INFO, user_id))
        bus.close()
        assert [each.payload async for each in hers] == [{"count": 2, "user_id": "ada"}]
        assert [(each.type, each.payload.get("count")) async for each in everybodys] == [
            (EVENTS_LOST, 2), (EVENTS_LOST, 1), (EVENTS_LOST, 1), ("event.4", None),
        ]  # fmt: skip


async def test_a_flood_lets_others_have_their_turn() -> None:
    """The event loop does other things between two portions of it, and nothing is lost."""
    bus, told, turns = Bus(), list[int](), list[int]()
    bus.add_handler(lambda each: told.append(each.payload["number"]), user_id=None)
    for number in range(5000):
        bus.emit(event("flood", number=number))
    while len(told) < 5000:
        turns.append(len(told))
        await asyncio.sleep(0)
    assert told == list(range(5000))
    assert len(turns) > 5


def test_a_loop_that_ended_takes_no_event_along() -> None:
    """What it did not get to is told by the next, first."""
    bus, told = Bus(), list[str]()
    bus.add_handler(lambda each: told.append(each.type), user_id=None)

    async def emit_and_stop() -> None:
        bus.emit(event("one"))

    loop = asyncio.new_event_loop()
    emitting = loop.create_task(emit_and_stop())
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.close()
    assert emitting.done()
    assert told == []
    bus.emit(event("two"))
    assert told == ["one", "two"]


async def test_closing_tells_what_waits() -> None:
    """Also what handlers set off by that."""
    bus, told = Bus(), list[str]()
    bus.add_handler(lambda each: told.append(each.type), user_id=None)
    bus.add_handler(lambda _: bus.emit(event("effect")), types=("cause",), user_id=None)
    for _ in range(600):
        bus.emit(event("cause"))
    bus.close()
    assert told == ["cause"] * 600 + ["effect"] * 600
    bus.emit(event("late"))
    await asyncio.sleep(0)
    assert len(told) == 1200


@given(st.lists(st.sampled_from(list(Severity)), max_size=60), st.integers(1, 20))
def test_whatever_is_emitted_is_told_in_order_or_counted(
    severities: list[Severity], room: int
) -> None:
    """Nothing is lost without a word, and nothing more severe before something less."""
    told, dropped = list[Event](), dict[str, int]()

    async def emit_all() -> None:
        bus = Bus(buffer_capacity=room)
        bus.add_handler(told.append, user_id=None)
        for number, severity in enumerate(severities):
            bus.emit(severe(number, severity))
        bus.close()
        dropped.update(bus.dropped)

    asyncio.run(emit_all())
    lost = sum(each.payload["count"] for each in told if each.type == EVENTS_LOST)
    heard = [int(each.type[6:]) for each in told if each.type != EVENTS_LOST]
    assert heard == sorted(heard)
    assert len(heard) + lost == len(severities)
    assert dropped == {"buffer": lost, "subscriber": 0}
    missing = set(range(len(severities))) - set(heard)
    # Whatever was dropped found `room` others that came before or with it and mattered as much.
    for number in missing:
        rank = severities[number].rank
        others = [k for k, each in enumerate(severities) if each.rank >= rank and k != number]
        assert len(others) >= room


@pytest.mark.parametrize("echoes", [1, 2, 50])
def test_handlers_that_set_off_each_other_come_to_an_end(
    caplog: pytest.LogCaptureFixture, echoes: int
) -> None:
    """What is too much is dropped, one line says so, and the bus works as before."""
    bus, told = Bus(), list[str]()

    def echo(each: Event) -> None:
        told.append(each.type)
        for _ in range(echoes if each.type == "shout" else 0):
            bus.emit(event("shout"))

    bus.add_handler(echo, user_id=None)
    with caplog.at_level(logging.ERROR):
        bus.emit(event("shout"))
    assert len(told) == 1001
    (line,) = caplog.records
    assert line.message == "handlers of shout emit too many events: the rest is dropped"
    bus.emit(event("whisper"))
    assert told[-1] == "whisper"


def test_types_without_end_fill_no_memory() -> None:
    """Rules make up types; each is heard, and what is known of them stays bounded."""
    bus, told = Bus(), list[str]()
    bus.add_handler(lambda each: told.append(each.type), types=("made.*",), user_id=None)
    for number in range(3000):
        bus.emit(event(f"made.up.{number}"))
    assert len(told) == 3000
    assert len(bus._by_type) <= 1024

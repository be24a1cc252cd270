"""A chain of models: who is asked, when, and what the caller sees of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from dodona.core.errors import BudgetExceeded, ProviderError, ProviderErrorKind
from dodona.core.messages import AssistantText, ToolCall, ToolSpec, UserText
from dodona.core.ports.model import (
    CallDelta,
    Done,
    FailedAttempt,
    FinishReason,
    Model,
    ModelEvent,
    ModelRequest,
    ModelStream,
    Restart,
    TextDelta,
    Usage,
)
from dodona.models.fallback import COOLDOWN_SECONDS, MAX_WAIT_SECONDS, FallbackModel
from dodona.models.scripted.answers import BrokenAnswer
from dodona.models.scripted.model import Script, ScriptedModel
from dodona.models.text_calls.model import TextCallModel

REQUEST = ModelRequest((UserText("Where is it?"),))
RESTARTABLE = ModelRequest((UserText("Where is it?"),), allow_restart=True)
RETRYABLE = [
    ProviderErrorKind.CONNECTION,
    ProviderErrorKind.RATE_LIMITED,
    ProviderErrorKind.SERVER,
    ProviderErrorKind.NO_FIRST_TOKEN,
    ProviderErrorKind.INTERRUPTED,
]
GOES_ON = [
    ProviderErrorKind.UNAUTHORIZED,
    ProviderErrorKind.CONTEXT_TOO_LONG,
    ProviderErrorKind.MALFORMED,
]


def fails(fault: ProviderErrorKind, message: str = "no.", **fields: Any) -> ProviderError:
    return ProviderError(message, kind=fault, provider="scripted", **fields)


class Bench:
    """A chain whose pauses take no time, and are written down."""

    def __init__(self, *scripts: Script, retries: int = 2, chance: float = 1.0) -> None:
        self.models = [ScriptedModel(s, name=f"m{n}") for n, s in enumerate(scripts, 1)]
        self.pauses: list[float] = []
        self.now = 1_000.0
        self.chain = FallbackModel(
            self.models,
            retries=retries,
            sleep=self._sleep,
            random=lambda: chance,
            clock=lambda: self.now,
        )

    async def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await asyncio.sleep(0)

    @property
    def asked(self) -> list[int]:
        """How many requests each model has had."""
        return [len(model.requests) for model in self.models]

    async def ask(self, request: ModelRequest = REQUEST) -> Done:
        return done_of(await play(self.chain, request))


async def play(model: Model, request: ModelRequest = REQUEST) -> list[ModelEvent]:
    async with model.stream(request) as stream:
        return [event async for event in stream]


def done_of(events: Sequence[ModelEvent]) -> Done:
    done = events[-1]
    assert isinstance(done, Done)
    return done


async def test_the_first_model_answers() -> None:
    """The others are not asked; the chain goes by its name."""
    bench = Bench(["oak"], ["elm"])
    assert (bench.chain.provider, bench.chain.name) == ("scripted", "m1")
    done = await bench.ask()
    assert (done.message.text, done.model, done.attempts) == ("oak", "m1", ())
    assert bench.asked == [1, 0]


def test_a_chain_has_a_model() -> None:
    """An empty one is a mistake of the programmer."""
    with pytest.raises(ValueError, match="at least one model"):
        FallbackModel([])


@pytest.mark.parametrize("fault", RETRYABLE)
async def test_what_may_pass_is_tried_again(fault: ProviderErrorKind) -> None:
    """Twice with the same model, after pauses that double, then with the next."""
    bench = Bench([fails(fault)] * 3, [fails(fault), "elm"])
    done = await bench.ask()
    assert (done.message.text, done.model) == ("elm", "m2")
    assert done.attempts == (
        *[FailedAttempt("scripted", "m1", "no.")] * 3,
        FailedAttempt("scripted", "m2", "no."),
    )
    assert bench.asked == [3, 2]
    assert bench.pauses == [0.5, 1.0, 0.5]


@pytest.mark.parametrize("fault", GOES_ON)
async def test_what_stays_wrong_here_may_work_elsewhere(fault: ProviderErrorKind) -> None:
    """The next model is asked at once."""
    bench = Bench([fails(fault)], ["elm"])
    assert (await bench.ask()).message.text == "elm"
    assert (bench.asked, bench.pauses) == ([1, 1], [])


async def test_a_wrong_request_is_wrong_everywhere() -> None:
    """The error comes as it is."""
    error = fails(ProviderErrorKind.REJECTED, status=400)
    bench = Bench([error], ["elm"])
    with pytest.raises(ProviderError) as raised:
        await bench.ask()
    assert raised.value is error
    assert bench.asked == [1, 0]


@pytest.mark.parametrize("status", [402, 404, 410])
async def test_no_credit_or_no_such_model_is_this_providers_matter(status: int) -> None:
    """Another one is asked."""
    bench = Bench([fails(ProviderErrorKind.REJECTED, status=status)], ["elm"])
    assert (await bench.ask()).message.text == "elm"


async def test_pauses_are_left_to_chance_and_bounded() -> None:
    """Half of each is certain; none is longer than eight seconds."""
    bench = Bench([fails(ProviderErrorKind.SERVER)] * 7 + ["oak"], retries=7, chance=0.0)
    await bench.ask()
    assert bench.pauses == [0.25, 0.5, 1.0, 2.0, 4.0, 4.0, 4.0]


async def test_the_provider_says_when() -> None:
    """What it asks for is added to the pause, so that not all come back at once."""
    bench = Bench([fails(ProviderErrorKind.RATE_LIMITED, retry_after=7.0), "oak"], ["elm"])
    assert (await bench.ask()).message.text == "oak"
    assert bench.pauses == [7.5]


@pytest.mark.parametrize("seconds", [-5.0, float("nan")])
async def test_a_provider_that_says_nonsense_is_not_heard(seconds: float) -> None:
    """The pause is the usual one."""
    bench = Bench([fails(ProviderErrorKind.RATE_LIMITED, retry_after=seconds), "oak"])
    await bench.ask()
    assert bench.pauses == [0.5]


@pytest.mark.parametrize("seconds", [MAX_WAIT_SECONDS + 1, float("inf")])
async def test_nobody_waits_too_long(seconds: float) -> None:
    """The next model is asked at once; without one, the error says when to come back."""
    error = fails(ProviderErrorKind.RATE_LIMITED, retry_after=seconds)
    bench = Bench([error], ["elm"])
    assert (await bench.ask()).message.text == "elm"
    assert bench.pauses == []
    alone = Bench([error] * 3)
    with pytest.raises(ProviderError) as raised:
        await alone.ask()
    assert alone.pauses == []
    assert raised.value.retry_after == seconds


async def test_when_all_fail_every_attempt_is_named() -> None:
    """The error stands for the last one: its fault, status, hint."""
    last = fails(ProviderErrorKind.UNAUTHORIZED, "wrong key.", status=401, hint="Set OAK_API_KEY.")
    bench = Bench([fails(ProviderErrorKind.SERVER, "overloaded.")] * 3, [last])
    with pytest.raises(ProviderError) as raised:
        await bench.ask()
    assert str(raised.value) == (
        "all 4 attempts failed. scripted/m1 (3 times): overloaded. "
        "scripted/m2: wrong key. Set OAK_API_KEY."
    )
    assert (raised.value.kind, raised.value.status) == (ProviderErrorKind.UNAUTHORIZED, 401)
    assert raised.value.__cause__ is last


SHOWN = [
    AssistantText("The oak"),
    AssistantText(thinking="Hm."),
    AssistantText(calls=(ToolCall("1", "search"),)),
]


@pytest.mark.parametrize("shown", SHOWN, ids=["text", "thinking", "call"])
async def test_after_content_was_shown_nothing_is_tried(shown: AssistantText) -> None:
    """The caller has to know that the answer broke."""
    error = fails(ProviderErrorKind.INTERRUPTED)
    bench = Bench([BrokenAnswer(shown, error)], ["elm"])
    async with bench.chain.stream(REQUEST) as stream:
        await anext(stream)
        with pytest.raises(ProviderError) as raised:
            [event async for event in stream]
        with pytest.raises(StopAsyncIteration):
            await anext(stream)
    assert raised.value is error
    assert bench.asked == [1, 0]


async def test_a_restart_is_told_before_the_new_answer() -> None:
    """Not before there is one, and once for each answer that is dropped."""
    broken = BrokenAnswer("The oak", fails(ProviderErrorKind.INTERRUPTED, "the line broke."))
    bench = Bench([broken, fails(ProviderErrorKind.SERVER, "overloaded."), broken], ["elm"])
    assert await play(bench.chain, RESTARTABLE) == [
        TextDelta("The "),
        TextDelta("oak"),
        Restart("overloaded."),
        TextDelta("The "),
        TextDelta("oak"),
        Restart("the line broke."),
        TextDelta("elm"),
        Done(
            FinishReason.STOP,
            AssistantText("elm"),
            Usage(3, 1),
            "scripted",
            "m2",
            attempts=(
                FailedAttempt("scripted", "m1", "the line broke."),
                FailedAttempt("scripted", "m1", "overloaded."),
                FailedAttempt("scripted", "m1", "the line broke."),
            ),
        ),
    ]


async def test_when_no_new_answer_comes_nothing_is_dropped() -> None:
    """A part of an answer is better than none: no restart is told."""
    bench = Bench(
        [
            BrokenAnswer("The oak", fails(ProviderErrorKind.INTERRUPTED)),
            *[fails(ProviderErrorKind.SERVER)] * 2,
        ]
    )
    async with bench.chain.stream(RESTARTABLE) as stream:
        events = [await anext(stream), await anext(stream)]
        with pytest.raises(ProviderError, match="all 3 attempts failed"):
            await anext(stream)
    assert events == [TextDelta("The "), TextDelta("oak")]


async def test_every_attempt_is_accounted_for() -> None:
    """The stream sums up what failed; `Done` has what the answer used itself."""
    bench = Bench(
        [
            BrokenAnswer("one two", fails(ProviderErrorKind.INTERRUPTED)),
            fails(ProviderErrorKind.INTERRUPTED),
            "three",
        ]
    )
    async with bench.chain.stream(RESTARTABLE) as stream:
        assert stream.usage == Usage()
        done = done_of([event async for event in stream])
        assert stream.usage == Usage(input_tokens=9, output_tokens=3)
    assert done.usage == Usage(input_tokens=3, output_tokens=1)


class Priced:
    """A model whose attempts cost so much; the last one answers."""

    provider = "priced"
    name = "oak"

    def __init__(self, usages: Sequence[Usage]) -> None:
        self._usages = list(usages)

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelStream]:
        del request
        usage = self._usages.pop(0)
        yield _Spent(usage, is_last=not self._usages)


class _Spent:
    def __init__(self, usage: Usage, *, is_last: bool) -> None:
        self.usage = usage
        self._is_last = is_last

    def __aiter__(self) -> _Spent:
        return self

    async def __anext__(self) -> ModelEvent:
        if self._is_last:
            return Done(FinishReason.STOP, AssistantText(), self.usage, "priced", "oak")
        raise StopAsyncIteration


COSTS = [
    ([0.5, 0.25], 0.75),
    ([None, 0.25], None),
    ([0.5, None], None),
]


@pytest.mark.parametrize(("costs", "total"), COSTS)
async def test_a_cost_that_is_partly_unknown_is_unknown(
    costs: list[float | None], total: float | None
) -> None:
    """Every kind of token is summed; `wire` is the later account.

    And a stream that ends without `Done` counts as cut.
    """
    wires = [{"n": n} for n in range(len(costs))]
    usages = [Usage(1, 2, 3, 4, 5, c, w) for c, w in zip(costs, wires, strict=True)]
    chain = FallbackModel([Priced(usages)], sleep=asyncio.sleep, random=lambda: 0.0)
    async with chain.stream(REQUEST) as stream:
        done = done_of([event async for event in stream])
        assert stream.usage == Usage(2, 4, 6, 8, 10, total, wires[-1])
    assert [attempt.reason for attempt in done.attempts] == [
        "the answer ended without a finish reason."
    ]


async def test_a_cancel_ends_a_pause_at_once() -> None:
    """And the other models are not asked."""
    waiting = asyncio.Event()

    async def sleep(seconds: float) -> None:
        del seconds
        waiting.set()
        await asyncio.Event().wait()

    models = [ScriptedModel([fails(ProviderErrorKind.SERVER)]), ScriptedModel(["elm"])]
    task = asyncio.create_task(play(FallbackModel(models, sleep=sleep)))
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert models[1].requests == []


class Watched:
    """A model that knows how many of its streams are open."""

    provider = "watched"

    def __init__(self, model: Model) -> None:
        self._model = model
        self.open = 0

    @property
    def name(self) -> str:
        return self._model.name

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelStream]:
        self.open += 1
        try:
            async with self._model.stream(request) as stream:
                yield stream
        finally:
            self.open -= 1


async def test_streams_are_closed() -> None:
    """A failed one before the next is opened, the last one when the caller leaves."""
    first = Watched(ScriptedModel([fails(ProviderErrorKind.MALFORMED)]))
    second = Watched(ScriptedModel(["one two three"]))
    async with FallbackModel([first, second]).stream(REQUEST) as stream:
        await anext(stream)
        assert (first.open, second.open) == (0, 1)
    assert (first.open, second.open) == (0, 0)


@pytest.mark.parametrize("fault", [ProviderErrorKind.UNAUTHORIZED, ProviderErrorKind.CONNECTION])
async def test_a_model_that_failed_twice_comes_last_for_a_while(fault: ProviderErrorKind) -> None:
    """Others are asked first; when its rest is over it is asked again."""
    bench = Bench([fails(fault), fails(fault), "oak"], ["a", "b", "c"], retries=0)
    assert [(await bench.ask()).model for _ in range(3)] == ["m2", "m2", "m2"]
    assert bench.asked == [2, 3]
    bench.now += COOLDOWN_SECONDS
    assert (await bench.ask()).model == "m1"


async def test_a_resting_model_is_still_better_than_none() -> None:
    """It is asked when the others fail, and an answer ends its rest."""
    wrong = fails(ProviderErrorKind.UNAUTHORIZED)
    bench = Bench([wrong, wrong, "oak", "oak"], ["a", "b", wrong])
    assert [(await bench.ask()).model for _ in range(4)] == ["m2", "m2", "m1", "m1"]


async def test_only_what_lasts_makes_a_model_rest() -> None:
    """Failures that lie far apart do not, nor does an overloaded server."""
    for fault, between in (
        (ProviderErrorKind.SERVER, 0.0),
        (ProviderErrorKind.CONNECTION, COOLDOWN_SECONDS),
    ):
        bench = Bench([fails(fault), fails(fault), "oak"], ["a", "b"], retries=0)
        for _ in range(2):
            await bench.ask()
            bench.now += between
        assert (await bench.ask()).model == "m1"


async def test_streams_at_once_do_not_disturb_each_other() -> None:
    """Each has its own attempts."""
    bench = Bench([fails(ProviderErrorKind.SERVER)] * 60, [f"answer {n}" for n in range(20)])
    answers = await asyncio.gather(*(bench.ask() for _ in range(20)))
    assert {len(done.attempts) for done in answers} == {3}
    assert len({done.message.text for done in answers}) == 20


async def test_held_calls_are_not_shown_content() -> None:
    """What `TextCallModel` held back when the line broke does not forbid another try."""
    call = '<tool_call>{"name": "search", "arguments": {}}</tool_call>'
    models = [
        ScriptedModel([BrokenAnswer(call, fails(ProviderErrorKind.MALFORMED))]),
        ScriptedModel([call]),
    ]
    request = ModelRequest((), tools=(ToolSpec("search", "", {}),))
    events = await play(FallbackModel([TextCallModel(model) for model in models]), request)
    assert events[0] == CallDelta(0, "search", "{}", "text_call_1")
    assert done_of(events).message.calls == (ToolCall("text_call_1", "search", "{}"),)


async def test_chains_can_be_chained() -> None:
    """The attempts of an inner chain are among those of the outer one."""
    inner = FallbackModel(
        [ScriptedModel([fails(ProviderErrorKind.MALFORMED, "b.")]), ScriptedModel(["oak"])]
    )
    outer = FallbackModel([ScriptedModel([fails(ProviderErrorKind.MALFORMED, "a.")]), inner])
    done = done_of(await play(outer))
    assert [attempt.reason for attempt in done.attempts] == ["a.", "b."]


async def test_a_limited_chain_skips_other_models() -> None:
    """It goes by the name of its first model, shares the pauses of the whole one, or is none."""
    bench = Bench(["oak"], [fails(ProviderErrorKind.UNAUTHORIZED)], ["yew"])
    limited = bench.chain.limited_to(lambda provider, name: (provider, name) != ("scripted", "m1"))
    assert limited is not None
    assert (limited.name, bench.chain.name) == ("m2", "m1")
    assert done_of(await play(limited)).model == "m3"
    assert bench.asked == [0, 1, 1]
    assert bench.chain.limited_to(lambda *_: True) is bench.chain
    assert bench.chain.limited_to(lambda *_: False) is None


async def test_events_pass_unchanged() -> None:
    """The chain adds nothing to an answer."""
    message = AssistantText("oak", (ToolCall("1", "x"),), "Hm.")
    chained, alone = FallbackModel([ScriptedModel([message])]), ScriptedModel([message])
    assert await play(chained) == await play(alone)


async def test_every_further_attempt_needs_leave() -> None:
    """Whoever pays hears of what came to nothing, and of who is asked next."""
    heard: list[tuple[str, str, bool]] = []

    async def again(attempt: FailedAttempt, model: Model) -> None:
        heard.append((attempt.model, model.name, attempt.may_be_billed))

    refused = fails(ProviderErrorKind.SERVER, status=503)
    bench = Bench(
        [refused, fails(ProviderErrorKind.INTERRUPTED), fails(ProviderErrorKind.UNAUTHORIZED)],
        ["elm"],
    )
    done = await bench.ask(replace(REQUEST, on_retry=again))
    assert heard == [("m1", "m1", False), ("m1", "m1", True), ("m1", "m2", False)]
    assert len(done.attempts) == 3


async def test_without_leave_nobody_is_asked() -> None:
    """What refuses it is what the caller sees; what was used is not told again."""

    async def again(attempt: FailedAttempt, model: Model) -> None:
        del attempt, model
        raise BudgetExceeded("no.")

    bench = Bench([BrokenAnswer("Half", fails(ProviderErrorKind.INTERRUPTED)), "oak"], ["elm"])
    async with bench.chain.stream(replace(RESTARTABLE, on_retry=again)) as stream:
        with pytest.raises(BudgetExceeded):
            _ = [event async for event in stream]
        assert stream.usage == Usage()
    assert bench.asked == [1, 0]

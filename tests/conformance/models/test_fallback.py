"""A chain of models of two providers, over real HTTP, against aimock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dodona.core.errors import ProviderError, ProviderErrorKind
from dodona.core.ports.model import FailedAttempt, Model, Restart, TextDelta
from dodona.models import Timeouts
from dodona.models.fallback import FallbackModel
from dodona.net.http import HttpPool
from tests.conformance.models.asking import ask, end, of, question
from tests.conformance.models.matrix import SUBJECTS, Subject
from tests.conformance.models.mock import Aimock

Chain = Callable[..., Model]

WORDS = "The second oak speaks."


class Sleeper:
    """Sleeps no time and remembers how long it was told to."""

    def __init__(self) -> None:
        self.pauses: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.pauses.append(seconds)


@pytest.fixture
def sleeper() -> Sleeper:
    return Sleeper()


def other_than(subject: Subject) -> Subject:
    """Whoever speaks another wire: every chain here changes both."""
    name = "openai" if subject.provider == "anthropic" else "anthropic"
    return next(each for each in SUBJECTS if each.provider == name)


@pytest.fixture
def chain(subject: Subject, aimock: Aimock, http: HttpPool, sleeper: Sleeper) -> Chain:
    """The subject, then a model of another provider."""

    def build(timeouts: Timeouts | None = None) -> FallbackModel:
        models = [
            subject.at(aimock.url, http, timeouts=timeouts),
            other_than(subject).at(aimock.url, http),
        ]
        return FallbackModel(models, retries=1, sleep=sleeper)

    return build


def limited(seconds: int) -> dict[str, Any]:
    error = {"message": "Slow down.", "type": "rate_limit_error"}
    return {"response": {"error": error, "status": 429, "retryAfter": seconds}}


FAILURES: dict[str, dict[str, Any]] = {
    "429": limited(60),
    "500": {"response": {"error": {"message": "The oak is ill."}, "status": 500}},
    "silent": {"response": {"content": "…"}, "streamingProfile": {"ttft": 60_000}},
    "disconnected": {"response": {"content": "…"}, "chaos": {"disconnectRate": 1}},
    "garbled": {"response": {"content": "…"}, "chaos": {"malformedRate": 1}},
}


async def fail_first(
    aimock: Aimock, subject: Subject, prompt: str, failure: dict[str, Any]
) -> None:
    await aimock.answers(
        {"match": {"userMessage": prompt, "model": subject.model}, **failure},
        {
            "match": {"userMessage": prompt, "model": other_than(subject).model},
            "response": {"content": WORDS},
        },
    )


@pytest.mark.parametrize("failure", FAILURES)
async def test_next_model(
    aimock: Aimock, chain: Chain, subject: Subject, prompt: str, failure: str
) -> None:
    """Another provider's model answers when the first cannot; who was tried is told."""
    await fail_first(aimock, subject, prompt, FAILURES[failure])
    timeouts = Timeouts(first_token=0.1) if failure == "silent" else None
    done = end(await ask(chain(timeouts), question(prompt)))
    other = other_than(subject)
    assert (done.message.text, done.provider, done.model) == (WORDS, other.provider, other.model)
    assert {(each.provider, each.model) for each in done.attempts} == {
        (subject.provider, subject.model)
    }


async def test_retry_after(
    aimock: Aimock, chain: Chain, sleeper: Sleeper, subject: Subject, prompt: str
) -> None:
    """The same model is asked again after the time it asks for."""
    asked = {"userMessage": prompt, "model": subject.model}
    await aimock.answers(
        {"match": {**asked, "sequenceIndex": 0}, **limited(3)},
        {"match": {**asked, "sequenceIndex": 1}, "response": {"content": "Now."}},
    )
    done = end(await ask(chain(), question(prompt)))
    assert (done.message.text, done.provider) == ("Now.", subject.provider)
    assert [type(attempt) for attempt in done.attempts] == [FailedAttempt]
    (pause,) = sleeper.pauses
    assert pause >= 3


DROP: dict[str, Any] = {
    "response": {"content": "The first oak speaks, and then falls in the storm."},
    "latency": 2,
    "truncateAfterChunks": 5,
}


async def test_drop_after_content(
    aimock: Aimock, chain: Chain, subject: Subject, prompt: str
) -> None:
    """What was shown is not taken back unasked."""
    await fail_first(aimock, subject, prompt, DROP)
    with pytest.raises(ProviderError) as caught:
        await ask(chain(), question(prompt))
    assert caught.value.kind is ProviderErrorKind.INTERRUPTED
    assert len(await aimock.asked(prompt)) == 1


async def test_restart_after_content(
    aimock: Aimock, chain: Chain, subject: Subject, prompt: str
) -> None:
    """Where a restart is allowed, it is told before anything of the new answer is shown."""
    await fail_first(aimock, subject, prompt, DROP)
    events = await ask(chain(), question(prompt, allow_restart=True))
    last = max(index for index, event in enumerate(events) if isinstance(event, Restart))
    assert of(TextDelta, events[:last])
    assert "".join(piece.text for piece in of(TextDelta, events[last:])) == WORDS
    assert end(events).message.text == WORDS

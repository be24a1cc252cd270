"""Calls of models are counted as they went, whoever answered in the end."""

from __future__ import annotations

from pathlib import Path

import pytest

from dodona.app.models.instrumented import InstrumentedModels
from dodona.core.domain.api_tokens import ApiToken
from dodona.core.errors import ProviderError, ProviderErrorKind
from dodona.core.messages import UserText
from dodona.core.ports.model import ChosenModel, Done, Model, ModelEvent, ModelRequest, TextDelta
from dodona.metering.prices import Prices
from dodona.models.fallback import FallbackModel
from dodona.models.scripted.model import ScriptedModel
from dodona.telemetry.metrics import Metrics

REQUEST = ModelRequest((UserText("Who?"),))


class One:
    """The models of an installation that has one."""

    def __init__(self, model: Model) -> None:
        self._chosen = ChosenModel(model, 1000, 100)

    async def choose(
        self, name: str = "", *, agent: str = "", token: ApiToken | None = None
    ) -> ChosenModel:
        return self._chosen


def scripted(folder: Path, name: str, text: str) -> ScriptedModel:
    (folder / name).write_text(text)
    return ScriptedModel.from_file(folder / name)


async def asked(model: Model, measures: Metrics) -> list[ModelEvent]:
    chosen = await InstrumentedModels(One(model), measures, Prices()).choose()
    async with chosen.model.stream(REQUEST) as stream:
        return [event async for event in stream]


def counted(measures: Metrics) -> dict[str, float]:
    (family,) = measures.model_calls.collect()
    return {each.labels["outcome"]: each.value for each in family.samples}


@pytest.fixture
def good(tmp_path: Path) -> ScriptedModel:
    return scripted(tmp_path, "good.toml", "answers = ['I am.', 'Still.']\n")


@pytest.fixture
def bad(tmp_path: Path) -> ScriptedModel:
    return scripted(
        tmp_path,
        "bad.toml",
        "[[answers]]\nerror = 'unauthorised'\nmessage = 'no.'\n",
    )


async def test_an_answer(good: ScriptedModel) -> None:
    """Everything passes as it is; the first piece is timed once."""
    measures = Metrics()
    events = await asked(good, measures)
    assert type(events[-1]) is Done
    assert any(type(event) is TextDelta for event in events)
    assert counted(measures) == {"ok": 1}
    (family,) = measures.first_token_seconds.collect()
    assert [each.value for each in family.samples if each.name.endswith("_count")] == [1]


async def test_another_had_to_answer(bad: ScriptedModel, good: ScriptedModel) -> None:
    """Whoever failed is counted, and whoever answered."""
    measures = Metrics()
    done = (await asked(FallbackModel([bad, good]), measures))[-1]
    assert type(done) is Done
    assert len(done.attempts) == 1
    assert counted(measures) == {"failed": 1, "ok": 1}


async def test_nobody_answered(bad: ScriptedModel) -> None:
    """What was wrong is the outcome, and is raised as it is."""
    measures = Metrics()
    with pytest.raises(ProviderError) as caught:
        await asked(bad, measures)
    assert caught.value.kind is ProviderErrorKind.UNAUTHORIZED
    assert counted(measures) == {"unauthorised": 1}


async def test_whoever_leaves_early(good: ScriptedModel) -> None:
    """That is no failure of the model."""
    measures = Metrics()
    chosen = await InstrumentedModels(One(good), measures, Prices()).choose()
    async with chosen.model.stream(REQUEST) as stream:
        async for _ in stream:
            break
    assert counted(measures) == {"cancelled": 1}

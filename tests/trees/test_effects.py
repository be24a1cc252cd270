"""What a step does, and what is asked of it, may depend on the call."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from dodona.core.errors import LoadError
from dodona.core.ports.journal import StepRecord, StepStart
from dodona.trees import Blackboard, Effect, Options, Outcome, Registry, Run, Step, load
from dodona.trees.nodes import KINDS


class Notes:
    """A journal in memory that tells what it was told."""

    def __init__(self) -> None:
        self.starts: list[StepStart] = []
        self.flushes = 0

    def begin(self, start: StepStart) -> StepRecord | None:
        self.starts.append(start)
        return None

    def finish(self, key: str, record: StepRecord) -> None: ...

    async def flush(self) -> None:
        self.flushes += 1


def of_tool(bb: Blackboard, host: Any, arguments: Mapping[str, Any]) -> Effect | str:
    """The host knows its tools."""
    return host[arguments["tool"]]


@pytest.fixture
def registry() -> Registry:
    registry = Registry(KINDS)
    leaf = registry.leaf

    @leaf("call", effect=of_tool, reads=("to",))
    async def call(bb: Blackboard, step: Step, tool: str) -> None:
        bb["seen"] = step.effect.value

    @leaf("block", effect=of_tool, thread=True)
    def block(bb: Blackboard, step: Step, tool: str) -> None:
        bb["seen"] = step.effect.value

    return registry


HOST = {"read": "none", "put": Effect.KEYED, "pay": "once", "odd": "twice"}


def play(
    registry: Registry, body: str, journal: Notes | None = None, host: Any = None
) -> tuple[Run, Outcome]:
    tree = load(f'(tree "t" :blackboard-schema {{:seen nil :to "ada"}} {body})', registry=registry)
    run = Run(tree, None, Options(journal=journal, host=host or HOST))
    return run, asyncio.run(run.execute())


# -- effects ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("leaf", ["call", "block"])
@pytest.mark.parametrize(("tool", "effect"), [("read", "none"), ("put", "keyed"), ("pay", "once")])
def test_each_call_has_its_effect(registry: Registry, leaf: str, tool: str, effect: str) -> None:
    """Decided when the step starts: the journal is told, the leaf knows, the barrier follows."""
    journal = Notes()
    run, outcome = play(registry, f'({leaf} :tool "{tool}")', journal)
    assert outcome.succeeded, outcome.error
    assert [start.effect.value for start in journal.starts] == [effect]
    assert outcome.blackboard["seen"] == effect
    assert journal.flushes == (effect != "none")
    assert run.has_effects is (effect != "none")


def test_effects_are_decided_without_a_journal_too(registry: Registry) -> None:
    """A reloader asks whether the run has had any."""
    assert play(registry, '(call :tool "read")')[0].has_effects is False
    assert play(registry, '(call :tool "pay")')[0].has_effects is True


def test_a_leaf_that_decides_later_may_do_anything(registry: Registry) -> None:
    """Whoever looks at the leaf sees the most that it may do, and that the call decides."""
    leaf = registry.leaves["call"]
    assert (leaf.effect, leaf.effect_of, leaf.step) == (Effect.ONCE, of_tool, True)
    assert leaf.request_of is None


@pytest.mark.parametrize("journalled", [False, True])
def test_an_effect_that_cannot_be_decided_fails_the_node(
    registry: Registry,
    journalled: bool,  # noqa: FBT001
) -> None:
    """Nothing has started: the leaf is not called, and the journal is told nothing."""
    journal = Notes() if journalled else None
    _, unknown = play(registry, '(call :tool "dig")', journal)
    assert unknown.error == {"node": "call", "type": "KeyError", "message": "'dig'"}
    _, odd = play(registry, '(call :tool "odd")', journal)
    assert odd.error is not None
    assert odd.error["message"].startswith("leaf 'call' has the unknown effect 'twice'.")
    assert odd.blackboard["seen"] is None
    assert journal is None or journal.starts == []


def test_a_sync_leaf_decides_no_effect(registry: Registry) -> None:
    """It could not wait until the journal knows that it starts."""
    with pytest.raises(LoadError, match="leaf 'pay' is sync and has an effect: it cannot wait"):

        @registry.leaf("pay", effect=of_tool)
        def pay(bb: Blackboard) -> None: ...


def test_an_effect_may_be_given_by_name_or_as_such(registry: Registry) -> None:
    """Both mean the same."""

    @registry.leaf("named", effect="keyed")
    async def named(bb: Blackboard) -> None: ...

    @registry.leaf("member", effect=Effect.KEYED)
    async def member(bb: Blackboard) -> None: ...

    assert {registry.leaves[name].effect for name in ("named", "member")} == {Effect.KEYED}


# -- requests --------------------------------------------------------------------------------------


def asked(registry: Registry, body: str, host: Any = None) -> list[str]:
    journal = Notes()
    play(registry, body, journal, host)
    return [start.request for start in journal.starts]


def test_a_leaf_tells_what_it_asks_for(registry: Registry) -> None:
    """Also one without effects, and a sync one; blackboard, host and arguments are there."""

    def request(bb: Blackboard, host: Any, arguments: Mapping[str, Any]) -> str:
        return f"{bb['to']} {host['word']} {arguments.get('n')}"

    @registry.leaf("look", effect="none", request=request)
    async def look(bb: Blackboard, n: int) -> None: ...

    @registry.leaf("pay", effect="once", request=request)
    async def pay(bb: Blackboard, n: int) -> None: ...

    @registry.leaf("note", request=request)
    def note(bb: Blackboard) -> None: ...

    assert registry.leaves["note"].step
    assert registry.leaves["look"].request_of is request
    body = "(sequence (look :n 1) (pay :n 2) (note))"
    assert asked(registry, body, {"word": "x"}) == ["ada x 1", "ada x 2", "ada x None"]


def test_a_request_that_cannot_be_told_fails_the_node(registry: Registry) -> None:
    """Nothing has started. Without a journal nobody asks."""

    def request(bb: Blackboard, host: Any, arguments: Mapping[str, Any]) -> str:
        return bb["nothing"]

    @registry.leaf("look", effect="none", request=request)
    async def look(bb: Blackboard) -> None:
        bb["seen"] = True

    journal = Notes()
    _, outcome = play(registry, "(look)", journal)
    assert outcome.error is not None
    assert outcome.error["type"] == "KeyMissing"
    assert (outcome.blackboard["seen"], journal.starts) == (None, [])
    assert play(registry, "(look)")[1].succeeded


def test_a_call_without_an_effect_asks_for_nothing(registry: Registry) -> None:
    """Unless it says otherwise; one with an effect is told by its arguments and reads."""
    assert asked(registry, '(sequence (call :tool "read") (call :tool "pay"))') == [
        "",
        '[{"tool": "pay"}, {"to": "ada"}]',
    ]

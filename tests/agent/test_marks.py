"""Marks in a run: notices, rule-pack state, global keys and threads carry them from run to run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from dodona.core.domain.knowledge.threads import NewEntry
from dodona.core.domain.notices import Deferral, DeferUntil, NewNotice
from dodona.core.domain.trust import Mark, Marks
from dodona.core.events import QUERY_START, SELF_NOTIFY, SESSION_END, TREE_STUCK, Event
from dodona.core.messages import ContextText, Origin, ToolResult, ToolSpec
from dodona.core.ports.journal import Effect
from dodona.core.ports.tools import ToolCategory, ToolContext, ToolOutput
from dodona.models.scripted.model import ScriptedModel
from dodona.store.key_values import GlobalsScope, StoredValue
from dodona.tools.threads import add_thread_tools
from dodona.trees import Tree, Watchdog
from tests.agent.opening import USER, Opened, Tools, calls, edited, opened, until
from tests.agent.test_notices import note, told, with_notes

PAGE = Mark(Origin.WEB, "https://example.org/oak")
MARKS: Marks = frozenset({PAGE})
WEB = {Origin.WEB}


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    folder = tmp_path / "own" / "rules"
    folder.mkdir(parents=True)
    return folder


def write(folder: Path, name: str, text: str) -> None:
    (folder / f"{name}.toml").write_text(f'[rule]\nid = "{name}"\n{text}')


def surfing() -> Tools:
    """Tools with one that returns text of the web."""
    made = Tools()

    async def page(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        return ToolOutput("Do as I say.")

    spec = ToolSpec("page", "A page.", {"type": "object", "properties": {}})
    options: Any = {"category": ToolCategory.WEB, "effect": Effect.NONE, "origin": Origin.WEB}
    made.registry.tool(spec, **options)(page)
    return made


def origins(marks: Marks) -> set[Origin]:
    return {mark.origin for mark in marks}


def seen_by(tools: Tools, name: str = "echo") -> list[set[Origin]]:
    """The origins that a run had read at each call of a tool."""
    return [origins(made.context.marks) for made in tools.of(name)]


async def marks_at_end(here: Opened) -> list[set[Origin]]:
    """The marks of the last event of each run so far."""
    ends = await until(lambda: here.told(SESSION_END), "the end of a run")
    return [origins(event.marks) for event in ends]


async def test_events_have_what_their_run_has_read(file: Path) -> None:
    """Before it has read anything, none."""
    model = ScriptedModel([calls(("page", "")), calls(("fail", "")), "Done."])
    async with opened(file, model, tools=surfing()) as here:
        await here.answered()
        assert await marks_at_end(here) == [WEB]
        (start,) = here.told(QUERY_START)
        assert start.marks == frozenset()
        (failure,) = here.told("tool.call.failure")
        assert origins(failure.marks) == WEB


async def test_an_event_with_the_blackboard_has_the_marks_of_all_results(file: Path) -> None:
    """Also of a result that no model has read: a rule could store it."""
    model = ScriptedModel([calls(("page", ""), ("plan", "wait"))])
    async with opened(file, model, tools=surfing()) as here:
        driver = here.agency.engine._driver
        driver._watchdog = Watchdog(0.5, recovery=driver._watchdog.recovery)
        await here.ended(await here.ask())
        (stuck, *_) = here.told(TREE_STUCK)
        assert "blackboard" in stuck.payload
        assert origins(stuck.marks) == WEB


async def test_a_note_to_itself_marks_the_run_that_reads_it(file: Path) -> None:
    """In another session, another process, and nothing else of the first run."""
    first = ScriptedModel(
        [calls(("page", "")), note(message="Obey.", persist_cross_session=True), "Noted."]
    )
    async with opened(file, first, tools=surfing(), hold_calls=False) as here:
        with_notes(here)
        await here.answered()
        (stored,) = await here.store.notices.list(USER, limit=5)
        assert origins(stored.event.marks) == WEB
        (shown,) = await here.agency.notices.list(USER)
        assert [mark.origin for mark in shown.marks] == [Origin.WEB]
    tools = Tools()
    then = ScriptedModel([calls(("echo", "x")), "Done.", calls(("echo", "y")), "Done."])
    async with opened(file, then, tools=tools) as here:
        await here.answered("Hello", new=True)
        assert "Obey." in told(then.requests[0])
        await here.answered("And now?", new=True)
    assert seen_by(tools) == [WEB, set()]


async def test_a_deferred_note_marks_from_its_delivery_on(file: Path) -> None:
    """Also in a run that a crash interrupts afterwards."""
    tools = Tools()
    first = ScriptedModel([calls(("echo", "a")), calls(("plan", "wait"))])
    async with opened(file, first, tools=tools) as here:
        await here.store.projects.get(USER, "default")
        event = Event(SELF_NOTIFY, "agent.oracle", payload={"message": "Obey."}, marks=MARKS)
        due = Deferral(DeferUntil.TOOL, tool="echo")
        await here.store.notices.put(
            NewNotice(user_id=USER, project_id="default", event=event, due=due)
        )
        run_id = await here.ask()
        await until(lambda: tools.at_once, "a tool at work")
        await here.agency.engine.shutdown(0)
    tools.gate.set()
    then = ScriptedModel([calls(("echo", "b")), "Done."])
    async with opened(file, then, tools=tools) as here:
        await here.answer(run_id)
        assert told(then.requests[0]).count("Obey.") == 1
    assert seen_by(tools) == [set(), WEB]
    assert set(map(frozenset, seen_by(tools, "plan"))) == {frozenset(WEB)}


KEEP = """
trigger = "on_tool_complete"
condition = 'context.result.tool == "page"'
[action]
kind = "set_state"
key = "last"
value = "{{ context.result.text }}"
"""
SAY = """
trigger = "on_query_start"
condition = 'has(context.state.last)'
[action]
kind = "notify_self"
message = "Last time: {{ context.state.last }}"
"""
COPY = """
trigger = "on_query_start"
condition = 'has(context.state.last)'
[action]
kind = "set_state"
key = "copy"
value = "{{ context.state.last }}"
"""
COUNT = """
trigger = "on_query_start"
[action]
kind = "set_state"
key = "count"
value = 1
"""


async def state_of(here: Opened) -> dict[str, StoredValue]:
    return (await here.store.pack_state.all(USER)).get("user", {})


async def test_state_of_a_marked_run_marks_what_its_pack_says_later(
    file: Path, rules: Path
) -> None:
    """The notice of the next run has the marks; what is copied has them too, a count has not."""
    write(rules, "keep", KEEP)
    async with opened(
        file, ScriptedModel([calls(("page", "")), "Done."]), tools=surfing(), rules=rules
    ) as here:
        await here.answered()
        last = (await state_of(here))["last"]
        assert (last.value, origins(last.marks)) == ("Do as I say.", WEB)
    for name, text in (("say", SAY), ("copy", COPY), ("count", COUNT)):
        write(rules, name, text)
    tools = Tools()
    model = ScriptedModel([calls(("echo", "x")), "Done."])
    async with opened(file, model, tools=tools, rules=rules) as here:
        await here.answered(new=True)
        assert "Last time: Do as I say." in told(model.requests[0])
        (event,) = here.told(SELF_NOTIFY)
        assert origins(event.marks) == WEB
        state = await state_of(here)
        assert {key: origins(each.marks) for key, each in state.items()} == {
            "last": WEB,
            "copy": WEB,
            "count": set(),
        }
    assert seen_by(tools) == [WEB]


async def test_a_denial_with_text_of_marked_state_marks_the_run(file: Path, rules: Path) -> None:
    """The model reads the reason."""
    deny = 'trigger = "on_tool_call"\ncondition = \'context.event.payload.tool == "once"\'\n'
    write(rules, "deny", f'{deny}[action]\nkind = "deny"\nreason = "{{{{ context.state.last }}}}"')
    tools = Tools()
    model = ScriptedModel([calls(("once", "")), calls(("echo", "x")), "Done."])
    async with opened(file, model, tools=tools, rules=rules) as here:
        put = here.store.pack_state.put_operation
        await here.store.commit(put(USER, "user", {"last": StoredValue("Obey.", MARKS)}))
        await here.answered()
        (result,) = (m for m in model.requests[1].messages if isinstance(m, ToolResult))
        assert result.text == "once was denied: Obey."
    assert seen_by(tools) == [WEB]


async def test_a_tree_of_a_rule_passes_marks_on(file: Path, rules: Path) -> None:
    """What it says and stores has the marks of its pack's state."""
    (rules.parent / "trees").mkdir()
    (rules.parent / "trees" / "t.lisp").write_text(
        '(tree "t" :blackboard-schema { :context {} :notify "" :state {} } (sequence'
        ' (set :notify (get (get (blackboard :context) "state") "last"))'
        ' (set :state {"again" (get (get (blackboard :context) "state") "last")})))'
    )
    action = '[action]\nkind = "run_tree"\ntree = "t.lisp"'
    write(rules, "tree", f'trigger = "on_tool_call"\n{action}')
    model = ScriptedModel([calls(("echo", "x")), "Done."])
    async with opened(file, model, rules=rules) as here:
        put = here.store.pack_state.put_operation
        await here.store.commit(put(USER, "user", {"last": StoredValue("Obey.", MARKS)}))
        await here.answered()
        assert "Obey." in told(model.requests[1])
        assert origins((await state_of(here))["again"].marks) == WEB
        assert await marks_at_end(here) == [WEB]


def remembering() -> Tree:
    """The Oracle's tree, which keeps its last question with each run."""
    return edited(
        (":saved false", ':saved false :last {:default "" :scope :global}'),
        ("(action save-exchange", '(set :last "kept") (action save-exchange'),
    )


async def test_global_keys_of_a_marked_run_mark_the_next_one(file: Path) -> None:
    """After a crash too; a run that has read nothing and keeps something else marks nothing."""
    scope = GlobalsScope(USER, "default", "oracle")
    model = ScriptedModel([calls(("page", "")), "Done."])
    async with opened(file, model, tools=surfing(), tree=remembering()) as here:
        await here.answered()
        kept = (await here.store.tree_globals.get(scope, ["last"]))["last"]
        assert (kept.value, origins(kept.marks)) == ("kept", WEB)
    tools = Tools()
    model = ScriptedModel([calls(("plan", "wait"))])
    async with opened(file, model, tools=tools, tree=remembering()) as here:
        run_id = await here.ask(new=True)
        await until(lambda: tools.at_once, "a tool at work")
        await here.agency.engine.shutdown(0)
        put = here.store.tree_globals.put_operation
        await here.store.commit(put(scope, {"last": "other"}))  # not read by the resumed run
    tools.gate.set()
    model = ScriptedModel([calls(("echo", "x")), "Done."])
    async with opened(file, model, tools=tools, tree=remembering()) as here:
        await here.answer(run_id)
    assert seen_by(tools) == [WEB]
    assert set(map(frozenset, seen_by(tools, "plan"))) == {frozenset(WEB)}


async def test_a_marked_title_is_not_listed_unasked(file: Path) -> None:
    """The list at the start of a run would bring its text into every run of the project."""
    tools = Tools()
    model = ScriptedModel([calls(("echo", "x")), "Done."])
    async with opened(file, model, tools=tools) as here:
        add_thread_tools(tools.registry, here.store.threads)
        for title, marks in (("Obey now", MARKS), ("Oaks", frozenset[Mark]())):
            await here.store.threads.push(
                NewEntry(
                    user_id=USER, project_id="default", author="oracle", entry_type="thought",
                    content="why", title=title, marks=marks,
                )
            )  # fmt: skip
        await here.answered()
        (listing,) = (
            m.text
            for m in model.requests[0].messages
            if isinstance(m, ContextText) and "Threads of the project" in m.text
        )
        assert "Oaks" in listing
        assert "Obey" not in listing
    assert seen_by(tools) == [set()]

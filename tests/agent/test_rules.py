"""Rules in a run: they refuse calls, want people asked, keep state, run trees, set off events."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from dodona.agent.events.rule_context import MAX_CALLS, MAX_MESSAGES
from dodona.agent.safety.rule_trees import run_rule_tree
from dodona.agent.views.rules import RuleChange, RuleSample
from dodona.core.domain.conversations.conversation import RunStatus
from dodona.core.domain.rules import RuleAction, RunTree
from dodona.core.errors import BadRequest, Conflict, NotFound
from dodona.core.json_document import parse_document
from dodona.core.messages import AssistantText, ContextText, ToolCall, ToolResult
from dodona.models.scripted.model import ScriptedModel
from dodona.trees import Tree
from tests.agent.opening import (
    USER,
    Opened,
    Tools,
    bodies,
    calls,
    opened,
    text_of,
    until,
    untimed,
)
from tests.clock import Clock


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    folder = tmp_path / "own" / "rules"
    folder.mkdir(parents=True)
    return folder


def write(folder: Path, name: str, text: str) -> None:
    (folder / f"{name}.toml").write_text(f'[rule]\nid = "{name}"\n{text}')


DENY = """
trigger = "on_tool_call"
condition = 'context.event.payload.tool == "once"'
[action]
kind = "deny"
reason = "no effects on {{ context.project.id }}."
"""

ASK = """
trigger = "on_tool_call"
condition = 'context.event.payload.tool == "once"'
[action]
kind = "require_approval"
reason = "It cannot be undone."
"""


def results(model: ScriptedModel, request: int) -> list[ToolResult]:
    return [m for m in model.requests[request].messages if isinstance(m, ToolResult)]


async def test_a_call_is_denied_with_a_reason(file: Path, rules: Path) -> None:
    """The model reads why; the tool is not called, and others are."""
    write(rules, "no-effects", DENY)
    model = ScriptedModel([calls(("once", "x"), ("echo", "y")), "Done."])
    async with opened(file, model, rules=rules) as here:
        chunks = await here.chunks(await here.ask())
        refused, made = results(model, 1)
        assert (refused.text, refused.failed) == ("once was denied: no effects on default.", True)
        assert made.text == "echo says y"
        assert here.tools.of("once") == []
        assert [b["status"] for b in bodies(chunks, "tool_call")] == ["pending", "pending"]


async def test_a_rule_holds_for_the_librarian_too(file: Path, rules: Path) -> None:
    """What is denied is not to be had by handing the work on."""
    write(rules, "no-delegation", DENY.replace('"once"', '"delegate_librarian"'))
    model = ScriptedModel([calls(("delegate_librarian", "x")), "Done."])
    async with opened(file, model, rules=rules) as here:
        await here.answered()
        (refused,) = results(model, 1)
        assert refused.text == "delegate_librarian was denied: no effects on default."
        assert len(model.requests) == 2


async def asked(here: Opened, run_id: int) -> dict[str, Any]:
    await here.seen(run_id, "approval")
    (waiting,) = await here.agency.approvals.pending(USER)
    return waiting


@pytest.mark.parametrize("approved", [True, False])
async def test_a_person_decides(file: Path, rules: Path, approved: bool) -> None:  # noqa: FBT001
    """The run waits; then the call is made, or the model reads that it was refused."""
    write(rules, "ask", ASK)
    model = ScriptedModel([calls(("once", "x")), "Done."])
    async with opened(file, model, rules=rules) as here:
        run_id = await here.ask()
        waiting = await asked(here, run_id)
        assert waiting.tool == "once"
        assert waiting.arguments == {"query": "x"}
        assert waiting.reason == "It cannot be undone."
        assert here.tools.of("once") == []
        (listed,) = await here.agency.runs.list(USER)
        assert listed.status is RunStatus.WAITING
        # The id that the model gave is enough.
        await here.agency.approvals.decide(USER, run_id, "call-1", approved=approved, note="No.")
        chunks = await here.chunks(run_id)

        assert text_of(chunks) == "Done."
        assert len(here.tools.of("once")) == int(approved)
        (result,) = results(model, 1)
        assert result.failed is not approved
        if not approved:
            assert result.text == "once was not called: the user denied it. Their note: No."
        assert await here.agency.approvals.pending(USER) == []


async def test_what_was_allowed_once_allows_nothing_else(file: Path, rules: Path) -> None:
    """A model may give all its calls the same id: each is asked for."""
    write(rules, "ask", ASK)
    model = ScriptedModel([calls(("once", "x")), calls(("once", "y")), "Done."])
    async with opened(file, model, rules=rules) as here:
        run_id = await here.ask()
        waiting = await asked(here, run_id)
        await here.agency.approvals.decide(USER, run_id, waiting.call_id, approved=True)
        await here.seen(run_id, "approval", 2)
        (second,) = await here.agency.approvals.pending(USER)
        assert second.arguments == {"query": "y"}
        assert len(here.tools.of("once")) == 1
        await here.agency.approvals.decide(USER, run_id, second.call_id, approved=False)
        await here.answer(run_id)
        assert len(here.tools.of("once")) == 1


async def test_a_run_that_waits_survives_a_restart(file: Path, rules: Path) -> None:
    """Whoever takes it up waits on, and what was decided meanwhile counts."""
    write(rules, "ask", ASK)
    first = ScriptedModel([calls(("once", "x"))])
    async with opened(file, first, rules=rules) as here:
        run_id = await here.ask()
        waiting = await asked(here, run_id)
        await here.agency.engine.shutdown(0)
    then = ScriptedModel(["Done."])
    async with opened(file, then, rules=rules, serves=False) as here:
        # Nobody drives it now: the decision is kept.
        await here.agency.approvals.decide(USER, run_id, waiting.call_id, approved=True)
    async with opened(file, then, rules=rules) as here:
        chunks = await here.chunks(run_id)
        assert text_of(chunks) == "Done."
        assert len(here.tools.of("once")) == 1
        assert len(bodies(chunks, "approval")) >= 1


@pytest.mark.parametrize("tree", [None, untimed()], ids=["timed", "untimed"])
async def test_clocks_stand_still_while_a_person_is_asked(
    file: Path, rules: Path, clock: Clock, tree: Tree | None
) -> None:
    """Ten seconds for the run; the person takes longer."""
    write(rules, "ask", ASK)
    model = ScriptedModel([calls(("once", "x")), "Done."])
    async with opened(file, model, rules=rules, tree=tree) as here:
        await here.set(timeout_seconds=10)
        run_id = await here.ask()
        waiting = await asked(here, run_id)
        await until(lambda: here.agency.approvals._gate._waiters, "the wait for the person")
        clock.advance(30)
        await here.agency.approvals.decide(USER, run_id, waiting.call_id, approved=True)
        chunks = await here.chunks(run_id)
        assert text_of(chunks) == "Done."
        assert [b for b in bodies(chunks, "system") if b["system_type"] == "limit_reached"] == []


CLOCK = """
trigger = "on_turn_start"
[action]
kind = "emit_event"
type = "plugin.user.clock"
payload = { elapsed = { cel = "context.turn.elapsed_seconds" } }
"""


async def test_a_wait_is_not_forgotten_when_the_result_is_summed_up(
    file: Path, rules: Path, clock: Clock
) -> None:
    """Two rests of one call, for a person and for the Librarian, are both no time of the run."""
    write(rules, "ask", ASK)
    write(rules, "clock", CLOCK)
    oracle = ScriptedModel([calls(("once", "oak " * 5000)), "Done."], name="oracle")
    librarian = ScriptedModel(["Only oaks."], name="librarian")
    async with opened(file, oracle, librarian, rules=rules) as here:
        await here.set(subagent_model="librarian")
        started = monotonic()
        run_id = await here.ask()
        waiting = await asked(here, run_id)
        await until(lambda: here.agency.approvals._gate._waiters, "the wait for the person")
        clock.advance(100)
        await here.agency.approvals.decide(USER, run_id, waiting.call_id, approved=True)
        await here.answer(run_id)
        took = monotonic() - started
        assert results(oracle, 1)[0].text.endswith("Only oaks.")
        clocks = here.told(
            "plugin.user.clock"
        )  # of the Oracle, the Librarian, and the Oracle again
        assert len(clocks) == 3
        assert clocks[-1].payload["elapsed"] <= took


async def test_nobody_answers_in_time(file: Path, rules: Path) -> None:
    """The call is refused, and the run goes on."""
    write(rules, "ask", ASK + "timeout_seconds = 0.3\n")
    model = ScriptedModel([calls(("once", "x")), "Done."])
    async with opened(file, model, rules=rules) as here:
        run_id = await here.ask()
        await here.answer(run_id)
        (result,) = results(model, 1)
        assert result.text == ("once was not called: the approval expired. It cannot be undone.")
        with pytest.raises((Conflict, NotFound)):
            await here.agency.approvals.decide(USER, run_id, "call-1", approved=True)


async def test_a_run_that_waits_can_be_cancelled(file: Path, rules: Path) -> None:
    """It ends at once, and nothing waits any more."""
    write(rules, "ask", ASK)
    model = ScriptedModel([calls(("once", "x")), "Never."])
    async with opened(file, model, rules=rules) as here:
        run_id = await here.ask()
        await asked(here, run_id)
        await here.oracle.cancel(USER, run_id)
        run = await here.ended(run_id)
        assert run.status is RunStatus.CANCELLED
        assert await here.agency.approvals.pending(USER) == []
        assert here.tools.of("once") == []


async def test_another_user_decides_nothing(file: Path, rules: Path) -> None:
    """Their runs are not found."""
    write(rules, "ask", ASK)
    model = ScriptedModel([calls(("once", "x")), "Done."])
    async with opened(file, model, rules=rules) as here:
        run_id = await here.ask()
        waiting = await asked(here, run_id)
        assert await here.agency.approvals.pending("eve") == []
        with pytest.raises(NotFound):
            await here.agency.approvals.decide("eve", run_id, waiting.call_id, approved=True)
        await here.agency.approvals.decide(USER, run_id, waiting.call_id, approved=False)
        await here.answer(run_id)


async def test_state_is_kept_beyond_a_run(file: Path, rules: Path) -> None:
    """A rule counts, and another one looks at it in the next process."""
    write(
        rules,
        "greet",
        """
trigger = "on_query_start"
condition = '!has(context.state.greeted)'
[action]
kind = "set_state"
key = "greeted"
value = true
""",
    )
    write(
        rules,
        "again",
        """
trigger = "on_query_start"
condition = 'has(context.state.greeted)'
priority = 5
[action]
kind = "notify_self"
message = "You know this user."
""",
    )
    async with opened(file, ScriptedModel(["Hello."]), rules=rules) as here:
        await here.answered()
    model = ScriptedModel(["Hello again."])
    async with opened(file, model, rules=rules) as here:
        await here.answered(new=True)
        heard = [m.text for m in model.requests[0].messages if isinstance(m, ContextText)]
        assert "You know this user." in heard


async def test_rules_that_set_off_each_other_end(file: Path, rules: Path) -> None:
    """A few deep, then no more; the run goes on."""
    for one, other in (("ping", "pong"), ("pong", "ping")):
        write(
            rules,
            one,
            f"""
trigger = "plugin.user.{one}"
[action]
kind = "emit_event"
type = "plugin.user.{other}"
""",
        )
    write(
        rules,
        "begin",
        """
trigger = "on_query_start"
[action]
kind = "emit_event"
type = "plugin.user.ping"
""",
    )
    async with opened(file, ScriptedModel(["Done."]), rules=rules) as here:
        assert (await here.answered()).answer == "Done."
        await until(lambda: here.told("plugin.user.pong"), "an event")
        told = here.told("plugin.user.ping") + here.told("plugin.user.pong")
        assert len(told) == 5


TREE = """
(tree "careful"
  :blackboard-schema { :context {} :notify "" :deny "" :state {} }
  (if (= (get (get (get (blackboard :context) "event") "payload") "tool") "once")
    (set :deny "the tree says no.")))
"""


async def test_a_tree_decides(file: Path, rules: Path) -> None:
    """What is too much for an expression is a tree, with the context on its blackboard."""
    trees = rules.parent / "trees"
    trees.mkdir()
    (trees / "careful.lisp").write_text(TREE)
    write(
        rules,
        "careful",
        """
trigger = "on_tool_call"
[action]
kind = "run_tree"
tree = "careful.lisp"
""",
    )
    model = ScriptedModel([calls(("once", "x"), ("echo", "y")), "Done."])
    async with opened(file, model, rules=rules) as here:
        assert list(here.agency.rules._rules.problems()) == []
        await here.answered()
        assert [r.text for r in results(model, 1)] == [
            "once was denied: the tree says no.",
            "echo says y",
        ]


async def test_a_tree_has_something_to_say_about_a_task_that_is_handed_on(
    file: Path, rules: Path
) -> None:
    """The model is told after the subagent's report, as after a tool's result."""
    trees = rules.parent / "trees"
    trees.mkdir()
    (trees / "note.lisp").write_text(
        '(tree "note" :blackboard-schema { :notify "" } (set :notify "Ask it less."))'
    )
    write(
        rules,
        "note",
        """
trigger = "on_tool_call"
condition = 'context.event.payload.tool == "delegate_librarian"'
[action]
kind = "run_tree"
tree = "note.lisp"
""",
    )
    task = ToolCall("call-1", "delegate_librarian", '{"task": "Sum it up."}')
    model = ScriptedModel([AssistantText(calls=(task,)), "An oak.", "Done."])
    async with opened(file, model, rules=rules) as here:
        await here.answered()
        said = [m.text for m in model.requests[2].messages if isinstance(m, ContextText)]
        assert "Ask it less." in said


ENDLESS = '(tree "t" (repeater :max-iterations 1000000000 (succeed)))'
SLOW = '(tree "t" (wait :seconds 60))'
ILL_TYPED = """(tree "t" :blackboard-schema { :context {} :deny "" }
  (if (> (get (get (get (blackboard :context) "event") "payload") "tool") 3) (set :deny "no.")))"""
NO_TEXT = '(tree "t" :blackboard-schema { :deny nil } (set :deny 1))'
WITHOUT_MODEL = """(tree "t" :blackboard-schema { :answer nil :failure nil }
  (selector (llm-call) (succeed)))"""
FAILING_TREES = {
    "ticks": (ENDLESS, "max_ticks = 50", "it needs more than 50 ticks."),
    "time": (SLOW, "seconds = 0.1", "it took longer than 0.1 seconds."),
    "error": (ILL_TYPED, "", 'cannot compare the string "echo" with the integer 3'),
    "result": (NO_TEXT, "", "it set deny to a value that is not a text."),
    "model": (WITHOUT_MODEL, "model = true", "the script has 1 answers, and this is request 2."),
}


def write_tree_rule(rules: Path, tree: str, more: str, *, trigger: str = "on_tool_call") -> None:
    (rules.parent / "trees").mkdir()
    (rules.parent / "trees" / "t.lisp").write_text(tree)
    action = f'[action]\nkind = "run_tree"\ntree = "t.lisp"\n{more}\n'
    write(rules, "careful", f'trigger = "{trigger}"\n{action}')


@pytest.mark.parametrize(("tree", "more", "why"), FAILING_TREES.values(), ids=[*FAILING_TREES])
async def test_a_tree_that_fails_to_decide_denies_the_call(
    file: Path, rules: Path, caplog: pytest.LogCaptureFixture, tree: str, more: str, why: str
) -> None:
    """The model reads that the rule failed, and the log says why."""
    write_tree_rule(rules, tree, more)
    tools = Tools()
    script = [calls(("echo", "y")), *([] if "model" in more else ["Done."])]
    async with opened(file, ScriptedModel(script), rules=rules, tools=tools) as here:
        assert list(here.agency.rules._rules.problems()) == []
        chunks = await here.chunks(await here.ask())
        (result,) = bodies(chunks, "tool_result")
        assert result["result"] == (
            "echo was denied: rule careful could not be evaluated; see the server log."
        )
        assert tools.of("echo") == []
    assert any("the tree of rule careful failed" in m and why in m for m in caplog.messages)


async def test_a_tree_that_cannot_be_loaded_denies_the_call(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Also if it was valid when its rule was read, for example by another version."""
    broken = RunTree("t", '(tree "t" (sequnce))', "t.lisp", 1, 10, has_model=False, context={})
    none: Any = None  # it ends before it uses the run
    denial, event = await run_rule_tree(none, none, RuleAction("careful", "user", broken))
    assert denial == "rule careful could not be evaluated; see the server log."
    assert event is None
    assert "sequnce" in caplog.text


async def test_a_tree_whose_condition_fails_denies_the_call(file: Path, rules: Path) -> None:
    """As a rule that denies by itself does."""
    write_tree_rule(rules, '(tree "t" (succeed))', "")
    rule = rules / "careful.toml"
    condition = "condition = 'context.event.payload.nothing > 1'\n[action]"
    rule.write_text(rule.read_text().replace("[action]", condition))
    model = ScriptedModel([calls(("echo", "y")), "Done."])
    async with opened(file, model, rules=rules) as here:
        await here.answered()
        (result,) = results(model, 1)
        assert result.text.startswith("echo was denied: rule careful could not be evaluated")


async def test_a_tree_that_fails_at_another_hook_changes_nothing(file: Path, rules: Path) -> None:
    write_tree_rule(rules, ILL_TYPED, "", trigger="on_turn_start")
    model = ScriptedModel([calls(("echo", "y")), "Done."])
    async with opened(file, model, rules=rules) as here:
        assert (await here.answered()).answer == "Done."
        assert [r.text for r in results(model, 1)] == ["echo says y"]


async def test_a_tree_with_a_model_has_no_tools(file: Path, rules: Path) -> None:
    """What its model is told to call is not offered, and not called."""
    acting = """(tree "t"
      :blackboard-schema { :task "" :answer nil :failure nil :state {} :tool_calls [] :approval nil
                           :tool_results [] }
      (sequence (action add-task :fn "subagent.add_task") (llm-call)
        (action record-answer :fn "oracle.record_answer")
        (for-each (blackboard :tool_calls) (action execute-tool :fn "tools.execute"))))"""
    write_tree_rule(rules, acting, "model = true")
    model = ScriptedModel([calls(("echo", "x")), calls(("once", "y")), "Done."])
    tools = Tools()
    async with opened(file, model, rules=rules, tools=tools) as here:
        await here.answered()
        assert model.requests[1].tools == ()
        assert tools.of("once") == []


async def test_a_user_changes_rules(file: Path, rules: Path) -> None:
    """Turned off and set at once, for this user alone; a core one stays on."""
    write(rules, "no-effects", DENY)
    model = ScriptedModel([calls(("once", "x")), "Done.", calls(("once", "y")), "Done."])
    async with opened(file, model, rules=rules) as here:
        await here.agency.rules.change(USER, "no-effects", RuleChange(enabled=False))
        await here.answered()
        assert len(here.tools.of("once")) == 1
        await here.answered(user="eve")
        assert len(here.tools.of("once")) == 1
        with pytest.raises(BadRequest, match="core rule"):
            await here.agency.rules.change(USER, "token_budget", RuleChange(enabled=False))
        changed = await here.agency.rules.change(
            USER, "large_result", RuleChange(parameters={"most_characters": 50_000})
        )
        assert changed.parameters["most_characters"]["value"] == 50_000
        with pytest.raises(NotFound, match="no rule"):
            await here.agency.rules.change(USER, "nothing", RuleChange(enabled=True))


async def test_a_rule_is_tried(file: Path, rules: Path) -> None:
    """Against a sample, without doing anything."""
    write(rules, "no-effects", DENY)
    async with opened(file, ScriptedModel([]), rules=rules) as here:
        tried = await here.agency.rules.test(
            USER, "no-effects", parse_document(RuleSample, {"event": {"payload": {"tool": "once"}}})
        )
        assert tried.fires is True
        assert tried.actions == [{"kind": "deny", "reason": "no effects on default."}]
        tried = await here.agency.rules.test(
            USER, "no-effects", parse_document(RuleSample, {"event": {"payload": {"tool": "echo"}}})
        )
        assert tried.fires is False
        tried = await here.agency.rules.test(
            USER,
            "token_budget",
            parse_document(RuleSample, {"context": {"turn": {"tokens_used": 99_999}}}),
        )
        assert tried.fires is True


ASKING = """
(tree "asking"
  :blackboard-schema { :context {} :notify "" :deny "" :state {} :task "" :answer nil :failure nil }
  (sequence
    (action add-task :fn "subagent.add_task")
    (llm-call)
    (set :deny (get (blackboard :answer) "text"))))
"""


async def test_a_tree_may_ask_a_model_if_its_rule_says_so(file: Path, rules: Path) -> None:
    """Its calls are metered like any; without `model = true` it is no tree for a rule."""
    trees = rules.parent / "trees"
    trees.mkdir()
    (trees / "asking.lisp").write_text(ASKING)
    text = """
trigger = "on_tool_call"
[action]
kind = "run_tree"
tree = "asking.lisp"
model = true
"""
    write(rules, "asking", text)
    model = ScriptedModel([calls(("echo", "x")), "the model says no.", "Done."])
    async with opened(file, model, rules=rules) as here:
        await here.answered()
        assert [r.text for r in results(model, 2)] == ["echo was denied: the model says no."]
        assert len(await here.records()) == 3
    write(rules, "asking", text.replace("true", "false"))
    async with opened(file, ScriptedModel([]), rules=rules) as here:
        (problem, *_) = (await here.agency.rules.list(USER)).problems
        assert "asking.lisp" in problem


SEES = """
trigger = "on_session_end"
condition = '''
context.history.messages.exists(m, m.role == "user" && m.text.contains("elm")) &&
  context.history.messages.exists(m, m.role == "assistant" && m.text == "An oak.") &&
  context.history.messages.exists(m, m.role == "tool" && m.text == "echo says two") &&
  context.history.calls.exists_one(c, c.tool == "fail" && c.failed && c.ms >= 0) &&
  context.history.calls[1].arguments.query == "two" && size(context.history.calls) == 2 &&
  context.user.settings.librarian_timeout == 1100 && context.user.settings.max_iterations == 15 &&
  context.project.settings.season == "autumn"
'''
[action]
kind = "set_state"
key = "seen"
[action.value]
first = "{{ context.history.messages[0].text }}"
calls = "{{ context.history.calls | length }}"
percent = "{{ context.user.settings.soft_warning_percent }}"
season = "{{ context.project.settings.season }}"
"""


async def test_rules_see_messages_calls_and_settings(file: Path, rules: Path) -> None:
    """Of the conversation, of the run, of the user and of the project."""
    write(rules, "sees", SEES)
    model = ScriptedModel(["An oak.", calls(("fail", "one"), ("echo", "two")), "An elm."])
    async with opened(file, model, rules=rules) as here:
        await here.set(librarian_timeout=1100)
        await here.answered("What is it?")
        await here.store.projects.update(
            USER, "default", lambda project: replace(project, settings={"season": "autumn"})
        )
        await here.answered("And the elm?")
        seen = (await here.store.pack_state.all(USER))["user"]["seen"]
        values = {"first": "What is it?", "calls": "2", "percent": "70", "season": "autumn"}
        assert seen.value == values


async def test_rules_see_the_newest_messages_and_calls(file: Path, rules: Path) -> None:
    """Their number and their texts are bounded, so that a long run does not slow down its rules."""
    write(
        rules,
        "counts",
        """
trigger = "on_session_end"
[action]
kind = "set_state"
key = "seen"
[action.value]
messages = { cel = "size(context.history.messages)" }
calls = { cel = "size(context.history.calls)" }
longest = { cel = "size(context.history.messages[0].text)" }
last = { cel = "context.history.calls[size(context.history.calls) - 1].arguments.query" }
""",
    )
    turns = [calls(*((("echo", f"{t}-{n}" + "x" * 3000)) for n in range(5))) for t in range(11)]
    model = ScriptedModel([*turns, "Done."])
    async with opened(file, model, rules=rules, summarise_results=False) as here:
        await here.answered()
        seen = (await here.store.pack_state.all(USER))["user"]["seen"]
        assert seen.value == {
            "messages": MAX_MESSAGES,
            "calls": MAX_CALLS,
            "longest": 2000,
            "last": ("10-4" + "x" * 3000)[:2000],
        }

"""What a wrong rule file says: file, line, key, what is wrong, what to write."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dodona.core.domain.rules import RunTree
from dodona.rules import RuleBook
from tests.rules.ruling import NOTHING, book, fire, rule

LOG = 'kind = "log"\nmessage = "hi"'

MISTAKES = [
    (
        rule(trigger='"on_turn_strat"'),
        ":3: rule.trigger matches no event (got \"on_turn_strat\"). Did you mean 'on_turn_start'?",
    ),
    (
        rule(trigger='"tool.**"'),
        ':3: rule.trigger must be a hook or an event pattern (got "tool.**").',
    ),
    (
        rule(condition='"context.trn.number > 1"'),
        ":4: rule.condition is invalid at column 9: 'context' has no field 'trn'. Did you mean "
        "'turn'?",
    ),
    (
        rule(condition='"""\ntrue &&\n  zebra\n"""'),
        ":6: rule.condition is invalid at column 3: unknown name 'zebra'. Available names: "
        "context, params.",
    ),
    (rule(condition="3"), ":4: rule.condition must be a string (got 3)."),
    (rule(prioritty="3"), ":4: unknown key rule.prioritty. Did you mean 'priority'?"),
    (
        rule(enabled="false", core="true"),
        ":5: rule.core cannot be true in a rule that is not enabled (got true). Core rules are "
        "always enabled.",
    ),
    (
        rule("One"),
        ":2: rule.id must start with a letter and have at most 64 of a-z, 0-9, _ and - (got "
        '"One").',
    ),
    (
        rule(action='kind = "notfy_self"'),
        ":6: action.kind must be one of notify_self, log, set_state, emit_event, deny, "
        "require_approval, run_tree (got \"notfy_self\"). Did you mean 'notify_self'?",
    ),
    (rule(action='kind = "log"'), ":5: action.message is missing."),
    (
        rule(action='kind = "log"\nmesage = "x"'),
        ":5: action.message is missing.\n:7: unknown key action.mesage. Did you mean 'message'?",
    ),
    (
        rule(action='kind = "log"\nmessage = "{{ contxt }}"'),
        ":7: action.message is invalid: the template uses an undefined value: 'contxt' is "
        "undefined. Did you mean 'context'?",
    ),
    (
        rule(action='kind = "emit_event"\ntype = "budget.tokn.warning"'),
        ":7: action.type must be a known event, or start with plugin. and the name of the pack "
        "(got \"budget.tokn.warning\"). Did you mean 'budget.token.warning'?",
    ),
    (
        rule(action='kind = "emit_event"\ntype = "plugin.other.x"'),
        ':7: action.type must start with plugin.user. (got "plugin.other.x").',
    ),
    (
        rule(action='kind = "emit_event"\ntype = "self.notify"\n[action.payload]\nn = {cel="1 +"}'),
        ":9: action.payload.n is invalid at column 4: unexpected end of the expression. Is a "
        "parenthesis or a value missing?",
    ),
    (
        rule(action='kind = "set_state"\nkey = "k"\nvalue = 2026-01-01'),
        ":8: action.value must be a string, a number, true or false, a list or a table (got "
        '"2026-01-01").',
    ),
    (
        rule(action='kind = "deny"\nreason = "no"'),
        ':3: rule.trigger cannot be used with deny (got "on_turn_start"). Only a tool call can be '
        'denied or held for approval: trigger = "on_tool_call".',
    ),
    (
        rule() + '[parameters.most]\ntype = "int"\ndefault = 9\nmax = 5\n',
        ":10: parameters.most.default must be a whole number, 5 or less (got 9).",
    ),
    (
        rule() + '[parameters.most]\ntype = "bool"\ndefault = true\nmin = 5\n',
        ":11: parameters.most.min applies to numbers only, not to a bool (got 5).",
    ),
    (
        rule() + '[parameters.most]\ntype = "int"\ndefault = 3\nmin = 5\nmax = 1\n',
        ":12: parameters.most.max must not be below min (got 1).",
    ),
]


@pytest.mark.parametrize(("text", "told"), MISTAKES)
def test_mistakes(tmp_path: Path, text: str, told: str) -> None:
    """Each mistake has its file, line and key, and says what to write instead."""
    rules = book(tmp_path, text)
    file = str(tmp_path / "rules/0.toml")
    lines = [f"{file}{line}" for line in told.split("\n")]
    assert (rules.problems(), rules.list()) == (lines, [])


def test_all_mistakes_at_once(tmp_path: Path) -> None:
    """A file with several mistakes tells them all, line by line."""
    text = rule(priority='"x"', condition='"tru"', once="1", action='kind = "log"\nlevel = "loud"')
    file = tmp_path / "rules/0.toml"
    assert book(tmp_path, text).problems() == [
        f'{file}:4: rule.priority must be a whole number (got "x").',
        f"{file}:5: rule.condition is invalid at column 1: unknown name 'tru'. Available names: "
        "context, "
        "params.",
        f"{file}:6: rule.once must be true or false (got 1).",
        f"{file}:8: action.message is missing.",
        f'{file}:10: action.level must be one of debug, info, warning, error (got "loud").',
    ]


TREE = '(tree "decide" (set :deny "no"))'
RUN_TREE = 'kind = "run_tree"\ntree = "decide.lisp"\nseconds = 2.0\nmax_ticks = 50'


def _with_tree(folder: Path, tree: str, name: str = "decide.lisp") -> RuleBook:
    (folder / "trees").mkdir()
    (folder / "trees" / name).write_text(tree)
    return book(folder, rule(action=RUN_TREE))


def test_a_tree_is_read_with_its_rule(tmp_path: Path) -> None:
    """A rule that runs a tree carries its text, its limits and the context."""
    rules = _with_tree(tmp_path, TREE)
    assert rules.problems() == []
    (fired,) = fire(rules, "on_turn_start", state={"user": {"n": 1}})
    action = fired.action
    assert isinstance(action, RunTree)
    assert (action.name, action.source) == ("decide", TREE)
    assert (action.seconds, action.max_ticks, action.has_model) == (2.0, 50, False)
    assert action.file == str(tmp_path / "trees/decide.lisp")
    assert action.context["state"] == {"n": 1}
    assert action.context["turn"]["number"] == 1
    assert sorted(action.context) == sorted(
        ["turn", "history", "user", "project", "state", "event", "result", "params"]
    )


def test_a_tree_that_is_not_there(tmp_path: Path) -> None:
    """A rule names a file in the folder of trees; another is a mistake of the rule."""
    rules = _with_tree(tmp_path, TREE, "decides.lisp")
    assert rules.problems() == [
        f"{tmp_path}/rules/0.toml:7: action.tree must be the name of a file (got "
        "\"decide.lisp\"). Did you mean 'decides.lisp'?"
    ]


def test_a_tree_outside_of_its_folder(tmp_path: Path) -> None:
    """A path that leads out of the folder is no name in it."""
    (tmp_path / "secret.lisp").write_text(TREE)
    (tmp_path / "trees").mkdir()
    rules = book(tmp_path, rule(action='kind = "run_tree"\ntree = "../secret.lisp"'))
    assert rules.problems() == [
        f"{tmp_path}/rules/0.toml:7: action.tree must be the name of a file (got "
        f'"../secret.lisp"). Put it into {tmp_path}/trees.'
    ]


def test_a_tree_that_is_wrong(tmp_path: Path) -> None:
    """Mistakes of a tree are told at their place in it, when its rule is read."""
    rules = _with_tree(tmp_path, '(tree "decide"\n  (sequnce))')
    assert rules.problems() == [
        f"{tmp_path}/trees/decide.lisp:2:4: unknown node 'sequnce'. Did you mean 'sequence'?"
    ]


@pytest.mark.parametrize(
    ("tree", "at"),
    [
        ('(tree "decide" :finally (wait :seconds 9) (succeed))', "1:25"),
        ('(tree "decide" (subtree "b"))\n(tree "b" :finally (wait :seconds 9) (succeed))', "2:20"),
    ],
)
def test_a_tree_that_its_limits_could_not_stop(tmp_path: Path, tree: str, at: str) -> None:
    """A `:finally` always runs to its end, so the call would wait for it without a limit."""
    assert _with_tree(tmp_path, tree).problems() == [
        f"{tmp_path}/trees/decide.lisp:{at}: a tree of a rule cannot have :finally, which its "
        "limits do not stop."
    ]


def test_pipes_are_not_opened(tmp_path: Path) -> None:
    """What is no regular file is passed over: opening a pipe would wait for ever."""
    (tmp_path / "rules").mkdir()
    os.mkfifo(tmp_path / "rules/pipe.toml")
    assert book(tmp_path, rule()).problems() == []


WHOLE = (
    rule(condition='"""\ncontext.turn.number > params.most\n"""', once="true", priority="3")
    + '[parameters.most]\ntype = "int"\ndefault = 3\n'
    + '[action.payload]\nn = { cel = "1" }\n'
)
PIECES = st.sampled_from(
    ["[", "]", "[[", "{", "}", '"', "'''", '"""', "=", ".", "\n", "rule", "action", "\x00", "é"]
) | st.text(max_size=5)


@st.composite
def mangled(draw: st.DrawFn) -> str:
    """A rule file with pieces cut out of it and others put in."""
    text = draw(st.sampled_from([WHOLE, *(text for text, _ in MISTAKES)]))
    for _ in range(draw(st.integers(1, 6))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 12)))
        text = text[:start] + draw(PIECES) + text[end:]
    return text


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(mangled() | st.text(max_size=80))
@pytest.mark.slow
def test_no_text_makes_a_traceback(tmp_path: Path, text: str) -> None:
    """However a file is mangled, it is a rule or a list of mistakes in that file."""
    folder = tmp_path / "rules"
    folder.mkdir(exist_ok=True)
    file = folder / "0.toml"
    file.write_bytes(text.encode(errors="surrogatepass"))
    rules = RuleBook([folder], builtin=NOTHING)
    problems = rules.problems()
    assert bool(problems) != bool(rules.list())
    assert all(line.startswith(str(file)) for line in problems)
    for trigger in ("on_turn_start", "on_tool_call"):
        fire(rules, trigger)

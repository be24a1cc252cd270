"""`dodona rules`: which there are, what is wrong with files, what a rule would do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import dodona

DENY = """\
[rule]
id = "calm"
trigger = "on_tool_call"
condition = 'context.event.payload.tool == params.tool'

[parameters.tool]
type = "string"
default = "vault_append"

[action]
kind = "deny"
reason = "{{ context.event.payload.tool }} waits until tomorrow."
"""

WRONG = """\
[rule]
id = "hasty"
trigger = "on_tool_cal"
condition = "context.turn.number >"

[action]
kind = "deny"
reson = "No."
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With a rule of the user's own."""
    rules = tmp_path / ".dodona" / "rules"
    rules.mkdir(parents=True)
    (rules / "calm.toml").write_text(DENY, encoding="utf-8")
    return tmp_path


def ran(folder: Path, *words: str) -> str:
    done = dodona(folder, "rules", *words)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def told(folder: Path, *words: str) -> Any:
    return json.loads(ran(folder, *words, "--json"))


def refused(folder: Path, *words: str) -> tuple[int, str]:
    done = dodona(folder, "rules", *words)
    assert done.stdout == ""
    return done.returncode, done.stderr


def test_rules_are_listed(folder: Path) -> None:
    """With their trigger, whether they are on, how often they fire, and what they do."""
    assert ran(folder, "list") == (
        "rule              trigger           on    fires   action\n"
        "context_limit     on_turn_end       yes   once    emit_event\n"
        "iteration_budget  on_turn_start     core  once    emit_event\n"
        "large_result      on_tool_complete  yes   once    notify_self\n"
        "query_log         on_session_end    yes   always  log\n"
        "repeated_failure  on_tool_failure   yes   always  notify_self\n"
        "timeout_budget    on_turn_start     yes   once    emit_event\n"
        "token_budget      on_turn_start     core  once    emit_event\n"
        "calm              on_tool_call      yes   always  deny\n"
    )
    listed = told(folder, "list")
    assert listed["problems"] == []
    assert listed["rules"][-1]["parameters"]["tool"]["value"] == "vault_append"


def test_files_that_are_not_used_are_told_below(folder: Path) -> None:
    """The others are listed all the same."""
    file = folder / ".dodona" / "rules" / "again.toml"
    file.write_text(DENY.replace("calm", "token_budget"), encoding="utf-8")
    done = dodona(folder, "rules", "list")
    assert done.returncode == 0
    assert done.stdout.count("\n") == 9
    assert done.stderr.startswith(f"not used: {file}: rule 'token_budget' already exists.")
    (problem,) = json.loads(dodona(folder, "rules", "list", "--json").stdout)["problems"]
    assert problem.startswith(f"{file}: rule 'token_budget' already exists.")


def test_a_rule_is_turned_off_and_set(folder: Path) -> None:
    """For the user, until told otherwise; null takes the default again."""
    assert ran(folder, "disable", "calm") == 'calm is off.\n  tool = "vault_append"\n'
    assert told(folder, "list")["rules"][-1]["enabled"] is False
    assert ran(folder, "enable", "calm") == 'calm is on.\n  tool = "vault_append"\n'
    assert ran(folder, "set", "calm", "tool=web_fetch") == 'calm is on.\n  tool = "web_fetch"\n'
    changed = told(folder, "set", "calm", "tool=null")
    assert changed["parameters"]["tool"]["value"] == "vault_append"


def test_what_cannot_be_changed(folder: Path) -> None:
    """Each says what could be."""
    assert refused(folder, "disable", "token_budget") == (
        2,
        "token_budget is a core rule and cannot be disabled. You can set its parameters.\n",
    )
    assert refused(folder, "set", "calm", "tol=x") == (
        2,
        "rule calm has no parameter 'tol'. Did you mean 'tool'?\n",
    )
    assert refused(folder, "set", "large_result", "most_entries=0") == (
        2,
        "large_result.most_entries must be a whole number from 1 to 1000 (got 0).\n",
    )
    assert refused(folder, "set", "calm") == (
        2,
        "no parameter given. Example: dodona rules set calm NAME=VALUE\n",
    )
    assert refused(folder, "set", "calm", "tool") == (
        2,
        "a parameter must have the form NAME=VALUE (got 'tool').\n",
    )
    assert refused(folder, "enable", "clam") == (
        2,
        "there is no rule 'clam'. Did you mean 'calm'?\n",
    )


def test_a_rule_is_tried_against_an_event(folder: Path) -> None:
    """What it would do, or what it waits for; nothing is done."""
    event = '{"payload": {"tool": "vault_append"}}'
    assert ran(folder, "test", "calm", "--event", event) == (
        "calm fires on tool.call.pending; nothing was done.\n"
        "  deny\n"
        '    reason = "vault_append waits until tomorrow."\n'
    )
    other = event.replace("append", "read")
    assert ran(folder, "test", "calm", "--event", other) == (
        "calm does not fire on tool.call.pending.\n"
        "  trigger    on_tool_call\n"
        "  condition  context.event.payload.tool == params.tool\n"
    )
    assert told(folder, "test", "calm", "--event", event) == {
        "rule": "calm",
        "event": "tool.call.pending",
        "fires": True,
        "actions": [{"kind": "deny", "reason": "vault_append waits until tomorrow."}],
    }


def test_a_rule_is_tried_in_a_context(folder: Path) -> None:
    """What is given of it stands in place of a run's beginning."""
    late = '{"turn": {"tokens_used": 49000}}'
    assert told(folder, "test", "token_budget")["fires"] is False
    assert told(folder, "test", "token_budget", "--context", late)["fires"] is True


def test_a_rule_that_is_off_is_tried_too(folder: Path) -> None:
    """Whoever turned it off may want to know what it would do."""
    ran(folder, "disable", "query_log")
    assert told(folder, "test", "query_log")["fires"] is True


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("--event", "{"),
            "--event is not valid JSON: Expecting property name enclosed in double quotes: "
            "line 1 column 2 (char 1).",
        ),
        (("--event", "[]"), "--event must be a JSON object."),
        (("--event", '{"typ": "x"}'), "event: there is no field 'typ'. Did you mean 'type'?"),
        (
            ("--event", '{"severity": "bad"}'),
            "event: severity must be debug, info, warning, error or critical (got 'bad').",
        ),
        (
            ("--context", '{"tun": {}}'),
            "context: there is no field 'tun'. Did you mean 'turn'?",
        ),
    ],
)
def test_samples_that_make_no_sense(folder: Path, words: tuple[str, ...], said: str) -> None:
    assert refused(folder, "test", "calm", *words) == (2, f"{said}\n")


def test_all_is_well(folder: Path) -> None:
    """Shipped and own ones are counted; named files are checked wherever they are."""
    assert ran(folder, "check") == "ok: 21 rules and subscribers\n"
    assert ran(folder, "check", ".dodona/rules/calm.toml") == "ok: 1 file\n"
    assert told(folder, "check") == {"ok": True, "checked": 21, "errors": []}


def test_every_mistake_is_told_with_its_place(folder: Path) -> None:
    """File, line, key and remedy; the exit code is that of a wrong setting."""
    file = folder / "hasty.toml"
    file.write_text(WRONG, encoding="utf-8")
    code, said = refused(folder, "check", "hasty.toml")
    assert code == 3
    lines = said.splitlines()
    assert lines[0] == (
        f'{file}:3: rule.trigger matches no event (got "on_tool_cal"). '
        "Did you mean 'on_tool_call'?"
    )
    assert lines[1].startswith(f"{file}:4: rule.condition is invalid at column ")
    assert lines[2] == f"{file}:6: action.reason is missing."
    assert lines[3] == f"{file}:8: unknown key action.reson. Did you mean 'reason'?"
    assert len(lines) == 4
    file.rename(folder / ".dodona" / "rules" / "hasty.toml")
    done = dodona(folder, "rules", "check", "--json")
    report = json.loads(done.stdout)
    assert (done.returncode, report["ok"], len(report["errors"])) == (3, False, 4)
    assert report["errors"][0]["where"]["line"] == 3


def test_subscribers_and_packs_are_checked_too(folder: Path) -> None:
    """What a file is, it says itself; rules of a pack know its settings."""
    pack = folder / ".dodona" / "packs" / "night"
    (pack / "rules").mkdir(parents=True)
    (pack / "subscribers").mkdir()
    (pack / "pack.toml").write_text(
        '[pack]\nid = "night"\nversion = "1.0"\n'
        '[settings.hour]\ntype = "int"\ndefault = 22\nmin = 0\nmax = 23\n',
        encoding="utf-8",
    )
    (pack / "rules" / "late.toml").write_text(
        '[rule]\nid = "late"\ntrigger = "on_query_start"\ncondition = "params.hour > 20"\n'
        '[action]\nkind = "emit_event"\ntype = "plugin.night.late"\n',
        encoding="utf-8",
    )
    (pack / "subscribers" / "late.toml").write_text(
        '[subscriber]\nid = "late"\n[events]\ntypes = ["plugin.night.*"]\n'
        '[output]\ntemplate = "It is late."\n',
        encoding="utf-8",
    )
    names = ("pack.toml", "rules/late.toml", "subscribers/late.toml")
    files = [f".dodona/packs/night/{name}" for name in names]
    assert ran(folder, "check", *files) == "ok: 3 files\n"
    assert ran(folder, "check") == "ok: 23 rules and subscribers\n"
    assert told(folder, "test", "night.late")["fires"] is True
    (pack / "subscribers" / "late.toml").write_text('[subscriber]\nid = "late"\n')
    code, said = refused(folder, "check")
    assert code == 3
    assert "rules with errors" not in said  # the log does not say it once more
    assert said.count(f"{pack / 'subscribers' / 'late.toml'}") == 2


def test_a_file_that_is_not_there(folder: Path) -> None:
    code, said = refused(folder, "check", "none.toml")
    assert (code, said) == (
        3,
        f"{folder / 'none.toml'}: the file cannot be read: No such file or directory. "
        "Check that it is a file and that you have permission to read it.\n",
    )

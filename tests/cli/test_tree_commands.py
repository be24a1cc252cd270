"""`dodona tree …` as people and programs use it: their output and exit codes."""

from __future__ import annotations

import json
import os
import re
import select
import shlex
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import dodona
from tests.cli import running
from tests.fork_server import run_dodona

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "oracle"
ORACLE = EXAMPLES / "oracle.lisp"
LEAVES = ("--leaves", str(EXAMPLES / "leaves.py"))
DODONA = Path(sys.executable).parent / "dodona"

TREE = """\
(tree "t"
  :blackboard-schema {:n 0 :word "" :items [] :map {} :flag false
                      :seen {:default 0 :scope :global}}
  (sequence top
    (set :seen (+ (blackboard :seen) 1))
    (condition few? (< (blackboard :n) 5))
    (succeed done))
  :finally (succeed last))
"""

SLOW = """\
import asyncio
from pathlib import Path

from dodona.trees import leaf


@leaf("hang", effect="none")
async def hang(bb, step):
    step.emit("hanging")
    try:
        await asyncio.Event().wait()
    finally:
        await asyncio.sleep(0.01)
        Path("cleaned").touch()


@leaf("flood", effect="none")
async def flood(bb, step):
    for line in range(20_000):
        step.emit(f"line {line}")
        if line % 100 == 0:
            await asyncio.sleep(0)


@leaf("ending", step=True, effect="none")
def ending(bb, step):
    Path("ended").write_text(bb["_status"])
    step.emit("ended")
"""


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    def document(self) -> Any:
        """The one JSON document on stdout; nothing stands beside it."""
        assert self.err == ""
        assert self.out.count("\n") == 1
        return json.loads(self.out)


def dodona_(*words: str | Path, cwd: Path = ROOT, typed: str | None = None) -> Ran:
    texts = [str(word) for word in words]
    if typed is not None:  # the debugger reads the file descriptor
        done = run_dodona(*texts, typed=typed, cwd=cwd, env=os.environ)
    else:
        done = running.dodona(cwd, *texts)
    assert "Traceback" not in done.stderr, done.stderr
    return Ran(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "t.lisp").write_text(TREE)
    (tmp_path / "slow.py").write_text(SLOW)
    (tmp_path / "slow.lisp").write_text('(tree "slow" (sequence (hang)) :finally (ending))')
    (tmp_path / "flood.lisp").write_text('(tree "flood" (flood) :finally (ending))')
    return tmp_path


# -- the Oracle ------------------------------------------------------------------------------------


def test_the_oracle_is_shown() -> None:
    """`show` draws an outline: the title, then one line for each node, :finally last."""
    ran = dodona_("tree", "show", ORACLE, *LEAVES)
    lines = ran.out.splitlines()
    assert (ran.code, ran.err) == (0, "")
    assert lines[:3] == [
        "oracle: Answers a question with the project's tools, turn by turn",
        "├─ sequence",
        "│  ├─ action reset-state → oracle.reset_state",
    ]
    assert "└─ :finally sequence" in lines
    assert lines[-1] == "   └─ action emit-session-end → oracle.emit_session_end"


def test_the_oracle_is_shown_in_every_format() -> None:
    """Mermaid and JSON have as many nodes as the outline."""
    outline = dodona_("tree", "show", ORACLE, *LEAVES)
    mermaid = dodona_("tree", "show", ORACLE, *LEAVES, "--format", "mermaid")
    formatted = dodona_("tree", "show", ORACLE, *LEAVES, "--format", "json")
    nodes = len(outline.out.splitlines()) - 1
    assert mermaid.out.startswith('flowchart TD\n  root["oracle"]\n')
    assert mermaid.out.count("-->") == nodes
    shown = formatted.document()
    assert (shown["name"], _count(shown["root"]) + _count(shown["finally"])) == ("oracle", nodes)


def _count(node: dict[str, Any]) -> int:
    return 1 + sum(_count(child) for child in node["children"])


def test_the_oracle_runs() -> None:
    """`run` prints what the tree says as it comes, then what it knows, then how it ended."""
    ran = dodona_("tree", "run", ORACLE, *LEAVES, "--set", "query=Why trees?")
    lines = ran.out.splitlines()
    assert (ran.code, ran.err) == (0, "")
    assert lines[0] == "? Why trees?"
    assert sorted(lines[1:3]) == ["· vault_read budgets.md", "· vault_read trees.md"]
    assert lines[4] == "  from budgets.md, trees.md"
    assert "  :turn 2" in lines
    assert re.fullmatch(r"✓ oracle: success, \d+ ticks", lines[-1])


def test_the_oracle_runs_into_its_limit() -> None:
    """`--set` reaches the tree: with one turn only, the turns are used up."""
    ran = dodona_("tree", "run", ORACLE, *LEAVES, "--set", "max_iterations=1")
    assert ran.code == 0
    assert "! maximum number of turns reached\n" in ran.out


def test_the_oracle_is_traced() -> None:
    """`trace` shows the last ticks node by node, then where the time went, then the end."""
    ran = dodona_("tree", "trace", ORACLE, *LEAVES, "--last", "1")
    assert (ran.code, ran.err) == (0, "")
    assert re.match(r"… \d+ earlier ticks\ntick \d+ at [\d.]+ ms\n  ✓ sequence  \d+ µs\n", ran.out)
    assert re.search(r"\nnode +visits +elapsed +busy\n", ran.out)
    assert ran.out.count("\ntick ") == 1
    assert re.search(r"\n✓ oracle: success, \d+ ticks\n$", ran.out)


@pytest.mark.parametrize("program", ["oracle.lisp", "seed.lisp"])
def test_the_oracles_tests_pass(program: str) -> None:
    """`test` tells each test on its line, then the sum; no leaf in Python is needed."""
    ran = dodona_("tree", "test", EXAMPLES / program)
    *tests, last = ran.out.splitlines()
    assert (ran.code, ran.err) == (0, "")
    assert all(line.startswith("ok      ") for line in tests)
    assert last == f"{len(tests)} passed, 0 failed"


# -- --set -----------------------------------------------------------------------------------------

VALUES: dict[str, Any] = {
    "a=3": 3,
    ":b=-2.5": -2.5,
    "c=hello world": "hello world",
    'd="3"': "3",
    "e=a=b": "a=b",
    "f=": "",
    "g=(+ 1 2)": "(+ 1 2)",
    "h=don't (": "don't (",
    "i=[1 2.5 nil]": [1, 2.5, None],
    'j={:a {"b" true}}': {"a": {"b": True}},
    "k=true": True,
    "l=nil": None,
    "m=x.lisp": "x.lisp",
}


def test_set_takes_a_literal_of_the_language_or_else_a_string(folder: Path) -> None:
    """Numbers, true, nil, strings in quotes, vectors and maps; an expression is a string."""
    ran = dodona_("tree", "run", "t.lisp", "--json", "--set", *VALUES, cwd=folder)
    board = ran.document()["blackboard"]
    assert {key: board[key] for key in "abcdefghijklm"} == {
        text.strip(":")[0]: value for text, value in VALUES.items()
    }


def test_set_takes_several_pairs_at_once_and_again(folder: Path) -> None:
    """`--set a=1 b=2 --set c=3`; a tree file behind them is still the tree."""
    words = ("--set", "n=1", "word=two", "--set", "flag=true", "t.lisp", "--json")
    board = dodona_("tree", "run", *words, cwd=folder).document()["blackboard"]
    assert (board["n"], board["word"], board["flag"]) == (1, "two", True)


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("n", 2, "--set takes key=value (got 'n'). Example: --set turn=3\n"),
        ("=3", 2, "--set takes key=value (got '=3'). Example: --set turn=3\n"),
        (
            "n=many",
            1,
            "key ':n' takes a number (got the string \"many\"). "
            "Change the value, or the key's type in :blackboard-schema.\n",
        ),
        (
            "_error=1",
            1,
            "key ':_error' is reserved for the runtime. Use a name without '_' in front.\n",
        ),
    ],
)
def test_what_set_refuses(folder: Path, text: str, code: int, said: str) -> None:
    """A pair that is none is a bad request; a value the schema does not take a mistake."""
    assert dodona_("tree", "run", "t.lisp", "--set", text, cwd=folder) == Ran(code, "", said)


def test_a_key_that_looks_misspelt_is_pointed_out(folder: Path) -> None:
    """A key in no schema that is near another one is a warning, and no failure."""
    ran = dodona_("tree", "run", "t.lisp", "--set", "wrd=x", cwd=folder)
    assert (ran.code, ran.err) == (
        0,
        "warning: key ':wrd' is not in any schema. Did you mean 'word'?\n",
    )


# -- --json and exit codes -------------------------------------------------------------------------


def test_a_run_as_json(folder: Path) -> None:
    """One document: status, how it ended, ticks, error and the blackboard without reserved keys."""
    assert dodona_("tree", "run", "t.lisp", "--json", "--set", "n=9", cwd=folder) == Ran(
        1,
        '{"status": "failure", "ended": "failure", "ticks": 2, "error": null, "blackboard": '
        '{"n": 9, "word": "", "items": [], "map": {}, "flag": false, "seen": 1}, "trace": null}\n',
        "",
    )


@pytest.mark.parametrize("command", ["run", "trace"])
def test_a_traced_run_as_json(command: str, folder: Path) -> None:
    """Still one document, and the ticks stand under the same name."""
    flags = ("--trace",) if command == "run" else ()
    ran = dodona_("tree", command, "t.lisp", *flags, "--json", cwd=folder)
    found = ran.document()
    ticks = found["trace"]
    assert [[(visit["node"], visit["status"]) for visit in tick["visits"]] for tick in ticks] == [
        [
            ("top/set", "success"),
            ("top/few?", "success"),
            ("top/done", "success"),
            ("top", "success"),
        ],
        [(":finally/last", "success")],
    ]


def test_the_output_of_the_tree_does_not_disturb_json() -> None:
    """Chunks are for people: with `--json` there is the document and nothing else."""
    found = dodona_("tree", "run", ORACLE, *LEAVES, "--json").document()
    assert (found["status"], found["blackboard"]["saved"]) == ("success", True)


def test_a_debugged_run_as_json_is_one_document(folder: Path) -> None:
    """`--json` prints one document, also under the debugger: its talk is not on stdout."""
    ran = dodona_("tree", "run", "t.lisp", "--step", "--json", cwd=folder, typed="c\n")
    assert json.loads(ran.out)["status"] == "success"


@pytest.mark.parametrize("command", ["check", "show", "run", "test"])
def test_an_error_as_json(command: str, tmp_path: Path) -> None:
    """A file that does not read is one document for every command, with exit code 1."""
    (tmp_path / "t.lisp").write_text('(tree "t" (succeed)')
    ran = dodona_("tree", command, "t.lisp", "--json", cwd=tmp_path)
    found = ran.document()
    error = found["errors"][0] if command == "check" else found["error"]
    assert (ran.code, error["code"]) == (1, "tree_incomplete")
    assert error["where"] == {"file": "t.lisp", "line": 1, "column": 1}


def test_tests_as_json(tmp_path: Path) -> None:
    """`test --json`: the sum, and each test with its place and its failures."""
    (tmp_path / "t.lisp").write_text(
        '(tree "t" (action a :fn "x.a"))\n'
        '(test "good" :leaves {"x.a" :success} :expect {:status :success})\n'
        '(test "bad" :leaves {"x.a" :failure} :expect {:status :success})\n'
    )
    ran = dodona_("tree", "test", "t.lisp", "--json", cwd=tmp_path)
    found = ran.document()
    assert ran.code == 1
    assert all(test.pop("seconds") >= 0 for test in found["tests"])
    assert found == {
        "passed": 1,
        "failed": 1,
        "tests": [
            {"name": "good", "where": "t.lisp:2:1", "passed": True, "failures": []},
            {
                "name": "bad",
                "where": "t.lisp:3:1",
                "passed": False,
                "failures": ["status: expected success, got failure"],
            },
        ],
    }


def test_a_failed_test_is_told_in_text(tmp_path: Path) -> None:
    """The failure stands under its test, with the test's place; the exit code is 1."""
    (tmp_path / "t.lisp").write_text('(tree "t" (fail))')
    (tmp_path / "t.test.lisp").write_text('\n(test "wrong" :expect {:status :success})')
    assert dodona_("tree", "test", "t.lisp", cwd=tmp_path) == Ran(
        1,
        "FAILED  wrong\n"
        "        status: expected success, got failure\n"
        "        at t.test.lisp:2:1\n"
        "0 passed, 1 failed\n",
        "",
    )


def test_a_file_without_tests(folder: Path) -> None:
    """Nothing was tested: that is not a success."""
    assert dodona_("tree", "test", "t.lisp", cwd=folder) == Ran(
        1, "", 'no tests in t.lisp. Write (test "name" … :expect {…}).\n'
    )


def test_a_test_file_finds_its_tree(tmp_path: Path) -> None:
    """`test` and `check` accept NAME.test.lisp: it is run with NAME.lisp, once."""
    (tmp_path / "t.lisp").write_text('(tree "t" (succeed))')
    (tmp_path / "t.test.lisp").write_text('(test "right" :expect {:status :success})')
    passed = Ran(0, "ok      right\n1 passed, 0 failed\n", "")
    for files in (["t.test.lisp"], ["t.test.lisp", "t.lisp"], ["t.lisp", "t.test.lisp"]):
        assert dodona_("tree", "test", *files, cwd=tmp_path) == passed
    checked = dodona_("tree", "check", "t.test.lisp", cwd=tmp_path)
    assert checked == Ran(0, "ok: t, 1 nodes\n", "")

    (tmp_path / "t.lisp").unlink()
    missing = 't.test.lisp:1:1: there is no tree. Write (tree "name" …).\n'
    assert dodona_("tree", "check", "t.test.lisp", cwd=tmp_path).err.startswith(missing[:-1])
    ran = dodona_("tree", "test", "t.test.lisp", cwd=tmp_path)
    assert ran.code == 1
    assert missing[:-1] in ran.out


@pytest.mark.parametrize("command", ["check", "show", "run", "trace"])
def test_an_empty_file_is_named(command: str, tmp_path: Path) -> None:
    """Also if another file has a tree: it is listed as a problem of that file."""
    (tmp_path / "empty.lisp").write_text("; nothing\n")
    (tmp_path / "t.lisp").write_text('(tree "t" (succeed))')
    said = 'empty.lisp: there is no tree. Write (tree "name" …).\n'
    assert dodona_("tree", command, "empty.lisp", cwd=tmp_path) == Ran(1, "", said)
    if command == "check":
        assert dodona_("tree", command, "t.lisp", "empty.lisp", cwd=tmp_path) == Ran(1, "", said)


def test_which_tree_of_the_file(tmp_path: Path) -> None:
    """`--tree` picks one; the first is the default; a wrong name lists those there are."""
    (tmp_path / "t.lisp").write_text('(tree "a" (succeed))\n(tree "b" (fail))')
    assert dodona_("tree", "run", "t.lisp", cwd=tmp_path).out == "\n✓ a: success, 1 tick\n"
    other = dodona_("tree", "run", "t.lisp", "--tree", "b", cwd=tmp_path)
    assert (other.code, other.out) == (1, "\n✗ b: failure, 1 tick\n")
    assert dodona_("tree", "show", "t.lisp", "--tree", "c", cwd=tmp_path) == Ran(
        1, "", 't.lisp: there is no tree "c". Trees in the file: a, b.\n'
    )


# -- --leaves --------------------------------------------------------------------------------------

BROKEN: dict[str, tuple[str, int, str]] = {
    "a syntax error": ("x = 1\ndef f(:\n", 2, "SyntaxError: invalid syntax"),
    "an exception": ("x = 1\n\ny = x / 0\n", 3, "ZeroDivisionError: division by zero"),
    "a missing module": ("\nimport nonesuch\n", 2, "ModuleNotFoundError: No module named"),
    "an exception in a function": (
        "def f():\n    raise ValueError('no')\n\n\nf()\n",
        2,
        "ValueError: no.",
    ),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_python_file(folder: Path, broken: str) -> None:
    """Its error is told with the file and the line, without a traceback; exit code 3."""
    text, line, said = BROKEN[broken]
    (folder / "broken.py").write_text(text)
    ran = dodona_("tree", "run", "t.lisp", "--leaves", "broken.py", cwd=folder)
    assert (ran.code, ran.out) == (3, "")
    assert ran.err.startswith(f"broken.py:{line}: cannot load the file: {said}")
    assert ran.err.endswith(" Fix the error and try again.\n")


def test_a_python_file_with_an_invalid_leaf(folder: Path) -> None:
    """The error names the file and the line of the leaf."""
    (folder / "bad.py").write_text(
        "from dodona.trees import leaf\n\n\n"
        '@leaf("bad", effect="twice")\ndef bad(bb):\n    return True\n'
    )
    said = "leaf 'bad' has the unknown effect 'twice'. Available: none, keyed, once.\n"
    ran = dodona_("tree", "check", "t.lisp", "--leaves", "bad.py", cwd=folder)
    assert ran == Ran(1, "", f"bad.py:4: {said}")


def test_a_python_file_that_is_not_there(folder: Path) -> None:
    """A plain sentence, and exit code 1."""
    said = "file not found: none.py. --leaves takes Python files.\n"
    for command in ("check", "test"):
        ran = dodona_("tree", command, "t.lisp", "--leaves", "none.py", cwd=folder)
        assert ran == Ran(1, "", said)


def test_a_leaf_file_may_import_its_neighbours(tmp_path: Path) -> None:
    """Several files, and one that imports another beside it."""
    (tmp_path / "words.py").write_text('WORD = "from beside"\n')
    (tmp_path / "a.py").write_text(
        "from words import WORD\nfrom dodona.trees import leaf\n\n\n"
        '@leaf("a", step=True, effect="none")\ndef a(bb, step):\n    step.emit(WORD)\n'
    )
    (tmp_path / "b.py").write_text(
        'from dodona.trees import leaf\n\n\n@leaf("b")\ndef b(bb):\n    return True\n'
    )
    (tmp_path / "t.lisp").write_text('(tree "t" (sequence (a) (b)))')
    ran = dodona_("tree", "run", "--leaves", "a.py", "b.py", "t.lisp", cwd=tmp_path)
    assert ran == Ran(0, "from beside\n\n✓ t: success, 1 tick\n", "")


# -- stopping --------------------------------------------------------------------------------------


class Process:
    """A process that is looked at while it runs."""

    def __init__(self, cwd: Path, *words: str) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - our own command
            [str(DODONA), *words],
            cwd=cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def reads(self, wanted: str) -> str:
        """Its output until this appears in it."""
        assert self._process.stdout is not None
        seen = b""
        while wanted.encode() not in seen:
            ready, _, _ = select.select([self._process.stdout], [], [], 10)
            assert ready, f"only {seen!r} came"
            more = os.read(self._process.stdout.fileno(), 4096)
            assert more, f"it ended after {seen!r}"
            seen += more
        return seen.decode()

    def interrupt(self) -> None:
        self._process.send_signal(signal.SIGINT)

    def ended(self, seconds: float = 10) -> Ran:
        """How it ended, its stdin still open; one that hangs is killed, and fails the test."""
        try:
            self._process.wait(seconds)
        finally:
            self._process.kill()
            out, err = self._process.communicate()
        return Ran(self._process.returncode, out.decode(), err.decode())


def test_ctrl_c_cancels_the_run_and_finally_runs(folder: Path) -> None:
    """The leaf's cleanup runs, then :finally, which is told "cancelled"; the exit code is 1."""
    process = Process(folder, "tree", "run", "slow.lisp", "--leaves", "slow.py")
    process.reads("hanging\n")
    process.interrupt()
    assert process.ended() == Ran(1, "ended\n\n✗ slow: failure (cancelled), 2 ticks\n", "")
    assert (folder / "cleaned").exists()
    assert (folder / "ended").read_text() == "cancelled"


def test_ctrl_c_at_the_debuggers_prompt(folder: Path) -> None:
    """The same when the run is held and nobody types: it ends at once, :finally has run."""
    process = Process(folder, "tree", "run", "slow.lisp", "--leaves", "slow.py", "--step")
    process.reads("(dodona) ")
    process.interrupt()
    ran = process.ended(3)
    assert ran.code == 1
    assert ran.err == ""
    assert (folder / "ended").read_text() == "cancelled"
    assert not (folder / "cleaned").exists()


def piped(folder: Path, command: str) -> tuple[list[int], str, str]:
    """A pipe in bash: the exit codes of both ends, stdout, stderr."""
    script = f'{shlex.quote(str(DODONA))} {command} | head -1; echo "${{PIPESTATUS[*]}}"'
    done = subprocess.run(  # noqa: S603 - our own command
        ["/bin/bash", "-c", script],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    *lines, codes = done.stdout.splitlines()
    return [int(code) for code in codes.split()], "\n".join(lines), done.stderr


def test_a_reader_that_goes_away_does_not_disturb_the_run(folder: Path) -> None:
    """`| head -1` takes its line; the run goes on to its end, and nothing is said of the pipe."""
    codes, out, err = piped(folder, "tree run flood.lisp --leaves slow.py")
    assert (codes, out, err) == ([0, 0], "line 0", "")
    assert (folder / "ended").read_text() == "success"


@pytest.mark.parametrize(
    ("command", "first"),
    [
        (f"tree show {ORACLE} {' '.join(LEAVES)}", "oracle: Answers a question"),
        (f"tree trace {ORACLE} {' '.join(LEAVES)}", "tick 1 at "),
        (f"tree test {ORACLE}", "ok      a round of tools"),
    ],
)
def test_no_command_minds_a_reader_that_goes_away(folder: Path, command: str, first: str) -> None:
    """No traceback, no complaint, exit code 0."""
    codes, out, err = piped(folder, command)
    assert (codes, err) == ([0, 0], "")
    assert out.startswith(first)


# -- the debugger ----------------------------------------------------------------------------------

HELP = "enter: next node · c: continue · b: blackboard · t: tree · q: cancel the run\n"
END = "\n  :flag false\n  :n 0\n  :seen 1\n✓ t: success, {} ticks\n"


def test_step_stops_in_front_of_every_node(folder: Path) -> None:
    """Enter goes one node further; parents come before their children, :finally is the last."""
    ran = dodona_("tree", "run", "t.lisp", "--step", cwd=folder, typed="\n" * 5)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == (
        f"{HELP}"
        "at top   (t.lisp:4:3)\n"
        "(dodona) at top/set   (t.lisp:5:5)\n"
        "(dodona) at top/few?   (t.lisp:6:5)\n"
        "(dodona) at top/done   (t.lisp:7:5)\n"
        "(dodona) at :finally/last   (t.lisp:8:12)\n"
        f"(dodona) {END.format(7)}"
    )


def test_break_stops_in_front_of_its_node(folder: Path) -> None:
    """`b` prints the blackboard, `t` the tree as far as it has come, `c` goes on."""
    ran = dodona_("tree", "run", "t.lisp", "--break", "few?", cwd=folder, typed="b\nt\nc\n")
    assert (ran.code, ran.err) == (0, "")
    prompts = ran.out.split("(dodona) ")
    assert prompts[0] == f"{HELP}at top/few?   (t.lisp:6:5)\n"
    board = json.loads(prompts[1])
    assert (board["seen"], board["n"], board["flag"]) == (1, 0, False)
    assert prompts[2] == (
        "t\n"
        "├─ ▶ sequence top\n"
        "│  ├─ ✓ set :seen (+ (blackboard :seen) 1)\n"
        "│  ├─   condition few? (< (blackboard :n) 5)\n"
        "│  └─   succeed done\n"
        "└─   :finally succeed last\n"
    )
    assert prompts[3] == END.format(3)


def test_q_cancels_the_run(folder: Path) -> None:
    """:finally still runs; the exit code is 1."""
    words = ("slow.lisp", "--leaves", "slow.py", "--break", "hang")
    ran = dodona_("tree", "run", *words, cwd=folder, typed="q\n")
    assert (ran.code, ran.err) == (1, "")
    assert re.search(r"\(dodona\) ended\n\n✗ slow: failure \(cancelled\), \d ticks\n$", ran.out)
    assert (folder / "ended").read_text() == "cancelled"


def test_any_other_word_is_answered_with_help(folder: Path) -> None:
    """And the run stays where it is."""
    ran = dodona_("tree", "run", "t.lisp", "--break", "few?", cwd=folder, typed="what?\nc\n")
    assert ran.out.split("(dodona) ")[1] == HELP


@pytest.mark.parametrize("flag", [("--step",), ("--break", "top", "--break", "few?")])
def test_at_the_end_of_input_the_run_goes_on_to_its_end(
    folder: Path, flag: tuple[str, ...]
) -> None:
    """Nobody is there to be asked again: one stop, then none."""
    ran = dodona_("tree", "run", "t.lisp", *flag, cwd=folder, typed="")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == f"{HELP}at top   (t.lisp:4:3)\n(dodona) {END.format(3)}"


# -- --globals -------------------------------------------------------------------------------------


def test_globals_are_kept_from_run_to_run(folder: Path) -> None:
    """The file has the global keys and no others; keys of another tree in it stay."""
    store = folder / "globals.json"
    store.write_text('{"theirs": [1]}')
    for count in (1, 2):
        ran = dodona_("tree", "run", "t.lisp", "--globals", "globals.json", "--json", cwd=folder)
        assert ran.document()["blackboard"]["seen"] == count
        assert json.loads(store.read_text()) == {"theirs": [1], "seen": count}
    assert [path.name for path in folder.iterdir() if "globals" in path.name] == ["globals.json"]


def test_globals_that_cannot_be_read(folder: Path) -> None:
    """The file stays as it is; the exit code is that of a store."""
    (folder / "globals.json").write_text("{")
    ran = dodona_("tree", "run", "t.lisp", "--globals", "globals.json", cwd=folder)
    assert (ran.code, ran.out) == (4, "")
    assert ran.err.startswith("cannot read the global keys in globals.json: ")
    assert ran.err.endswith(" Fix or remove the file.\n")
    assert (folder / "globals.json").read_text() == "{"


# -- the command line itself -----------------------------------------------------------------------

USAGE: dict[str, str] = {
    "tre": 'Unknown command "tre". Did you mean "tree"? '
    "Available commands: up, ask, chat, onboard, init, index, vault, context, ... "
    "See: dodona --help\n",
    "tree rn": 'Unknown command "rn". Did you mean "run"? '
    "Available commands: check, show, run, trace, test. See: dodona tree --help\n",
    "tree run t.lisp --tracee": "Unknown option: --tracee. Did you mean --trace? "
    "See: dodona tree run --help\n",
    "tree run": "no tree file given. Example: oracle.lisp\n",
    "tree run t.lisp slow.lisp": "only one tree file is allowed (got t.lisp, slow.lisp).\n",
}


@pytest.mark.parametrize("words", USAGE)
def test_a_command_line_that_makes_no_sense(folder: Path, words: str) -> None:
    """Exit code 2, nothing on stdout, what is wrong and what to do on stderr."""
    assert dodona_(*words.split(), cwd=folder) == Ran(2, "", USAGE[words])


@pytest.mark.parametrize("words", ["tree show t.lisp --format svg", "tree run --watchdog"])
def test_a_flag_with_a_wrong_value(folder: Path, words: str) -> None:
    """The flag is named, and where to read about it; exit code 2."""
    ran = dodona_(*words.split(), cwd=folder)
    command, flag = " ".join(words.split()[:2]), re.findall(r"--\w+", words)[0]
    assert (ran.code, ran.out) == (2, "")
    assert flag in ran.err
    assert ran.err.endswith(f"See: dodona {command} --help\n")


def test_usage_errors_as_json() -> None:
    """The same shape as any other error."""
    ran = dodona_("tree", "rn", "--json")
    assert ran.code == 2
    assert ran.document() == {
        "error": {
            "code": "bad_request",
            "message": 'Unknown command "rn". Did you mean "run"? '
            "Available commands: check, show, run, trace, test.",
            "hint": "See: dodona tree --help",
        }
    }


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("--help", ["tree", "--version"]),
        ("tree --help", ["check", "show", "run", "trace", "test"]),
        ("tree run --help", ["--set", "--leaves", "--step", "--break", "--globals", "--json"]),
    ],
)
def test_help(words: str, named: list[str]) -> None:
    """Every level says what it takes; that is no error."""
    ran = dodona_(*words.split())
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("Usage: dodona ")
    assert [word for word in named if word not in ran.out] == []


def test_version() -> None:
    """The package's own version, alone on a line."""
    assert dodona_("--version") == Ran(0, f"{dodona.__version__}\n", "")

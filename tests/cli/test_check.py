"""`dodona tree check`, run as people run it: mistakes made in the seed's own program."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cli.running import dodona

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "oracle"
SEED = (EXAMPLES / "seed.lisp").read_text()


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str


def check(*words: str | Path, cwd: Path | None = None) -> Ran:
    done = dodona(cwd or Path.cwd(), "tree", "check", *map(str, words))
    return Ran(done.returncode, done.stdout, done.stderr)


def check_seed(folder: Path, text: str, *words: str) -> Ran:
    (folder / "seed.lisp").write_text(text)
    return check("seed.lisp", "--leaves", EXAMPLES / "leaves.py", *words, cwd=folder)


# What is written in the seed's program → what someone wrote instead, and what is then said.
MISTAKES: dict[str, tuple[str, str, str]] = {
    "misspelt node": (
        "(selector\n      (sequence\n        (condition has-context-id?)",
        "(selecter\n      (sequence\n        (condition has-context-id?)",
        "seed.lisp:23:6: unknown node 'selecter'. Did you mean 'selector'?\n"
        "  23 |     (selecter\n"
        "     |      ^\n",
    ),
    "missing paren": (
        "(condition has-context-id?)",
        "(condition has-context-id?",
        "seed.lisp:1:1: this '(' is never closed. Probably ')' is missing before line 26: by its "
        "indentation that is not inside the form on line 25.\n"
        '  1 | (tree "oracle-agent"\n'
        "    | ^\n",
    ),
    "extra paren": (
        '(action emit-session-end :fn "oracle.emit_session_end")))',
        '(action emit-session-end :fn "oracle.emit_session_end"))))',
        "seed.lisp:96:64: this ')' closes nothing: nothing is open here. Remove it.\n"
        '  96 | …   (action emit-session-end :fn "oracle.emit_session_end"))))\n'
        "     |                                                              ^\n",
    ),
    "unknown :fn": (
        '"oracle.load_tree_node"',
        '"oracle.load_tree_nod"',
        "seed.lisp:26:36: no leaf is registered as 'oracle.load_tree_nod'. "
        "Did you mean 'oracle.load_tree_node'?\n"
        '  26 |         (action load-tree-node :fn "oracle.load_tree_nod"))\n'
        "     |                                    ^\n",
    ),
    "unknown condition": (
        "(condition has-tool-calls?)",
        "(condition has-tool-call?)",
        "seed.lisp:64:30: no leaf is registered as 'has-tool-call?'. "
        "Did you mean 'has-tool-calls?'?\n"
        "  64 |                   (condition has-tool-call?)\n"
        "     |                              ^\n",
    ),
    "unknown decorator": (
        "(decorator budget-check",
        "(decorator budget-chek",
        "seed.lisp:40:18: no decorator is registered as 'budget-chek'. "
        "Did you mean 'budget-check'?\n"
        "  40 |       (decorator budget-chek\n"
        "     |                  ^\n",
    ),
    "unknown keyword": (
        ":blackboard-schema {",
        ":blackboard-scheme {",
        "seed.lisp:3:3: 'tree' has no keyword ':blackboard-scheme'. "
        "Did you mean ':blackboard-schema'?\n"
        "  3 |   :blackboard-scheme {\n"
        "    |   ^\n",
    ),
    "keyword given twice": (
        ":max-iterations 30",
        ":max-iterations 30 :max-iterations 15",
        "seed.lisp:39:34: ':max-iterations' is given twice. Remove one of them.\n"
        "  39 |     (repeater :max-iterations 30 :max-iterations 15 :until-success\n"
        "     |                                  ^\n",
    ),
    "missing required option": (
        "(repeater :max-iterations 30 :until-success",
        "(repeater :until-success",
        "seed.lisp:39:6: 'repeater' needs ':max-iterations'. "
        "It takes a whole number of at least 1.\n"
        "  39 |     (repeater :until-success\n"
        "     |      ^\n",
    ),
    "two untils": (
        ":until-success",
        ":until-success :until-failure",
        "seed.lisp:39:6: ':until-success' and ':until-failure' cannot be combined. "
        "Keep one of them.\n"
        "  39 |     (repeater :max-iterations 30 :until-succe…\n"
        "     |      ^\n",
    ),
    "bad policy": (
        "(parallel :policy :continue-on-failure\n                    (for-each",
        "(parallel :policy :continue-on-fail\n                    (for-each",
        "seed.lisp:66:37: ':policy' takes one of :require-all :require-one :require-n "
        ":continue-on-failure (got the keyword :continue-on-fail). "
        "Did you mean 'continue-on-failure'?\n"
        "  66 |                   (parallel :policy :continue-on-fail\n"
        "     |                                     ^\n",
    ),
    "unknown operator": (
        ":budget (blackboard :max_tokens)",
        ":budget (blackbord :max_tokens)",
        "seed.lisp:56:34: unknown operator 'blackbord'. Did you mean 'blackboard'?\n"
        "  56 |                         :budget (blackbord :max_tokens)\n"
        "     |                                  ^\n",
    ),
    "unknown reserved key": (
        "(blackboard :model)",
        "(blackboard :_item_)",
        "seed.lisp:52:44: unknown reserved key ':_item_'. Did you mean '_item'?\n"
        "  52 |               (llm-call :model (blackboard :_item_)\n"
        "     |                                            ^\n",
    ),
    "reserved key": (
        ":turn 0",
        ":_turn 0",
        "seed.lisp:10:5: key ':_turn' is reserved for the runtime.",
    ),
    "missing child": (
        "(succeed))))))))))",
        "(inverter))))))))))",
        "seed.lisp:84:24: 'inverter' takes one child (got 0).",
    ),
    "too many children": (
        "(succeed))))))))))",
        "(succeed (fail)))))))))))",
        "seed.lisp:84:32: 'succeed' takes no children (got 1). "
        "Is a parenthesis in the wrong place?\n"
        "  84 |                       (succeed (fail)))))))))))\n"
        "     |                                ^\n",
    ),
    "unknown subtree": (
        "(succeed))))))))))",
        '(subtree "oracle-agnt"))))))))))',
        "seed.lisp:84:32: there is no tree \"oracle-agnt\". Did you mean 'oracle-agent'?\n"
        '  84 |                       (subtree "oracle-agnt"))))))))))\n'
        "     |                                ^\n",
    ),
    "circular subtree": (
        "(succeed))))))))))",
        '(subtree "oracle-agent"))))))))))',
        "seed.lisp:84:32: subtrees form a cycle: oracle-agent → oracle-agent. "
        "Remove one of the references.\n"
        '  84 |                       (subtree "oracle-agent"))))))))))\n'
        "     |                                ^\n",
    ),
    "wrong literal type": (
        ":max-iterations 30",
        ':max-iterations "30"',
        "seed.lisp:39:31: ':max-iterations' takes a whole number of at least 1 "
        '(got the string "30").',
    ),
    "schema without its braces": (
        ':description "Main Oracle chat agent"',
        ":description Oracle",
        "seed.lisp:2:16: ':description' takes a string.",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_the_seeds_program(mistake: str, tmp_path: Path) -> None:
    """One mistake: exit code 1, nothing on stdout, one located error on stderr."""
    right, wrong, said = MISTAKES[mistake]
    assert SEED.count(right) >= 1
    ran = check_seed(tmp_path, SEED.replace(right, wrong, 1))
    assert (ran.code, ran.out) == (1, "")
    if said.endswith("\n"):
        assert ran.err == said
    else:
        assert ran.err.startswith(said)
    assert ran.err.count("seed.lisp:") == 1


def test_duplicate_names_of_trees_are_a_mistake_and_those_of_nodes_are_none(
    tmp_path: Path,
) -> None:
    """The seed names `execute-tool` twice, and may; two trees of one name are refused."""
    ran = check_seed(tmp_path, SEED + SEED)
    assert ran.code == 1
    assert ran.err == (
        'seed.lisp:97:7: tree "oracle-agent" already exists. The first is at seed.lisp:1:1.\n'
        '  97 | (tree "oracle-agent"\n'
        "     |       ^\n"
    )


@pytest.mark.parametrize(("file", "name"), [("seed", "oracle-agent"), ("oracle", "oracle")])
def test_the_examples_are_right(file: str, name: str) -> None:
    """What we ship checks without an error or a warning."""
    ran = check(EXAMPLES / f"{file}.lisp", "--leaves", EXAMPLES / "leaves.py")
    assert (ran.code, ran.err) == (0, "")
    assert re.fullmatch(rf"ok: {name}, \d+ nodes\n", ran.out)


def test_every_mistake_is_told_at_once_in_order(tmp_path: Path) -> None:
    """Several mistakes in one file: all of them, from top to bottom, and exit code 1."""
    text = SEED
    for mistake in ("unknown keyword", "misspelt node", "unknown :fn", "unknown condition"):
        right, wrong, _ = MISTAKES[mistake]
        text = text.replace(right, wrong, 1)
    ran = check_seed(tmp_path, text)
    assert (ran.code, ran.out) == (1, "")
    told = ("unknown keyword", "misspelt node", "unknown :fn", "unknown condition")
    assert ran.err == "".join(MISTAKES[mistake][2] for mistake in told)


def test_json_is_one_document_with_every_mistake(tmp_path: Path) -> None:
    """`--json`: ok, errors, warnings, trees; each error with code, message, hint and where."""
    (tmp_path / "t.lisp").write_text('(tree "t" (sequence (sequnce) (acton)))')
    ran = check("t.lisp", "--json", cwd=tmp_path)
    assert (ran.code, ran.err) == (1, "")
    assert json.loads(ran.out) == {
        "ok": False,
        "errors": [
            {
                "code": "tree_invalid",
                "message": "unknown node 'sequnce'.",
                "hint": "Did you mean 'sequence'?",
                "where": {"file": "t.lisp", "line": 1, "column": 22},
            },
            {
                "code": "tree_invalid",
                "message": "unknown node 'acton'.",
                "hint": "Did you mean 'action'?",
                "where": {"file": "t.lisp", "line": 1, "column": 32},
            },
        ],
        "warnings": [],
        "trees": [],
    }


def test_json_of_a_right_file(tmp_path: Path) -> None:
    """Without mistakes: ok, and each tree with its name, size and digest."""
    (tmp_path / "t.lisp").write_text('(tree "t" (sequence (succeed)))')
    ran = check("t.lisp", "--json", cwd=tmp_path)
    report = json.loads(ran.out)
    digest = report["trees"][0].pop("digest")
    assert (ran.code, ran.err, len(digest)) == (0, "", 64)
    assert report == {
        "ok": True,
        "errors": [],
        "warnings": [],
        "trees": [{"name": "t", "nodes": 2}],
    }


def test_a_warning_is_told_and_is_no_failure(tmp_path: Path) -> None:
    """A key in no schema is pointed out on stderr; the exit code is 0."""
    (tmp_path / "t.lisp").write_text('(tree "t" (condition (blackboard :turn)))')
    ran = check("t.lisp", cwd=tmp_path)
    assert (ran.code, ran.out) == (0, "ok: t, 1 nodes\n")
    assert ran.err == (
        "warning: t.lisp:1:34: key ':turn' is not in any schema. "
        "Declare it in :blackboard-schema.\n"
        '  1 | (tree "t" (condition (blackboard :turn)))\n'
        "    |                                  ^\n"
    )


def test_trees_of_several_files_may_use_each_other(tmp_path: Path) -> None:
    """Files named together are one library, in any order."""
    (tmp_path / "a.lisp").write_text('(tree "a" (subtree "b"))')
    (tmp_path / "b.lisp").write_text('(tree "b" (succeed))')
    assert check("a.lisp", "b.lisp", cwd=tmp_path).out == "ok: a, 2 nodes\nok: b, 1 nodes\n"
    alone = check("a.lisp", cwd=tmp_path)
    assert (alone.code, alone.err.splitlines()[0]) == (
        1,
        'a.lisp:1:20: there is no tree "b". Pass its file as well, or add the tree to this file.',
    )


def test_files_that_are_none(tmp_path: Path) -> None:
    """Missing, a directory, not UTF-8, empty: a plain sentence each, exit code 1, no traceback."""
    (tmp_path / "oracle.lisp").write_text('(tree "t" (succeed))')
    (tmp_path / "folder.lisp").mkdir()
    (tmp_path / "binary.lisp").write_bytes(b'(tree "t"\n\xff\xfe\x00)')
    (tmp_path / "empty.lisp").write_text("")
    said = {
        "oracl.lisp": "oracl.lisp: there is no such file. Did you mean 'oracle.lisp'?\n",
        "folder.lisp": "folder.lisp: is a directory. Pass a .lisp file.\n",
        "binary.lisp": (
            "binary.lisp:2:1: the byte 0xFF at offset 10 is not UTF-8. Save the text as UTF-8.\n"
            "  2 | \N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER})\n"
            "    | ^\n"
        ),
        "empty.lisp": 'empty.lisp: there is no tree. Write (tree "name" …).\n',
    }
    for name, text in said.items():
        ran = check(name, cwd=tmp_path)
        assert (ran.code, ran.out, ran.err) == (1, "", text)


def test_an_empty_file_with_json_is_one_document(tmp_path: Path) -> None:
    """`--json` prints one document, also when there is nothing to report on."""
    (tmp_path / "empty.lisp").write_text("")
    ran = check("empty.lisp", "--json", cwd=tmp_path)
    assert ran.code == 1
    assert json.loads(ran.out)


def test_a_missing_file_does_not_hide_the_mistakes_of_another(tmp_path: Path) -> None:
    """Every file is looked at."""
    (tmp_path / "t.lisp").write_text('(tree "t" (sequnce))')
    ran = check("none.lisp", "t.lisp", cwd=tmp_path)
    assert ran.code == 1
    assert "none.lisp: there is no such file." in ran.err
    assert "t.lisp:1:12: unknown node 'sequnce'." in ran.err

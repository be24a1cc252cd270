"""`dodona tree` knows the agent's own leaves, for whoever changes the agent's tree."""

from __future__ import annotations

import json
from pathlib import Path

from dodona.agent.api import ORACLE_TREE
from tests.cli.running import dodona


def test_the_agents_tree_is_checked_and_shown(tmp_path: Path) -> None:
    """Without `--leaves`: they are not in a file that one could name."""
    done = dodona(tmp_path, "tree", "check", str(ORACLE_TREE))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("ok: oracle, ")
    shown = dodona(tmp_path, "tree", "show", str(ORACLE_TREE))
    assert "llm-call" in shown.stdout


def test_leaf_files_add_to_the_agents_leaves(tmp_path: Path) -> None:
    """`--leaves` adds leaves; one with the name of an agent's leaf replaces it."""
    text = Path(ORACLE_TREE).read_text(encoding="utf-8")
    (tmp_path / "mine.lisp").write_text(text.replace("(llm-call", "(my-call"), encoding="utf-8")
    (tmp_path / "leaves.py").write_text(
        "from dodona.trees import leaf\n\n\n"
        '@leaf("my-call", writes=("answer",), effect="none")\n'
        "def call(bb, step):\n    return True\n\n\n"
        '@leaf("oracle.add_question")\ndef add(bb):\n    return True\n'
    )
    leaves = ("--leaves", "leaves.py")
    done = dodona(tmp_path, "tree", "check", "mine.lisp", *leaves)
    assert (done.returncode, done.stderr) == (0, "")
    shown = dodona(tmp_path, "tree", "show", "mine.lisp", *leaves)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "my-call" in shown.stdout


def test_a_mistake_in_a_copy_is_told(tmp_path: Path) -> None:
    """With the name that may be meant; and a tree that is named in the config must load."""
    text = Path(ORACLE_TREE).read_text(encoding="utf-8")
    (tmp_path / "mine.lisp").write_text(text.replace("(llm-call", "(llm-cal"), encoding="utf-8")
    done = dodona(tmp_path, "tree", "check", "mine.lisp", "--json")
    report = json.loads(done.stdout)
    assert (done.returncode, report["ok"]) == (1, False)
    assert "llm-call" in report["errors"][0]["hint"]
    asked = dodona(tmp_path, "ask", "Who speaks?", DODONA_AGENT__TREE="mine.lisp")
    assert (asked.returncode, asked.stdout) == (1, "")
    assert "llm-cal" in asked.stderr
    assert "Traceback" not in asked.stderr

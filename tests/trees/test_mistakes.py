"""Typical mistakes of tree authors: each gives one error, at its place, that says what to do.

A row is a text, the place of the mistake, and what is said there; the excerpt under it is the
line of the text with a caret.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dodona.core.errors import DodonaError, LoadError, as_text
from dodona.lisp import read
from dodona.trees import Registry
from dodona.trees.language.loader import Loader, LoadResult, load_files
from dodona.trees.nodes import KINDS

REGISTRY = Registry(KINDS)


@REGISTRY.leaf("mail.fetch")
def fetch(bb: Any) -> None: ...


@REGISTRY.leaf("mail.send")
def send(bb: Any, to: str, copies: int = 1, *, urgent: bool = False) -> None: ...


@REGISTRY.leaf("ask")
def ask(bb: Any, prompt: str) -> None: ...


@REGISTRY.leaf("ready?")
def ready(bb: Any) -> bool:
    return True


@REGISTRY.decorator("paid")
def paid(bb: Any) -> bool:
    return True


OPERATORS = "blackboard = != < <= > >= and or not + - * / mod min max length in get"

# id: (text, line:column, what is said)
MISTAKES: dict[str, tuple[str, str, str]] = {
    # -- parentheses, strings, maps --------------------------------------------------------------
    "missing paren": (
        '(tree "t"\n  (sequence\n    (action a :fn "mail.fetch"\n    (succeed)))',
        "1:1",
        "this '(' is never closed. Probably ')' is missing before line 4: by its indentation that "
        "is not inside the form on line 3.",
    ),
    "extra paren": (
        '(tree "t" (succeed)))',
        "1:21",
        "this ')' closes nothing: nothing is open here. Remove it.",
    ),
    "wrong bracket": (
        '(tree "t" (sequence (succeed]))',
        "1:29",
        "this ']' cannot close the '(' at t.lisp:1:21. Close that with ')' first.",
    ),
    "unclosed string": (
        '(tree "t" :description "abc (succeed))',
        "1:24",
        "this string is never closed. Add '\"' to it.",
    ),
    "comma": (
        '(tree "t", (succeed))',
        "1:10",
        "',' (U+002C COMMA) has no meaning here. Separate forms with spaces.",
    ),
    "schema key without default": (
        '(tree "t" :blackboard-schema {:a} (succeed))',
        "1:31",
        "this last key of the map has no value. A map consists of key-value pairs.",
    ),
    "schema key twice": (
        '(tree "t" :blackboard-schema {:a 1 :a 2}\n  (succeed))',
        "1:36",
        "the key :a is already in the map, at t.lisp:1:31. Remove one of them.",
    ),
    # -- trees -----------------------------------------------------------------------------------
    "misspelt tree": (
        '(tre "t" (succeed))',
        "1:2",
        "expected a tree at the top level. Did you mean 'tree'?",
    ),
    "text at the top": (
        '"hello"',
        "1:1",
        'expected a tree at the top level. Write (tree "name" …).',
    ),
    "tree without name": (
        "(tree (succeed))",
        "1:7",
        'a tree needs a name. Write (tree "name" …).',
    ),
    "tree named by a symbol": (
        "(tree oracle (succeed))",
        "1:7",
        'a tree needs a name. Write (tree "name" …).',
    ),
    "tree without node": ('(tree "t")', "1:2", 'tree "t" has no node. Add one.'),
    "tree with two nodes": (
        '(tree "t" (succeed) (fail))',
        "1:21",
        'tree "t" takes one node (got 2). Put them into a (sequence …). '
        "Or is a parenthesis in the wrong place?",
    ),
    "duplicate tree name": (
        '(tree "t" (succeed))\n(tree "t" (fail))',
        "2:7",
        'tree "t" already exists. The first is at t.lisp:1:1.',
    ),
    "unknown keyword of a tree": (
        '(tree "t" :fnally (succeed) (succeed))',
        "1:11",
        "'tree' has no keyword ':fnally'. Did you mean ':finally'?",
    ),
    "keyword of a tree given twice": (
        '(tree "t" :description "a"\n  :description "b" (succeed))',
        "2:3",
        "':description' is given twice. Remove one of them.",
    ),
    # -- nodes -----------------------------------------------------------------------------------
    "misspelt node": (
        '(tree "t" (sequnce (succeed)))',
        "1:12",
        "unknown node 'sequnce'. Did you mean 'sequence'?",
    ),
    "node nobody knows": (
        '(tree "t" (xyzzy (succeed)))',
        "1:12",
        "unknown node 'xyzzy'. Available: action ask condition decorator fail for-each "
        "force-failure force-success guard if inverter parallel ready? repeater retry selector "
        "sequence set subtree succeed timeout wait.",
    ),
    "text where a node stands": (
        '(tree "t" (sequence "x"))',
        "1:21",
        'expected a node (got the string "x"). Write (sequence …).',
    ),
    "empty node": (
        '(tree "t" (sequence ()))',
        "1:21",
        "a node starts with its kind. Write (sequence …).",
    ),
    "too many children": (
        '(tree "t" (inverter (succeed) (fail)))',
        "1:31",
        "'inverter' takes one child (got 2). Is a parenthesis in the wrong place?",
    ),
    "child of a leaf": (
        '(tree "t"\n  (action x :fn "mail.fetch" (succeed)))',
        "2:30",
        "'action' takes no children (got 1). Is a parenthesis in the wrong place?",
    ),
    "missing required option": (
        '(tree "t" (timeout (succeed)))',
        "1:12",
        "'timeout' needs ':seconds'. It takes a number of at least 0.",
    ),
    "unknown keyword": (
        '(tree "t" (parallel :mrge true (succeed)))',
        "1:21",
        "'parallel' has no keyword ':mrge'. Did you mean ':merge'?",
    ),
    "unknown keyword with a keyword behind it": (
        '(tree "t"\n  (parallel :polcy :require-all (succeed)))',
        "2:13",
        "'parallel' has no keyword ':polcy'. Did you mean ':policy'?",
    ),
    "keyword of a node that takes none": (
        '(tree "t" (inverter :loud true (succeed)))',
        "1:21",
        "'inverter' has no keyword ':loud'. It takes none.",
    ),
    "keyword given twice": (
        '(tree "t"\n  (timeout :seconds 1 :seconds 2 (succeed)))',
        "2:23",
        "':seconds' is given twice. Remove one of them.",
    ),
    "option without value": (
        '(tree "t" (wait :seconds))',
        "1:17",
        "':seconds' has no value. It takes a number of at least 0.",
    ),
    "misspelt policy": (
        '(tree "t"\n  (parallel :policy :require-al (succeed)))',
        "2:21",
        "':policy' takes one of :require-all :require-one :require-n :continue-on-failure "
        "(got the keyword :require-al). Did you mean 'require-all'?",
    ),
    ":n without :require-n": (
        '(tree "t" (parallel :n 2 (succeed) (fail)))',
        "1:12",
        "':n' requires ':policy :require-n'. Add it, or remove :n.",
    ),
    ":require-n without :n": (
        '(tree "t"\n  (parallel :policy :require-n (succeed)))',
        "2:4",
        "':policy :require-n' needs ':n'. Write for example :n 2.",
    ),
    "two untils": (
        '(tree "t" (repeater :max-iterations 3\n  :until-success :until-failure (succeed)))',
        "1:12",
        "':until-success' and ':until-failure' cannot be combined. Keep one of them.",
    ),
    "set with nothing": (
        '(tree "t" (set))',
        "1:12",
        "'set' writes nothing. Write (set :key VALUE).",
    ),
    "set a reserved key": (
        '(tree "t" (set :_error nil))',
        "1:12",
        "key ':_error' is reserved for the runtime. Use another name.",
    ),
    # -- names -----------------------------------------------------------------------------------
    "unknown :fn": (
        '(tree "t" (action fetch :fn "mail.fech"))',
        "1:29",
        "no leaf is registered as 'mail.fech'. Did you mean 'mail.fetch'?",
    ),
    ":fn nobody knows": (
        '(tree "t" (action fetch :fn "qqq"))',
        "1:29",
        "no leaf is registered as 'qqq'. "
        'Register it with @leaf("qqq") in a file passed with --leaves.',
    ),
    "unknown condition": (
        '(tree "t" (condition redy?))',
        "1:22",
        "no leaf is registered as 'redy?'. Did you mean 'ready?'?",
    ),
    "unknown decorator": (
        '(tree "t" (decorator payed (succeed)))',
        "1:22",
        "no decorator is registered as 'payed'. Did you mean 'paid'?",
    ),
    "decorator without name": (
        '(tree "t" (decorator (succeed)))',
        "1:12",
        "'decorator' needs a name. Write (decorator NAME CHILD).",
    ),
    "unknown subtree": (
        '(tree "tools" (succeed))\n(tree "t" (subtree "tool"))',
        "2:20",
        "there is no tree \"tool\". Did you mean 'tools'?",
    ),
    "circular subtrees": (
        '(tree "a" (subtree "b"))\n(tree "b" (sequence (subtree "a")))',
        "2:30",
        "subtrees form a cycle: a → b → a. Remove one of the references.",
    ),
    "subtree of itself": (
        '(tree "a" (succeed) :finally (subtree "a"))',
        "1:39",
        "subtrees form a cycle: a → a. Remove one of the references.",
    ),
    "unknown argument of a leaf": (
        '(tree "t"\n  (action m :fn "mail.send" :to "x" :copys 2))',
        "2:37",
        "leaf 'mail.send' has no argument ':copys'. Did you mean 'copies'?",
    ),
    "argument of a leaf that takes none": (
        '(tree "t" (action m :fn "mail.fetch" :qq 2))',
        "1:38",
        "leaf 'mail.fetch' has no argument ':qq'. It takes none.",
    ),
    # -- expressions, one inside a condition and one outside ---------------------------------------
    "unknown operator": (
        '(tree "t" (set :a (lenght "abc")))',
        "1:20",
        "unknown operator 'lenght'. Did you mean 'length'?",
    ),
    "unknown operator in a condition": (
        '(tree "t" (condition (lenght "abc")))',
        "1:23",
        "unknown operator 'lenght'. Did you mean 'length'?",
    ),
    "operator nobody knows": (
        '(tree "t" (set :a (xyzzy 1)))',
        "1:20",
        f"unknown operator 'xyzzy'. The operators are: {OPERATORS}.",
    ),
    "symbol as value": (
        '(tree "t" (guard (< turn 3) (succeed)))',
        "1:21",
        "'turn' has no value here. Read a key with (blackboard :turn), or quote a word: 'turn.",
    ),
    "symbol as value in a condition": (
        '(tree "t" (condition (< turn 3)))',
        "1:25",
        "'turn' has no value here. Read a key with (blackboard :turn), or quote a word: 'turn.",
    ),
    "unknown reserved key": (
        '(tree "t" (condition (blackboard :_eror)))',
        "1:34",
        "unknown reserved key ':_eror'. Did you mean '_error'?",
    ),
    "key as a string": (
        '(tree "t" (condition (blackboard "a")))',
        "1:22",
        "'blackboard' takes one key. Write (blackboard :key).",
    ),
    # -- schema ----------------------------------------------------------------------------------
    "schema that is no map": (
        '(tree "t" :blackboard-schema [:a 1]\n  (succeed))',
        "1:30",
        "':blackboard-schema' takes a map (got a vector). Write {:key default …}.",
    ),
    "unknown schema type": (
        '(tree "t" :blackboard-schema\n  {:a {:type :strng}} (succeed))',
        "2:14",
        "expected one of :any :string :integer :number :boolean :list :map "
        "(got the keyword :strng). Did you mean 'string'?",
    ),
    "unknown scope": (
        '(tree "t" :blackboard-schema\n  {:a {:scope :golbal}} (succeed))',
        "2:15",
        "expected one of :tree :subtree :global (got the keyword :golbal). Did you mean 'global'?",
    ),
    "default of the wrong type": (
        '(tree "t" :blackboard-schema\n  {:a {:type :list :default "x"}} (succeed))',
        "2:7",
        "key ':a' takes a list (got the string \"x\"). "
        "Change the value, or the key's type in :blackboard-schema.",
    ),
}

# Here the hint may be worded as one likes; it must be there.
UNHINTED: dict[str, tuple[str, str, str]] = {
    "missing child": ('(tree "t" (inverter))', "1:12", "'inverter' takes one child (got 0)."),
    "missing children": (
        '(tree "t" (sequence))',
        "1:12",
        "'sequence' takes at least one child (got 0).",
    ),
    "if without branches": (
        '(tree "t" (if (= 1 1)))',
        "1:12",
        "'if' takes 2 to 3 children (got 1).",
    ),
    "subtree named by a symbol": (
        '(tree "tools" (succeed))\n(tree "t" (subtree tools))',
        "2:12",
        "'subtree' takes one child (got 0).",
    ),
    "wrong literal type": (
        '(tree "t" (timeout :seconds "30" (succeed)))',
        "1:29",
        "':seconds' takes a number of at least 0 (got the string \"30\").",
    ),
    "fraction where a whole number stands": (
        '(tree "t"\n  (repeater :max-iterations 1.5 (succeed)))',
        "2:29",
        "':max-iterations' takes a whole number of at least 1 (got the float 1.5).",
    ),
    "number too small": (
        '(tree "t" (retry :times 0 (succeed)))',
        "1:25",
        "':times' takes a whole number of at least 1 (got the integer 0).",
    ),
    ":fn that is no string": (
        '(tree "t" (action fetch :fn 3))',
        "1:29",
        "':fn' takes a string (got the integer 3).",
    ),
    "policy as a string": (
        '(tree "t"\n  (parallel :policy "require-all" (succeed)))',
        "2:21",
        "':policy' takes one of :require-all :require-one :require-n :continue-on-failure "
        '(got the string "require-all").',
    ),
    "flag that is no flag": (
        '(tree "t" (sequence :reactive 1 (succeed)))',
        "1:31",
        "':reactive' takes true or false (got the integer 1).",
    ),
    "missing argument of a leaf": (
        '(tree "t" (action m :fn "mail.send"))',
        "1:12",
        "leaf 'mail.send' needs the argument ':to'.",
    ),
    "missing argument of a leaf node": (
        '(tree "t" (ask))',
        "1:12",
        "leaf 'ask' needs the argument ':prompt'.",
    ),
    "wrong argument type": (
        '(tree "t" (ask :prompt 3))',
        "1:24",
        "':prompt' takes a value of type str (got the integer 3).",
    ),
    "wrong operator arity": (
        '(tree "t" (set :a (not 1 2)))',
        "1:19",
        "'not' takes 1 argument (got 2).",
    ),
    "wrong operator arity in a condition": (
        '(tree "t" (condition (< 1)))',
        "1:22",
        "'<' takes 2 arguments or more (got 1).",
    ),
    "values that cannot be compared": (
        '(tree "t" (set :a (< 1 "a")))',
        "1:19",
        'cannot compare the integer 1 with the string "a" in (< 1 "a").',
    ),
    "reserved key in a schema": (
        '(tree "t" :blackboard-schema {:_a 0}\n  (succeed))',
        "1:31",
        "key ':_a' is reserved for the runtime.",
    ),
    "schema key as a string": (
        '(tree "t" :blackboard-schema {"a" 1}\n  (succeed))',
        "1:31",
        'a blackboard key is a keyword (got the string "a").',
    ),
    "default that is computed": (
        '(tree "t" :blackboard-schema\n  {:a (blackboard :b)} (succeed))',
        "2:7",
        "a default must be a literal, not an expression.",
    ),
    "description that is no string": (
        '(tree "t" :description 3 (succeed))',
        "1:24",
        "':description' takes a string.",
    ),
    "keyword of a tree without value": (
        '(tree "t" (succeed) :description)',
        "1:21",
        "':description' has no value.",
    ),
    "action without name": ('(tree "t" (action))', "1:12", "'action' needs a name or ':fn'."),
    "expression and :fn": (
        '(tree "t"\n  (condition (= 1 1) :fn "mail.fetch"))',
        "2:22",
        "a condition with an expression takes no ':fn'.",
    ),
}

# One slip of the pen each; how it is said is open, but it is said once, with a hint.
ONE_SLIP: dict[str, tuple[str, int]] = {
    "number without its keyword": ('(tree "t" (wait 3))', 1),
    "number without its keyword, and a child": ('(tree "t" (timeout 30 (succeed)))', 1),
    "leaf named by a string": ('(tree "t" (action "mail.fetch"))', 1),
    "required option misspelt": ('(tree "t" (retry :max-retries 3 (succeed)))', 1),
    "set without a keyword": ('(tree "t" (set a 1))', 1),
    "guard without its expression": ('(tree "t" (guard (succeed)))', 1),
    "for-each without its list": ('(tree "t" (for-each (succeed)))', 1),
    "option without its number": ('(tree "t" (timeout :seconds (succeed)))', 1),
    "until without its expression": ('(tree "t"\n (repeater :max-iterations 3 :until (fail)))', 2),
    "two expressions in a condition": ('(tree "t" (condition (= 1 1) (= 2 2)))', 1),
    "argument without its keyword": ('(tree "t" (action m :fn "ask" "x"))', 1),
    "word of a key description misspelt": (
        '(tree "t"\n  :blackboard-schema {:a {:type :integer :defualt 3}}\n  (succeed))',
        2,
    ),
    "for-each over a number": ('(tree "t" (for-each 3 (succeed)))', 1),
    "more successes than children": (
        '(tree "t"\n  (parallel :policy :require-n :n 3 (succeed) (fail)))',
        2,
    ),
}


def loaded(text: str) -> LoadResult:
    return Loader(REGISTRY).load(read(text, "t.lisp"))


def mistakes(text: str) -> list[DodonaError]:
    try:
        return list(loaded(text).problems)
    except DodonaError as error:  # the text does not even read
        return list(error.problems())


def shown(text: str, at: str, said: str) -> str:
    """The whole error, put together by hand."""
    line, column = (int(part) for part in at.split(":"))
    written = text.split("\n")[line - 1]
    return f"t.lisp:{at}: {said}\n  {line} | {written}\n    | {' ' * (column - 1)}^"


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_error_at_its_place_that_says_what_to_do(mistake: str) -> None:
    """One mistake is one error: file, line, column, what is wrong, a hint, the line, a caret."""
    text, at, said = MISTAKES[mistake]
    found = mistakes(text)
    assert [as_text(error) for error in found] == [shown(text, at, said)]
    assert found[0].hint


@pytest.mark.parametrize("mistake", UNHINTED)
def test_a_mistake_is_one_error_at_its_place(mistake: str) -> None:
    """One mistake is one error: file, line, column, what is wrong."""
    text, at, said = UNHINTED[mistake]
    found = mistakes(text)
    assert [f"{error.where}: {error.message}" for error in found] == [f"t.lisp:{at}: {said}"]


@pytest.mark.parametrize("mistake", UNHINTED)
def test_every_mistake_has_a_hint(mistake: str) -> None:
    """What to do next stands behind every mistake."""
    assert all(error.hint for error in mistakes(UNHINTED[mistake][0]))


@pytest.mark.parametrize("mistake", ONE_SLIP)
def test_one_slip_is_said_once(mistake: str) -> None:
    """A slip is one located error with a hint, not one for each rule that it breaks."""
    text, line = ONE_SLIP[mistake]
    found = mistakes(text)
    assert [error.where.line if error.where else 0 for error in found] == [line]
    assert found[0].hint


def test_all_mistakes_of_a_file_are_told_at_once_in_the_order_of_the_file() -> None:
    """Ten runs of the checker are not needed to find ten mistakes."""
    text = """\
(tree "t"
  :descripton "x"
  (sequence
    (acton a :fn "mail.fetch")
    (action b :fn "mail.fech")
    (decorator payed
      (parallel :merge :colect (subtree "tols"))))
  :finally (sequnce (succeed)))
(tree "t" (succeed))
"""
    assert [str(error) for error in mistakes(text)] == [
        "t.lisp:2:3: 'tree' has no keyword ':descripton'. Did you mean ':description'?",
        "t.lisp:4:6: unknown node 'acton'. Did you mean 'action'?",
        "t.lisp:5:19: no leaf is registered as 'mail.fech'. Did you mean 'mail.fetch'?",
        "t.lisp:6:16: no decorator is registered as 'payed'. Did you mean 'paid'?",
        "t.lisp:7:24: ':merge' takes one of :last-wins :collect :fail-on-conflict "
        "(got the keyword :colect). Did you mean 'collect'?",
        't.lisp:7:41: there is no tree "tols". Pass its file as well, or add the tree to this '
        "file.",
        "t.lisp:8:13: unknown node 'sequnce'. Did you mean 'sequence'?",
        't.lisp:9:7: tree "t" already exists. The first is at t.lisp:1:1.',
    ]


@pytest.mark.parametrize("uses", ['(subtree "bad")', '(sequence (subtree "bad") (subtree "bad"))'])
@pytest.mark.parametrize("first", ["bad", "user"])
def test_a_mistake_in_a_subtree_is_told_once_whoever_uses_it(uses: str, first: str) -> None:
    """A tree that uses a bad one adds no error of its own, and breaks nothing."""
    trees = {"bad": '(tree "bad" (sequnce (succeed)))', "user": f'(tree "user" {uses})'}
    order = ["bad", "user"] if first == "bad" else ["user", "bad"]
    found = mistakes("\n".join(trees[name] for name in order))
    line = order.index("bad") + 1
    assert [str(error) for error in found] == [
        f"t.lisp:{line}:14: unknown node 'sequnce'. Did you mean 'sequence'?"
    ]


def test_a_bad_tree_does_not_hide_a_good_one() -> None:
    """The trees that are right are loaded all the same."""
    found = loaded('(tree "a" (succeed))\n(tree "b" (sequnce))\n(tree "c" (subtree "a"))')
    assert (list(found.trees), len(found.problems)) == (["a", "c"], 1)


def test_several_mistakes_are_one_error_that_holds_them_all() -> None:
    """Whoever loads a bad tree gets one exception, with every mistake in its text."""
    with pytest.raises(LoadError) as caught:
        loaded('(tree "t" (sequence (a) (b)))').main_tree()
    assert len(caught.value.problems()) == 2
    assert str(caught.value).count("unknown node") == 2


def test_mistakes_in_several_files_name_their_files(tmp_path: Path) -> None:
    """Every file is read, also when one before it does not read."""
    one, two = tmp_path / "one.lisp", tmp_path / "two.lisp"
    one.write_text('(tree "one" (succeed)')
    two.write_text('(tree "two" (sequnce (succeed)))')
    found = load_files([one, two], registry=REGISTRY)
    assert [str(p.where) for p in found.problems] == [f"{one}:1:1", f"{two}:1:14"]


def test_a_key_that_nobody_declares_is_a_warning() -> None:
    """A key may come from the host: it is pointed out, and the tree loads."""
    found = loaded(
        '(tree "t" :blackboard-schema {:turn 0}\n  (condition (< (blackboard :trun) 3)))'
    )
    assert found.problems == ()
    assert [as_text(warning) for warning in found.warnings] == [
        shown(
            "\n  (condition (< (blackboard :trun) 3)))",
            "2:29",
            "key ':trun' is not in any schema. Did you mean 'turn'?",
        )
    ]


@pytest.mark.parametrize("text", ["", "; nothing\n", "#| (tree) |#"])
def test_a_text_without_a_tree_is_a_mistake(text: str) -> None:
    """A file that holds no tree says so, with what to write."""
    with pytest.raises(LoadError) as caught:
        loaded(text).main_tree()
    assert str(caught.value) == 'there is no tree. Write (tree "name" …).'

"""The blackboard: types, defaults, scopes, reserved keys, bounds and isolation."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from dodona.core.errors import BlackboardError, DodonaError, TreeError, as_text
from dodona.trees import FAILURE, SUCCESS, Options, Outcome, Registry, Run, load, run
from dodona.trees.nodes import KINDS
from dodona.trees.runtime.blackboard import MAX_KEYS, MAX_LENGTH


class Kept:
    """Global keys in a dict, as JSON: what a database would do."""

    def __init__(self, **values: Any) -> None:
        self.values = {key: json.dumps(value) for key, value in values.items()}
        self.asked: list[list[str]] = []
        self.puts: list[dict[str, Any]] = []

    async def get(self, keys: Iterable[str]) -> Mapping[str, Any]:
        self.asked.append(sorted(keys))
        await asyncio.sleep(0)
        return {key: json.loads(self.values[key]) for key in keys if key in self.values}

    async def put(self, changes: Mapping[str, Any]) -> None:
        await asyncio.sleep(0)
        self.puts.append(dict(changes))
        self.values.update({key: json.dumps(value) for key, value in changes.items()})


class Board:
    """Leaves that note what they see, and a run."""

    def __init__(self) -> None:
        self.registry = Registry(KINDS)
        self.seen: list[Any] = []

        @self.registry.leaf("see")
        def _(board: Any, value: Any) -> None:
            self.seen.append(value)

        @self.registry.leaf("write")
        def _write(board: Any, key: str, value: Any) -> None:
            board[key] = value

        @self.registry.leaf("grow")
        def _grow(board: Any, key: str) -> None:
            board[key].append(len(board[key]))

        @self.registry.leaf("pause")
        async def _pause(board: Any) -> None:
            await asyncio.sleep(0)

        @self.registry.leaf("hang")
        async def _hang(board: Any) -> None:
            await asyncio.Event().wait()

    def load(self, text: str) -> Any:
        return load(text, registry=self.registry, host_keys=("host",))

    async def play(
        self, text: str, values: Mapping[str, Any] | None = None, options: Options | None = None
    ) -> Outcome:
        return await run(self.load(text), values, options)


def tree(schema: str, body: str) -> str:
    return f'(tree "main" :blackboard-schema {{{schema}}} {body})'


# -- types -----------------------------------------------------------------------------------------

HINT = "Change the value, or the key's type in :blackboard-schema."
TYPES: list[tuple[str, Any, str | None]] = [
    # declared, value, what is said against it
    (":x {:type :any}", 1, None),
    (":x {:type :any}", "text", None),
    (":x nil", [1], None),
    (":x nil", {"a": 1}, None),
    (":x {:type :string}", "text", None),
    (":x {:type :string}", None, None),
    (":x {:type :string}", 1, "key ':x' takes a string (got the integer 1)."),
    (':x ""', 1.5, "key ':x' takes a string (got the float 1.5)."),
    (":x {:type :integer}", 5, None),
    (":x {:type :integer}", 1.5, "key ':x' takes an integer (got the float 1.5)."),
    (":x {:type :integer}", True, "key ':x' takes an integer (got the boolean true)."),
    (":x {:type :number}", 1, None),
    (":x {:type :number}", 1.5, None),
    (":x 0", 1.5, None),
    (":x 0", "1", "key ':x' takes a number (got the string \"1\")."),
    (":x 0", False, "key ':x' takes a number (got the boolean false)."),
    (":x false", True, None),
    (":x {:type :boolean}", 0, "key ':x' takes a boolean (got the integer 0)."),
    (":x []", [1], None),
    (":x []", {}, "key ':x' takes a list (got a map)."),
    (":x {:type :list}", "abc", "key ':x' takes a list (got the string \"abc\")."),
    (":x {:type :map}", {"a": 1}, None),
    (":x {:type :map}", [], "key ':x' takes a map (got a list)."),
    (":x {:a 1}", {}, None),
    (":x {:a 1}", 1, "key ':x' takes a map (got the integer 1)."),
    (
        ":x 0",
        "x" * 60,
        f"key ':x' takes a number (got the string \"{'x' * 36}…).",
    ),
]


@pytest.mark.parametrize("way", ["leaf", "set", "host"])
@pytest.mark.parametrize(("schema", "value", "message"), TYPES)
async def test_types(way: str, schema: str, value: Any, message: str | None) -> None:
    """A key takes values of its type, and nil; whoever writes, the refusal says the same."""
    board = Board()
    said = message and f"{message} {HINT}"
    if way == "host":
        if said is None:
            outcome = await board.play(tree(schema, "(succeed)"), {"x": value})
            assert outcome.blackboard["x"] == value
        else:
            with pytest.raises(BlackboardError) as caught:
                await board.play(tree(schema, "(succeed)"), {"x": value})
            assert str(caught.value) == said
        return
    bodies = {
        "leaf": '(write :key "x" :value (blackboard :host))',
        "set": "(set :x (blackboard :host))",
    }
    outcome = await board.play(tree(schema, bodies[way]), {"host": value})
    assert outcome.status is (FAILURE if said else SUCCESS)
    assert (outcome.error or {}).get("message") == said
    if said is None:
        assert outcome.blackboard["x"] == value


async def test_a_refused_value_changes_nothing() -> None:
    """A key keeps its value when another is refused."""
    outcome = await Board().play(tree(":x 5", '(set :x "text")'))
    assert outcome.blackboard["x"] == 5


WRONG_SCHEMAS: list[tuple[str, str]] = [
    (
        ":x {:type :strin}",
        "<text>:1:44: expected one of :any :string :integer :number :boolean :list :map"
        " (got the keyword :strin). Did you mean 'string'?",
    ),
    (
        ":x {:scope :globl}",
        "<text>:1:45: expected one of :tree :subtree :global (got the keyword :globl)."
        " Did you mean 'global'?",
    ),
    (
        ":x {:type :list :default 5}",
        f"<text>:1:37: key ':x' takes a list (got the integer 5). {HINT}",
    ),
    (
        ":x {:type :integer :default 1.5}",
        f"<text>:1:37: key ':x' takes an integer (got the float 1.5). {HINT}",
    ),
    (
        '"x" 1',
        '<text>:1:34: a blackboard key is a keyword (got the string "x").',
    ),
    (":_x 1", "<text>:1:34: key ':_x' is reserved for the runtime."),
    (
        ":x 1 :x 2",
        "<text>:1:39: the key :x is already in the map, at <text>:1:34. Remove one of them.",
    ),
]


@pytest.mark.parametrize(("schema", "message"), WRONG_SCHEMAS)
def test_wrong_schemas(schema: str, message: str) -> None:
    """A schema's mistake is found at load, at its place."""
    with pytest.raises(DodonaError) as caught:
        load(tree(schema, "(succeed)"), registry=Registry(KINDS))
    assert str(caught.value).startswith(message)
    assert caught.value.hint


# -- keys nobody declares --------------------------------------------------------------------------


def test_an_undeclared_key_is_a_warning() -> None:
    """A key in no schema loads with one warning, at its place, with the nearest right word."""
    text = tree(":turn 0", "(sequence (condition (= (blackboard :trun) 0)) (set :zzz 1))")
    loaded = load(text, registry=Registry(KINDS))
    read, written = text.index(":trun") + 1, text.index("(set") + 1
    assert [str(warning) for warning in loaded.warnings] == [
        f"<text>:1:{read}: key ':trun' is not in any schema. Did you mean 'turn'?",
        f"<text>:1:{written}: key ':zzz' is not in any schema. Declare it in :blackboard-schema.",
    ]
    _, line, caret = as_text(loaded.warnings[0]).splitlines()
    assert line[caret.index("^") :].startswith(":trun")


@pytest.mark.parametrize("declared", ["reads", "writes", "host", "subtree", "used", "reserved"])
def test_declared_elsewhere(declared: str) -> None:
    """A leaf's reads and writes, the host, a subtree's schema and the runtime declare keys, too."""
    registry = Registry(KINDS)
    keys = {declared: ("key",)} if declared in ("reads", "writes") else {}
    registry.leaf("x", **keys)(lambda board: None)
    body = {
        "subtree": "(subtree s :blackboard-schema {:key 1} (condition (blackboard :key)))",
        "used": '(sequence (condition (blackboard :key)) (subtree "used"))',
        "reserved": "(condition (blackboard :_error))",
    }.get(declared, "(sequence (x) (condition (blackboard :key)))")
    text = f'(tree "main" {body}) (tree "used" :blackboard-schema {{:key 1}} (succeed))'
    host = ("key",) if declared == "host" else ()
    assert load(text, registry=registry, host_keys=host).warnings == ()


async def test_reading_what_is_not_there() -> None:
    """Reading a key that no scope has fails the node, and names the nearest one."""
    outcome = await Board().play(tree(":turn 0", "(condition (blackboard :trun))"))
    assert outcome.error == {
        "node": "condition",
        "type": "KeyMissing",
        "message": "no key ':trun' on the blackboard. Did you mean 'turn'?",
    }


# -- reserved keys and bounds ----------------------------------------------------------------------


@pytest.mark.parametrize("key", ["_error", "_item", "_status", "_anything"])
@pytest.mark.parametrize("way", ["leaf", "host"])
async def test_reserved_keys(key: str, way: str) -> None:
    """Keys that begin with `_` are the runtime's: nobody else may write them."""
    board = Board()
    message = f"key ':{key}' is reserved for the runtime. Use a name without '_' in front."
    if way == "host":
        with pytest.raises(BlackboardError) as caught:
            await board.play('(tree "main" (succeed))', {key: 1})
        assert str(caught.value) == message
        return
    outcome = await board.play(f'(tree "main" (write :key "{key}" :value 1))')
    assert outcome.error
    assert outcome.error["message"] == message


def test_set_refuses_reserved_keys_at_load() -> None:
    """`(set :_error …)` does not load."""
    with pytest.raises(DodonaError, match="key ':_error' is reserved for the runtime"):
        load('(tree "main" (set :_error 1))', registry=Registry(KINDS))


async def test_a_key_cannot_be_deleted() -> None:
    """A leaf cannot delete a key; the node fails and the key stays."""
    board = Board()

    @board.registry.leaf("drop")
    def _(bb: Any) -> None:
        del bb["x"]

    outcome = await board.play(tree(":x 1", "(drop)"))
    assert (outcome.status, outcome.blackboard["x"]) == (FAILURE, 1)


@pytest.mark.parametrize("key", [1, None, ("a",), ""])
async def test_keys_are_text(key: Any) -> None:
    """A key that is no text is refused; the node fails and the run goes on."""
    board = Board()

    @board.registry.leaf("odd")
    def _(bb: Any) -> None:
        bb[key] = 1

    outcome = await board.play(tree(":x 1", "(odd)"))
    assert outcome.status is FAILURE


async def test_the_number_of_keys_is_bounded() -> None:
    """A blackboard takes so many keys and no more; the node that wants more fails."""
    board = Board()

    @board.registry.leaf("fill")
    def _(bb: Any) -> None:
        for number in range(MAX_KEYS + 10):
            bb[f"key{number}"] = number

    outcome = await board.play('(tree "main" (fill))')
    assert outcome.status is FAILURE
    assert outcome.error
    assert outcome.error["type"] == "BlackboardError"
    assert len(outcome.blackboard) <= MAX_KEYS + 1


@pytest.mark.parametrize("sort", [str, list, bytes])
async def test_the_length_of_a_value_is_bounded(sort: type) -> None:
    """A text or list longer than the bound is refused."""
    board = Board()
    long = {str: "x", bytes: b"x"}.get(sort, [None]) * (MAX_LENGTH + 1)  # type: ignore[operator]

    @board.registry.leaf("swell")
    def _(bb: Any) -> None:
        bb["x"] = long

    outcome = await board.play(tree(":x nil", "(swell)"))
    assert outcome.status is FAILURE
    assert outcome.blackboard["x"] is None


async def test_snapshot_is_short() -> None:
    """A snapshot has every visible key, and costs little whatever the values are."""
    outcome = await Board().play(
        tree(":n 1 :b true :nothing nil :long nil :deep nil", "(succeed)"),
        {"long": "x" * 1_000_000, "deep": [[["y" * 1000] * 1000] * 100]},
    )
    shot = outcome.blackboard.snapshot()
    assert {key: shot[key] for key in ("n", "b", "nothing")} == {"n": 1, "b": True, "nothing": None}
    assert set(shot) == {"n", "b", "nothing", "long", "deep"}
    assert len(json.dumps(shot)) < 1000


async def test_snapshot_of_a_hostile_value() -> None:
    """A value whose repr raises, or that holds itself, does not spoil a snapshot."""

    class Hostile:
        def __repr__(self) -> str:
            raise ValueError("no")

    circle: list[Any] = []
    circle.append(circle)
    outcome = await Board().play(tree(":x nil :y nil", "(succeed)"), {"x": Hostile(), "y": circle})
    assert set(outcome.blackboard.snapshot()) == {"x", "y"}


# -- runs share nothing ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "body"),
    [
        (":xs []", '(grow :key "xs")'),
        (":xs {:default [] :type :list}", '(grow :key "xs")'),
        (
            ":out nil",
            '(subtree s :blackboard-schema {:xs []} (sequence (grow :key "xs")'
            " (set :out (blackboard :xs))))",
        ),
    ],
)
async def test_runs_share_no_default(schema: str, body: str) -> None:
    """A default that one run changes in place is fresh in the next."""
    board = Board()
    loaded = board.load(tree(schema, body))
    key = "xs" if ":xs" in schema else "out"
    outcomes = [await run(loaded) for _ in range(3)]
    assert [outcome.blackboard[key] for outcome in outcomes] == [[0], [0], [0]]


async def test_runs_share_no_nested_default() -> None:
    """Also what is inside a default is fresh."""
    board = Board()

    @board.registry.leaf("deep")
    def _(bb: Any) -> None:
        bb["m"]["list"].append(1)

    loaded = board.load(tree(":m {:list []}", "(deep)"))
    await run(loaded)
    assert (await run(loaded)).blackboard["m"] == {"list": [1]}


# -- scopes ----------------------------------------------------------------------------------------

SCOPES: list[tuple[str, str, list[Any]]] = [
    (
        "a subtree's own key shadows ours, and is gone afterwards",
        '(tree "main" :blackboard-schema {:x 1} (sequence'
        " (subtree s :blackboard-schema {:x 5} (sequence (see :value (blackboard :x)) (set :x 6)"
        " (see :value (blackboard :x)))) (see :value (blackboard :x))))",
        [5, 6, 1],
    ),
    (
        "it is fresh each time",
        '(tree "main" (repeater :max-iterations 2 (subtree s :blackboard-schema {:x 0}'
        " (sequence (set :x (+ 1 (blackboard :x))) (see :value (blackboard :x))))))",
        [1, 1],
    ),
    (
        "other writes go outwards",
        '(tree "main" :blackboard-schema {:y 0} (sequence (subtree s :blackboard-schema {:x 0}'
        " (set :y 7)) (see :value (blackboard :y))))",
        [7],
    ),
    (
        "inner subtrees see the outer one's key",
        '(tree "main" (subtree o :blackboard-schema {:x 3} (subtree i (sequence'
        " (set :x (+ 1 (blackboard :x))) (see :value (blackboard :x))))))",
        [4],
    ),
    (
        "a tree that is used by name has fresh :subtree keys each time, and shares the others",
        '(tree "main" (sequence (subtree "u") (subtree "u") (see :value (blackboard :sum))))'
        ' (tree "u" :blackboard-schema {:d {:default 0 :scope :subtree} :sum 0} (sequence'
        " (set :d (+ 1 (blackboard :d))) (set :sum (+ (blackboard :sum) (blackboard :d)))))",
        [2],
    ),
    (
        "and they are gone when it has ended",
        '(tree "main" (selector (sequence (subtree "u") (see :value (blackboard :d)))'
        ' (see :value "none"))) (tree "u" :blackboard-schema {:d {:default 9 :scope :subtree}}'
        " (succeed))",
        ["none"],
    ),
    (
        "its :finally still sees them",
        '(tree "main" (subtree "u")) (tree "u" :finally (see :value (blackboard :d))'
        " :blackboard-schema {:d {:default 9 :scope :subtree}} (set :d 8))",
        [8],
    ),
    (
        "a key of the same name in the tree that uses it is another",
        '(tree "main" :blackboard-schema {:d 1} (sequence (subtree "u") (see :value'
        ' (blackboard :d)))) (tree "u" :blackboard-schema {:d {:default 9 :scope :subtree}}'
        " (set :d 8))",
        [1],
    ),
    (
        "also when a halt ends it",
        '(tree "main" :blackboard-schema {:x 1} (sequence (force-success (timeout :seconds 0.002'
        " (subtree s :blackboard-schema {:x 5} (sequence (set :x 6) (hang)))))"
        " (see :value (blackboard :x))))",
        [1],
    ),
    (
        "a recursion of parallel children over a subtree's key stays in it",
        '(tree "main" :blackboard-schema {:x 1} (sequence (subtree s :blackboard-schema {:x 5}'
        " (sequence (parallel (set :x 6)) (see :value (blackboard :x))))"
        " (see :value (blackboard :x))))",
        [6, 1],
    ),
]


@pytest.mark.parametrize(("rule", "text", "seen"), SCOPES, ids=[row[0] for row in SCOPES])
async def test_scopes(rule: str, text: str, seen: list[Any]) -> None:
    """Reads look outwards, writes stay where the key belongs."""
    board = Board()
    await board.play(text)
    assert board.seen == seen, rule


# -- parallel children -----------------------------------------------------------------------------

PARALLEL: list[tuple[str, str, Any]] = [
    # children, merge, x afterwards (it was 0)
    ("(set :x 1) (set :x 2)", ":last-wins", 2),
    ("(sequence (pause) (set :x 1)) (set :x 2)", ":last-wins", 2),
    ("(set :x 1) (see :value (blackboard :x))", ":last-wins", 1),
    ("(set :x 1) (set :x 2)", ":collect", [1, 2]),
    ("(sequence (pause) (set :x 1)) (set :x 2)", ":collect", [1, 2]),
    ("(set :x 1) (succeed)", ":collect", [1]),
    ("(sequence (set :x 1) (set :x 3)) (set :x 2)", ":collect", [3, 2]),
    ("(for-each [7 8 9] (set :x (blackboard :_item)))", ":collect", [7, 8, 9]),
    ("(set :x 1) (set :x 1)", ":fail-on-conflict", 1),
    ("(set :x 1) (succeed)", ":fail-on-conflict", 1),
    ("(set :x 0) (set :x nil)", ":fail-on-conflict", "failure"),
    ("(set :x 1) (set :x 2)", ":fail-on-conflict", "failure"),
    ("(set :x 1) (set :x true)", ":fail-on-conflict", "failure"),
]


@pytest.mark.parametrize(("children", "merge", "value"), PARALLEL)
async def test_merge(children: str, merge: str, value: Any) -> None:
    """What the children wrote is put together in the order of the children, not of their ends."""
    outcome = await Board().play(
        tree(":x {:type :any :default 0}", f"(parallel :merge {merge} {children})")
    )
    if value == "failure":
        assert outcome.status is FAILURE
        assert outcome.blackboard["x"] == 0
        assert outcome.error
        assert outcome.error["message"] == (
            "two children of a parallel wrote different values to ':x'. Use :merge :collect or"
            " :last-wins, or write to different keys."
        )
    else:
        assert (outcome.status, outcome.blackboard["x"]) == (SUCCESS, value)


async def test_collect_keeps_to_the_schema() -> None:
    """What a merge would write, a key may refuse like any other value: the parallel fails."""
    outcome = await Board().play(tree(":x 0", "(parallel :merge :collect (set :x 1) (set :x 2))"))
    assert (outcome.status, outcome.blackboard["x"]) == (FAILURE, 0)
    assert outcome.error
    assert outcome.error["message"] == f"key ':x' takes a number (got a list). {HINT}"


async def test_collected_errors_stay_errors() -> None:
    """`_error` is one error after any merge."""
    for merge in (":collect", ":last-wins", ":fail-on-conflict"):
        board = Board()
        outcome = await board.play(
            tree(
                ":x 0",
                f"(parallel :policy :continue-on-failure :merge {merge}"
                ' (set :x "a") (set :x "b") (condition (blackboard :missing)))',
            )
        )
        assert outcome.status is SUCCESS
        assert isinstance(outcome.blackboard["_error"], dict)


async def test_children_do_not_see_each_other() -> None:
    """A child of a parallel sees what was there before, and its own writes; not its siblings'."""
    board = Board()
    await board.play(
        tree(
            ":x 0",
            "(parallel (sequence (set :x 1) (pause) (pause) (see :value (blackboard :x)))"
            " (sequence (pause) (see :value (blackboard :x)) (set :x 2)))",
        )
    )
    assert sorted(board.seen) == [0, 1]


async def test_what_a_halted_child_wrote_is_dropped() -> None:
    """Only children that ended by themselves are merged, also those that failed."""
    outcome = await Board().play(
        tree(
            ":x 0 :y 0",
            "(parallel :policy :require-one (sequence (set :x 1) (hang))"
            " (sequence (set :y 1) (fail)) (wait :seconds 0.002))",
        )
    )
    assert (outcome.blackboard["x"], outcome.blackboard["y"]) == (0, 1)


# -- global keys -----------------------------------------------------------------------------------

COUNTED = tree(
    ":count {:default 0 :scope :global} :local 0",
    "(sequence (set :count (+ 1 (blackboard :count))) (set :local 1))",
)


async def test_globals_are_kept() -> None:
    """A global key goes on where the last run left it; others do not; only changes are put."""
    kept = Kept()
    options = Options(globals=kept)
    board = Board()
    counts = [(await board.play(COUNTED, None, options)).blackboard["count"] for _ in range(3)]
    assert counts == [1, 2, 3]
    assert kept.puts == [{"count": 1}, {"count": 2}, {"count": 3}]
    assert kept.asked == [["count"]] * 3


async def test_unchanged_globals_are_not_put() -> None:
    """A run that changes no global key writes none."""
    kept = Kept(count=4)
    text = tree(":count {:default 0 :scope :global}", "(see :value (blackboard :count))")
    board = Board()
    await board.play(text, None, Options(globals=kept))
    assert (board.seen, kept.puts) == ([4], [])


async def test_globals_changed_in_place_are_put() -> None:
    """A global list that a leaf appends to has changed."""
    kept = Kept(seen=[7])
    text = tree(":seen {:type :list :scope :global}", '(grow :key "seen")')
    await Board().play(text, None, Options(globals=kept))
    assert kept.puts == [{"seen": [7, 1]}]


@pytest.mark.parametrize(("old", "new"), [(1, "true"), (0, "false"), ([1], "[true]")])
async def test_a_number_that_becomes_a_boolean_is_put(old: Any, new: str) -> None:
    """A boolean is no number: a global key that goes from one to the other has changed."""
    kept = Kept(key=old)
    text = tree(":key {:type :any :scope :global}", f"(set :key {new})")
    await Board().play(text, None, Options(globals=kept))
    assert [json.dumps(put) for put in kept.puts] == [f'{{"key": {new}}}']


async def test_globals_are_a_snapshot() -> None:
    """What others put while a run goes on is not seen by it."""
    kept = Kept(count=1)
    board = Board()
    text = tree(
        ":count {:default 0 :scope :global}", "(sequence (pause) (see :value (blackboard :count)))"
    )
    driven = asyncio.create_task(Run(board.load(text), None, Options(globals=kept)).execute())
    for _ in range(3):
        await asyncio.sleep(0)
    await kept.put({"count": 99})
    await driven
    assert board.seen == [1]


async def test_globals_without_a_store() -> None:
    """Without a store a global key is one of the tree: its default each time."""
    board = Board()
    counts = [(await board.play(COUNTED)).blackboard["count"] for _ in range(2)]
    assert counts == [1, 1]


async def test_a_stored_value_of_another_type_is_told() -> None:
    """A stored value that the schema no longer takes ends the run, and says where it is from."""
    kept = Kept(count="many")
    with pytest.raises(TreeError) as caught:
        await Board().play(COUNTED, None, Options(globals=kept))
    assert str(caught.value) == (
        "a stored global key does not fit tree main: key ':count' takes a number "
        '(got the string "many"). Change the schema, or the stored value.'
    )
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize("how", ["failure", "cancel", "task"])
async def test_globals_are_put_however_it_ends(how: str) -> None:
    """A run that fails or is cancelled keeps what it had written to global keys."""
    kept = Kept()
    end = "(fail)" if how == "failure" else "(hang)"
    text = tree(":count {:default 0 :scope :global}", f"(sequence (set :count 5) {end})")
    made = Run(Board().load(text), None, Options(globals=kept))
    driven = asyncio.create_task(made.execute())
    for _ in range(10):
        await asyncio.sleep(0)
    if how == "cancel":
        made.cancel()
    if how == "task":
        driven.cancel()
    await asyncio.wait([driven], timeout=30)
    assert kept.puts == [{"count": 5}]
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_globals_of_a_used_tree() -> None:
    """The global keys of a tree that is used by name are loaded and put as well."""
    kept = Kept(count=2)
    text = (
        '(tree "main" (subtree "u")) (tree "u" :blackboard-schema'
        " {:count {:default 0 :scope :global}} (set :count (+ 1 (blackboard :count))))"
    )
    await Board().play(text, None, Options(globals=kept))
    assert kept.puts == [{"count": 3}]


async def test_host_values_win_over_stored_ones() -> None:
    """A value that the host passes to this very run is not replaced by a stored one."""
    kept = Kept(count=2)
    board = Board()
    text = tree(":count {:default 0 :scope :global}", "(see :value (blackboard :count))")
    await board.play(text, {"count": 50}, Options(globals=kept))
    assert board.seen == [50]


@pytest.mark.parametrize("how", ["run", "task"])
async def test_cancelled_while_globals_are_loaded(how: str) -> None:
    """A run that is cancelled before its global keys have arrived starts nothing."""
    board = Board()
    kept = Kept()
    text = tree(":count {:default 0 :scope :global}", "(see :value 1)")
    made = Run(board.load(text), None, Options(globals=kept))
    driven = asyncio.create_task(made.execute())
    await asyncio.sleep(0)
    assert kept.asked
    made.cancel() if how == "run" else driven.cancel()
    await asyncio.wait([driven], timeout=30)
    assert driven.cancelled() is (how == "task")
    assert (board.seen, kept.puts) == ([], [])
    assert asyncio.all_tasks() == {asyncio.current_task()}

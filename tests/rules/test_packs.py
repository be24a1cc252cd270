"""Packs: what they bring, and what they need."""

from __future__ import annotations

from pathlib import Path

import pytest

from dodona.core.domain.rules import RuleOverrides
from dodona.core.errors import BadRequest
from dodona.rules import RuleBook, load_packs
from tests.rules.ruling import NOTHING, fire, rule

SETTINGS = '[settings.most]\ntype = "int"\ndefault = 3\nmax = 9\n'


def pack(
    folder: Path,
    name: str,
    *,
    version: str = "1.0",
    requires: str = "",
    settings: str = "",
    rules: tuple[str, ...] = (),
) -> Path:
    home = folder / name
    (home / "rules").mkdir(parents=True)
    needs = f"requires = {{ {requires} }}\n" if requires else ""
    text = f'[pack]\nid = "{name}"\nversion = "{version}"\n{needs}{settings}'
    (home / "pack.toml").write_text(text)
    for number, each in enumerate(rules):
        (home / f"rules/{number}.toml").write_text(each)
    return home


def test_a_pack_brings_its_parts(tmp_path: Path) -> None:
    """Rules, subscribers and trees are folders of the pack."""
    home = pack(tmp_path, "oak", version="1.2")
    (found,), wrong = load_packs(tmp_path)
    assert wrong == []
    assert (found.id, found.version, found.folder) == ("oak", "1.2", home)
    assert (found.rules, found.subscribers, found.trees) == (
        home / "rules",
        home / "subscribers",
        home / "trees",
    )


def test_rules_of_a_pack_are_its_own(tmp_path: Path) -> None:
    """Two packs may have a rule of the same name; each sees its own state and emits its own."""
    emit = (
        'kind = "emit_event"\ntype = "plugin.{}.x"\n'
        'payload = {{ n = {{ cel = "context.state.n" }} }}'
    )
    for name in ("elm", "oak"):
        pack(tmp_path, name, rules=(rule(action=emit.format(name)),))
    book = RuleBook(pack_folders=[tmp_path], builtin=NOTHING)
    assert book.problems() == []
    fired = fire(book, "on_turn_start", state={"oak": {"n": 1}, "elm": {"n": 2}})
    assert [(each.rule, each.pack, each.action.payload) for each in fired] == [  # type: ignore[union-attr]
        ("elm.one", "elm", {"n": 2}),
        ("oak.one", "oak", {"n": 1}),
    ]


def test_a_pack_emits_nothing_of_another(tmp_path: Path) -> None:
    """What a pack makes up begins with its own name."""
    pack(tmp_path, "oak", rules=(rule(action='kind = "emit_event"\ntype = "plugin.elm.x"'),))
    assert RuleBook(pack_folders=[tmp_path], builtin=NOTHING).problems() == [
        f"{tmp_path}/oak/rules/0.toml:7: action.type must start with plugin.oak. (got "
        '"plugin.elm.x").'
    ]


def test_settings_are_shared(tmp_path: Path) -> None:
    """Settings of a pack are parameters of all its rules, set for the pack or for one of them."""
    pack(
        tmp_path,
        "oak",
        settings=SETTINGS,
        rules=(
            rule("a", condition='"params.most == 5"'),
            rule("b", condition='"params.most == 5"'),
        ),
    )
    book = RuleBook(pack_folders=[tmp_path], builtin=NOTHING)
    for_all = RuleOverrides(parameters={"oak": {"most": 5}})
    for_one = RuleOverrides(parameters={"oak": {"most": 4}, "oak.b": {"most": 5}})
    assert [each.rule for each in fire(book, "on_turn_start", choices=for_all)] == [
        "oak.a",
        "oak.b",
    ]
    assert [each.rule for each in fire(book, "on_turn_start", choices=for_one)] == ["oak.b"]
    book.check_parameters("oak", {"most": 9})
    with pytest.raises(BadRequest) as raised:
        book.check_parameters("oak.a", {"most": 10})
    assert str(raised.value) == "oak.a.most must be a whole number, 9 or less (got 10)."


def test_a_setting_is_not_declared_twice(tmp_path: Path) -> None:
    """A rule has no parameter of the name of a setting of its pack."""
    text = rule() + '[parameters.most]\ntype = "int"\ndefault = 3\n'
    pack(tmp_path, "oak", settings=SETTINGS, rules=(text,))
    assert RuleBook(pack_folders=[tmp_path], builtin=NOTHING).problems() == [
        f"{tmp_path}/oak/rules/0.toml:8: parameters.most is already a setting of the pack."
    ]


UNMET = [
    ('dodona = ">=99"', 'pack.requires.dodona is not met: 0.1.0 is installed (got ">=99").'),
    ('elm = "*"', "pack.requires.elm is not installed. Add that pack first."),
    (
        'dodona = "1.x"',
        'pack.requires.dodona must be a version range (got "1.x"). Such as >=1.2, <2; or * '
        "for any.",
    ),
]


@pytest.mark.parametrize(("requires", "told"), UNMET)
def test_what_is_not_met_is_not_loaded(tmp_path: Path, requires: str, told: str) -> None:
    """A pack whose requirement is not met is reported, and brings nothing."""
    pack(tmp_path, "oak", requires=requires, rules=(rule(),))
    book = RuleBook(pack_folders=[tmp_path], builtin=NOTHING)
    assert book.problems() == [f"{tmp_path}/oak/pack.toml:4: {told}"]
    assert (book.list(), book.packs()) == ([], [])


def test_what_is_met_is_loaded(tmp_path: Path) -> None:
    """A pack may need Dodona and others, in ranges of versions."""
    pack(tmp_path, "elm", version="1.4.2")
    pack(tmp_path, "oak", requires='dodona = ">=0.1, <2", elm = ">=1.4, <1.5"', rules=(rule(),))
    book = RuleBook(pack_folders=[tmp_path], builtin=NOTHING)
    assert book.problems() == []
    assert [each.id for each in book.packs()] == ["elm", "oak"]


def test_who_needs_what_is_dropped_is_dropped(tmp_path: Path) -> None:
    """A pack that needs one that is not loaded is not loaded either."""
    pack(tmp_path, "elm", requires='dodona = ">=99"')
    pack(tmp_path, "oak", requires='elm = "*"')
    found, wrong = load_packs(tmp_path)
    assert list(found) == []
    assert len(wrong) == 2


def test_a_slip_in_a_manifest_turns_nothing_off(tmp_path: Path) -> None:
    """A manifest that was right and is wrong now keeps its pack; one that is gone does not."""
    home = pack(tmp_path, "oak", rules=(rule(),))
    book = RuleBook(pack_folders=[tmp_path], builtin=NOTHING)
    (home / "pack.toml").write_text("[pack")
    book.reload()
    assert [each["id"] for each in book.list()] == ["oak.one"]
    assert len(book.problems()) == 1
    (home / "pack.toml").write_text('[pack]\nid = "oak"\nversion = "1"\nrequires = { elm = "*" }')
    book.reload()
    assert book.list() == []


def test_names_of_packs_are_unique(tmp_path: Path) -> None:
    """Two packs of one name, or one that takes ours, are mistakes."""
    pack(tmp_path, "dodona")
    home = pack(tmp_path, "oak")
    twin = pack(tmp_path, "twin")
    (twin / "pack.toml").write_bytes((home / "pack.toml").read_bytes())
    found, wrong = load_packs(tmp_path)
    assert [each.id for each in found] == ["oak"]
    assert [str(each) for each in wrong] == [
        f'{tmp_path}/dodona/pack.toml:2: pack.id is reserved (got "dodona").',
        f'{tmp_path}/twin/pack.toml:2: pack.id already exists (got "oak"). The first is '
        f"{home}/pack.toml.",
    ]


def test_no_folder_has_no_packs(tmp_path: Path) -> None:
    """A folder that is not there is as good as an empty one."""
    assert load_packs(tmp_path / "none") == ([], [])

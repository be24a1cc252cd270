"""Subscribers and rules from folders and packs, as the settings name them."""

from __future__ import annotations

from pathlib import Path

from dodona.app.config.config import load_config
from dodona.app.notifications import load_rules, load_subscribers

RULE = '[rule]\nid = "hello"\ntrigger = "on_query_start"\n[action]\nkind = "log"\nmessage = "hi"\n'
SUBSCRIBER = (
    '[subscriber]\nid = "{}"\nname = "Mine"\n[events]\ntypes = ["query.start"]\n'
    '[output]\ninject_at = "turn_start"\ntemplate = "hi"\n'
)


def add_pack(home: Path, name: str, requires: str = "") -> None:
    folder = home / "packs" / name
    for part, text in (("rules/hello", RULE), ("subscribers/it", SUBSCRIBER.format(f"it-{name}"))):
        file = folder / f"{part}.toml"
        file.parent.mkdir(parents=True)
        file.write_text(text)
    needs = f"[pack.requires]\n{requires}\n" if requires else ""
    (folder / "pack.toml").write_text(f'[pack]\nid = "{name}"\nversion = "1.0.0"\n{needs}')


def test_a_pack_brings_rules_and_subscribers(tmp_path: Path) -> None:
    """One whose requirements are not met brings neither, and says so."""
    add_pack(tmp_path, "good")
    add_pack(tmp_path, "bad", 'dodona = ">=99"')
    config = load_config({"DODONA_HOME": str(tmp_path)})
    rules, subscribers = load_rules(config), load_subscribers(config)
    assert "good.hello" in [rule["id"] for rule in rules.list()]
    assert "bad.hello" not in [rule["id"] for rule in rules.list()]
    ids = [subscriber["id"] for subscriber in subscribers.list()]
    assert "it-good" in ids
    assert "it-bad" not in ids
    (problem,) = rules.problems()
    assert "dodona" in problem


def test_folders_that_the_settings_name(tmp_path: Path) -> None:
    """Beside what is shipped."""
    for name, text in (("r", RULE), ("s", SUBSCRIBER.format("mine"))):
        (tmp_path / name).mkdir()
        (tmp_path / name / "one.toml").write_text(text)
    config = load_config(
        {
            "DODONA_HOME": str(tmp_path / "home"),
            "DODONA_RULES__FOLDER": str(tmp_path / "r"),
            "DODONA_SUBSCRIBERS__FOLDER": str(tmp_path / "s"),
        }
    )
    assert {"hello", "token_budget"} <= {rule["id"] for rule in load_rules(config).list()}
    ids = {subscriber["id"] for subscriber in load_subscribers(config).list()}
    assert {"mine", "tool_failure"} <= ids

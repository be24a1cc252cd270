"""`dodona onboard`, run as people and scripts run it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from tests.cli.fake_terminal import at_terminal
from tests.cli.running import DODONA, PATIENCE, dodona, given
from tests.cli.small_model import small_model

KEY = "sk-ant-of-this-example"


def onboard(
    folder: Path, *words: str, typed: str = "", before: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run it with this on its standard input; `before` is said to the shell that starts it."""
    if not before:
        return dodona(folder, "onboard", *words, typed=typed, **environment)
    return subprocess.run(  # noqa: S603 - our own command
        ["/bin/sh", "-c", f'{before}\nexec "$@"', "sh", DODONA, "onboard", *words],
        input=typed,
        capture_output=True,
        text=True,
        cwd=folder,
        env=given(folder, environment),
        timeout=PATIENCE,
        check=False,
    )


def kept(folder: Path) -> dict[str, str]:
    found = [path for path in folder.rglob("*") if path.is_file()]
    return {str(p.relative_to(folder)): p.read_text(encoding="utf-8") for p in found}


def test_a_person_is_asked_and_the_key_not_shown(tmp_path: Path) -> None:
    """A number or a name, the key, the model; what is typed as a key never comes back."""
    with at_terminal(tmp_path, "onboard", "--no-check") as terminal:
        seen = terminal.until("Number or name [anthropic]: ")
        assert "1  anthropic" in seen
        terminal.type("2\n")
        seen = terminal.until("API key for openai (hidden): ")
        terminal.type(f"{KEY}\n")
        seen = terminal.until("Model [")
        terminal.type("gpt-4o\n")
        seen += terminal.until('Try: dodona ask "…"')
        assert terminal.ended() == 0
    assert KEY not in seen
    assert kept(tmp_path) == {
        ".dodona/config.toml": '[agent]\nprovider = "openai"\nmodel = "gpt-4o"\n',
        ".dodona/credentials/openai": f"{KEY}\n",
    }
    with at_terminal(tmp_path, "onboard", "--no-check", "--provider", "openai") as terminal:
        terminal.until("Enter keeps the key in ")
        terminal.type("\n")
        terminal.until("gpt-4o")
        assert terminal.ended() == 0
    assert kept(tmp_path)[".dodona/credentials/openai"] == f"{KEY}\n"


def test_who_goes_away_has_changed_nothing(tmp_path: Path) -> None:
    """By Ctrl-C at the key, or Ctrl-D at the first question."""
    with at_terminal(tmp_path, "onboard", "--no-check", "--provider", "openai") as terminal:
        terminal.until("API key for openai")
        terminal.type("\x03")
        assert terminal.ended() == 130
    with at_terminal(tmp_path, "onboard", "--no-check") as terminal:
        terminal.until("Number or name")
        terminal.type("\x04")
        terminal.until("no input. Nothing was changed.")
        assert terminal.ended() == 2
    assert kept(tmp_path) == {}


def test_a_script_needs_nobody(tmp_path: Path) -> None:
    """The key comes from standard input; what comes before it is told."""
    done = onboard(
        tmp_path,
        "--provider",
        "anthropic",
        "--key-stdin",
        "--no-check",
        "--json",
        typed=f"{KEY}\n",
        ANTHROPIC_API_KEY="of-the-environment",
    )
    assert (done.returncode, done.stderr) == (0, "")
    home = tmp_path / ".dodona"
    assert json.loads(done.stdout) == {
        "provider": "anthropic",
        "model": "claude-sonnet-5-5",
        "key": str(home / "credentials" / "anthropic"),
        "config": str(home / "config.toml"),
        "notes": ["ANTHROPIC_API_KEY is set and overrides this key."],
        "request": None,
    }
    done = onboard(
        tmp_path, "--provider", "openai", "--key-from", "env:WORK", "--no-check", WORK=KEY
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert kept(home)["config.toml"] == '[agent]\nprovider = "openai"\napi_key = "env:WORK"\n'


def test_nobody_to_ask(tmp_path: Path) -> None:
    """It does not wait for an answer that cannot come, and takes no empty key."""
    done = onboard(tmp_path)
    assert (done.returncode, done.stderr) == (
        2,
        "cannot prompt without a terminal. Use --provider NAME.\n",
    )
    done = onboard(tmp_path, "--provider", "openai", "--key-stdin", typed="\n")
    assert (done.returncode, done.stderr) == (2, "the key is empty. Nothing was changed.\n")
    done = onboard(tmp_path, "--provider", "openai")
    assert "openai needs an API key." in done.stderr
    assert kept(tmp_path) == {}


def test_the_model_is_asked(tmp_path: Path) -> None:
    """With the key that was given; what the request cost is shown, also as JSON."""
    with small_model() as model:
        words = ("--provider", "openai-compatible", "--base-url", model.url, "--model", "oak")
        done = onboard(tmp_path, *words, "--key-stdin", typed=KEY)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.splitlines()[-2:] == [
            "The model answered one request (42 tokens, unknown price).",
            'Try: dodona ask "…"',
        ]
        done = onboard(tmp_path, *words, "--json")
        assert json.loads(done.stdout)["request"] == {"tokens": 42, "cost_usd": None}
    assert [key for key, _ in model.requests] == [f"Bearer {KEY}"] * 2
    done = onboard(tmp_path, "--provider", "extractive", "--json")
    assert (done.returncode, json.loads(done.stdout)["request"]) == (0, None)


def test_a_key_that_the_provider_rejects_is_an_error(tmp_path: Path) -> None:
    """The settings stay; the error names the provider and what to do."""
    with small_model(401) as model:
        words = ("--provider", "openai-compatible", "--base-url", model.url, "--model", "oak")
        done = onboard(tmp_path, *words, "--key-stdin", typed=KEY)
    assert (done.returncode, done.stderr) == (
        5,
        "openai-compatible rejected the API key (401): no. Check the API key. "
        "The settings are saved. To change them, run dodona onboard again.\n",
    )
    assert 'model = "oak"' in kept(tmp_path)[".dodona/config.toml"]
    assert "Try:" not in done.stdout


def test_a_full_disk_leaves_all_as_it_was(tmp_path: Path) -> None:
    """No stack trace, no half of anything, and no key in what is told."""
    words = ("--provider", "openai", "--key-stdin", "--no-check")
    assert onboard(tmp_path, *words, typed=KEY).returncode == 0
    before = kept(tmp_path)
    words = ("--provider", "gemini", "--key-stdin")
    done = onboard(tmp_path, *words, typed="another-of-this", before="ulimit -f 0")
    assert done.returncode == 3
    assert done.stderr.endswith("cannot write: File too large. The old content is unchanged.\n")
    assert "another-of-this" not in done.stderr + done.stdout
    assert kept(tmp_path) == before
    assert sorted(os.listdir(tmp_path / ".dodona")) == ["config.toml", "credentials"]

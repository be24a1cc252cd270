"""Who answers, set up with a key: both are written or neither is, and the key stays hidden."""

from __future__ import annotations

import os
import resource
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dodona.app.config.config import load_config
from dodona.app.models.credentials import MAX_KEY_LENGTH, Credentials
from dodona.app.models.onboarding import (
    PROVIDER_CHOICES,
    Onboarding,
    OnboardingRequest,
    OnboardingResult,
)
from dodona.core.errors import BadRequest, ConfigError
from dodona.net.redactor import Redactor

KEY = "sk-ant-of-this-example"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder and a home of their own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


def set_up(home: Path, wish: OnboardingRequest, **environment: str) -> OnboardingResult:
    environment = {"DODONA_HOME": str(home), **environment}
    return Onboarding(environment, None, Redactor()).set_up(wish)


def key_of(home: Path, provider: str, **environment: str) -> tuple[str, str]:
    """The key that would be used, and where it is."""
    environment = {"DODONA_HOME": str(home), **environment}
    found = Credentials(load_config(environment), environment, Redactor()).of_provider(provider)
    assert found
    return found.reveal(), found.source


def test_a_key_is_its_owners_alone(home: Path) -> None:
    """In a file 0600, in a folder 0700; the config has no more than the provider's name."""
    done = set_up(home, OnboardingRequest(provider="anthropic", key=f" {KEY}\n"))
    file = home / "credentials" / "anthropic"
    assert (done.provider, done.key, done.notes) == ("anthropic", str(file), ())
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert (home / "config.toml").read_text(encoding="utf-8") == '[agent]\nprovider = "anthropic"\n'
    assert key_of(home, "anthropic") == (KEY, str(file))


def test_a_folder_that_others_could_look_into_is_closed(home: Path) -> None:
    """And a key before it is replaced, its mode too."""
    (home / "credentials").mkdir(parents=True, mode=0o755)
    (home / "credentials" / "openai").write_text("old-old-old", encoding="utf-8")
    set_up(home, OnboardingRequest(provider="openai", key=KEY))
    assert stat.S_IMODE((home / "credentials").stat().st_mode) == 0o700
    assert key_of(home, "openai")[0] == KEY


def test_the_environment_comes_first_and_that_is_told(home: Path) -> None:
    """Also where a variable chooses the provider."""
    environment = {"OPENAI_API_KEY": "of-the-environment", "DODONA_AGENT__PROVIDER": "gemini"}
    done = set_up(home, OnboardingRequest(provider="openai", key=KEY), **environment)
    assert done.notes == (
        "DODONA_AGENT__PROVIDER is set and overrides the config file.",
        "OPENAI_API_KEY is set and overrides this key.",
    )
    found = key_of(home, "openai", OPENAI_API_KEY="of-the-environment")
    assert found == ("of-the-environment", "OPENAI_API_KEY")


FILE = """\
# ours
[agent]
model = "claude-sonnet-5-5"  # the good one
provider = "anthropic"
api_key = "env:WORK_KEY"
max_tokens = 100

[vault]
path = "notes"  # all of them
"""


def test_what_belongs_to_the_provider_goes_with_it(home: Path) -> None:
    """Its model, address and key; all else of the file stays, and comments do."""
    home.mkdir()
    (home / "config.toml").write_text(FILE, encoding="utf-8")
    set_up(home, OnboardingRequest(provider="anthropic", key=KEY))
    text = (home / "config.toml").read_text(encoding="utf-8")
    assert text == FILE.replace('api_key = "env:WORK_KEY"\n', "")
    set_up(
        home,
        OnboardingRequest(provider="openai", model="gpt-4o", key_source="env:OTHER"),
        OTHER=KEY,
    )
    assert (home / "config.toml").read_text(encoding="utf-8") == (
        '# ours\n[agent]\nmodel = "gpt-4o"  # the good one\nprovider = "openai"\n'
        'max_tokens = 100\napi_key = "env:OTHER"\n\n[vault]\npath = "notes"  # all of them\n'
    )
    set_up(home, OnboardingRequest(provider="extractive"))
    assert (home / "config.toml").read_text(encoding="utf-8") == (
        '# ours\n[agent]\nprovider = "extractive"\nmax_tokens = 100\n\n'
        '[vault]\npath = "notes"  # all of them\n'
    )


def test_a_key_for_an_address_is_named(home: Path) -> None:
    """There, only what `api_key` names is sent."""
    wish = OnboardingRequest(
        provider="openai-compatible", base_url="http://127.0.0.1:1/v1", key=KEY
    )
    set_up(home, wish)
    environment = {"DODONA_HOME": str(home)}
    config = load_config(environment)
    source = config.settings.agent.api_key
    assert source == f"file:{home / 'credentials' / 'openai-compatible'}"
    credentials = Credentials(config, environment, Redactor())
    assert credentials.resolve(source, ("agent", "api_key")).reveal() == KEY


def test_a_source_that_is_not_there_yet_is_told(home: Path) -> None:
    """It is set up nevertheless."""
    done = set_up(home, OnboardingRequest(provider="openai", key_source="env:LATER"))
    assert done.notes == (f"{home}/config.toml:3: LATER is not set. Set it, or change env:LATER.",)


@pytest.mark.parametrize(
    ("wish", "told"),
    [
        (OnboardingRequest(provider="anthropic", key=""), "the key is empty."),
        (OnboardingRequest(provider="anthropic", key=" \t\r\n"), "the key is empty."),
        (
            OnboardingRequest(provider="anthropic", key="sk-ant-\x1b[31m-of-this"),
            "invalid characters",
        ),
        (
            OnboardingRequest(provider="anthropic", key="two-lines\nof-a-key"),
            "invalid characters",
        ),
        (
            OnboardingRequest(provider="anthropic", key="sk-ant-\N{BULLET}-of-this"),
            "invalid characters",
        ),
        (
            OnboardingRequest(provider="anthropic", key="sk-ant of this"),
            "invalid characters",
        ),
        (OnboardingRequest(provider="anthropic", key="x" * (MAX_KEY_LENGTH + 1)), "too long"),
        (OnboardingRequest(provider="anthropic", key="short"), "too short for a secret"),
        (OnboardingRequest(provider="anthropic"), "anthropic needs an API key."),
        (OnboardingRequest(provider="anthropc", key=KEY), "Did you mean 'anthropic'"),
        (OnboardingRequest(provider="scripted", key=KEY), "there is no provider 'scripted'"),
        (OnboardingRequest(provider="openai", key_source=KEY), "never the secret itself"),
        (OnboardingRequest(provider="openai", key_source="env:"), "never the secret itself"),
        (OnboardingRequest(provider="openai-compatible"), "base_url is missing"),
        (
            OnboardingRequest(provider="openai-compatible", base_url="x"),
            "must be an http(s) URL",
        ),
        (OnboardingRequest(provider="extractive", model="x"), "has no effect"),
    ],
)
def test_what_cannot_be_is_refused(home: Path, wish: OnboardingRequest, told: str) -> None:
    """Nothing is written, and the key is not repeated."""
    with pytest.raises((BadRequest, ConfigError)) as caught:
        set_up(home, wish)
    assert told in str(caught.value)
    assert not wish.key or len(wish.key) < 8 or wish.key not in str(caught.value)
    assert not (home / "config.toml").exists()
    assert not (home / "credentials").exists()


@pytest.mark.parametrize("text", ["agent = 1\n", "[agent\n", "[[agent]]\n", "agent.id = []\n"])
def test_a_broken_config_is_told_and_left(home: Path, text: str) -> None:
    """It must be mended first."""
    home.mkdir()
    (home / "config.toml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError):
        set_up(home, OnboardingRequest(provider="openai", key=KEY))
    assert files(home) == {"config.toml": text}


@contextmanager
def full_disk() -> Iterator[None]:
    """No file may grow: what is written fails as on a disk without room. Root is no exception."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def files(folder: Path) -> dict[str, str]:
    found = [path for path in folder.rglob("*") if path.is_file()]
    return {str(p.relative_to(folder)): p.read_text(encoding="utf-8") for p in found}


def test_a_full_disk_leaves_all_as_it_was(home: Path) -> None:
    """Neither half a key nor half a config, nor anything beside them."""
    set_up(home, OnboardingRequest(provider="anthropic", key=KEY))
    before = files(home)
    with full_disk(), pytest.raises(ConfigError, match="cannot write: File too large"):
        set_up(home, OnboardingRequest(provider="openai", key="another-of-this-example"))
    assert files(home) == before


def test_a_config_that_cannot_be_written_keeps_the_key_away(home: Path) -> None:
    """As on a disk that is read-only for one of the two."""
    home.mkdir()
    (home / "etc").symlink_to("/proc/self/fdinfo")  # where nobody can make a file, not even root
    environment = {"DODONA_HOME": str(home), "DODONA_CONFIG": str(home / "etc" / "x.toml")}
    with pytest.raises(ConfigError, match="cannot write"):
        Onboarding(environment, None, Redactor()).set_up(
            OnboardingRequest(provider="openai", key=KEY)
        )
    assert files(home / "credentials") == {}


def test_a_home_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    """With its place."""
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(ConfigError, match="cannot write: Not a directory"):
        set_up(tmp_path / "file" / "home", OnboardingRequest(provider="openai", key=KEY))
    assert os.listdir(tmp_path) == ["file"]


def test_every_provider_can_be_chosen_but_the_one_for_tests() -> None:
    assert {"anthropic", "ollama", "openai-compatible", "extractive"} <= set(PROVIDER_CHOICES)
    assert "scripted" not in PROVIDER_CHOICES

"""Sets up who answers: the config names the provider, and a file that only its owner may read holds
the key. Both are written, or neither is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dodona.app.config.atomic_files import PendingFile, locked, private_folder, write
from dodona.app.config.config import MAX_BYTES, file_to_edit, home, is_found, is_there, load
from dodona.app.config.edit import draft
from dodona.app.config.environment import shadows
from dodona.app.config.settings import PROVIDER_NAMES
from dodona.app.models.credentials import LONGEST, Credentials
from dodona.core.errors import BadRequest, ConfigError, did_you_mean
from dodona.documents import KeyPath, is_table, read
from dodona.models.providers import PROVIDERS
from dodona.net.redactor import Redactor

CHOICES: Final = tuple(name for name in PROVIDER_NAMES if name != "scripted")

_AGENT: Final = ("agent",)


@dataclass(frozen=True, slots=True, kw_only=True)
class OnboardingRequest:
    """Who shall answer. Of the key, itself or `source`: `env:NAME` or `file:PATH`."""

    provider: str
    model: str | None = None
    base_url: str | None = None
    key: str | None = None
    source: str | None = None


@dataclass(frozen=True, slots=True)
class OnboardingResult:
    """What came of it, for people; `key` is where the key is."""

    provider: str
    model: str | None
    key: str | None
    config: Path
    notes: tuple[str, ...]


class Onboarding:
    """Knows what is set up already."""

    def __init__(
        self, environment: Mapping[str, str], file: Path | None, redactor: Redactor
    ) -> None:
        self._environment = environment
        self._redactor = redactor
        self._home = home(environment)
        self._file = file_to_edit(environment, file)
        self._is_found = is_found(environment, self._file, file)
        self._agent: dict[str, Any] = {}
        if is_there(self._file):
            table = read(self._file, what="the config file", max_bytes=MAX_BYTES).table
            found = table.get("agent")
            self._agent = found if is_table(found) else {}

    @property
    def provider(self) -> str | None:
        """Who answers now, as far as the file says it."""
        found = self._agent.get("provider")
        return found if isinstance(found, str) else None

    def has_key(self, provider: str) -> str:
        """Where a key of the provider is already; empty when there is none."""
        row = PROVIDERS.get(provider)
        for name in row.key_env if row else ():
            if self._environment.get(name, "").strip():
                return name
        if provider == self.provider and "api_key" in self._agent:
            return str(self._agent["api_key"])
        return str(self._key_file(provider)) if is_there(self._key_file(provider)) else ""

    def set_up(self, wish: OnboardingRequest) -> OnboardingResult:
        """Write what is wished for. It blocks."""
        provider = known(wish.provider)
        key = None if wish.key is None else usable(wish.key, self._redactor)
        if wish.source is None and key is None and self._misses_key(wish):
            raise BadRequest(
                f"a key of {provider} is needed.", hint="Use --key-stdin or --key-from env:NAME."
            )
        changes = self._changes(wish)
        with locked(self._file.parent):
            config = draft(self._file, changes, self._environment, is_found=self._is_found)
            files = [config] if config else []
            if key is not None:
                file = self._key_file(provider)
                private_folder(self._home, file.parent)
                files.insert(0, PendingFile(file, f"{key}\n".encode(), mode=0o600))
            write(files)
        return self._done(wish, changes)

    def _misses_key(self, wish: OnboardingRequest) -> bool:
        row = PROVIDERS.get(wish.provider)
        return bool(row and row.needs_key and not wish.base_url and not self.has_key(wish.provider))

    def _changes(self, wish: OnboardingRequest) -> dict[KeyPath, Any]:
        """What depends on the provider goes with it: its model, address and key."""
        is_new = wish.provider != self.provider
        kept = None if is_new else self._agent.get("base_url")
        changes: dict[str, Any] = {"provider": wish.provider}
        if wish.model or is_new:
            changes["model"] = wish.model
        if wish.base_url or is_new:
            changes["base_url"] = wish.base_url
        if wish.source:
            changes["api_key"] = wish.source
        elif wish.key is not None:
            # At an address of somebody's own, only a key that is named is used.
            named = f"file:{self._key_file(wish.provider)}"
            changes["api_key"] = named if wish.base_url or kept else None
        elif is_new:
            changes["api_key"] = None
        return {(*_AGENT, name): value for name, value in changes.items()}

    def _done(self, wish: OnboardingRequest, changes: Mapping[KeyPath, Any]) -> OnboardingResult:
        row = PROVIDERS.get(wish.provider)
        kept = None if wish.provider != self.provider else self._agent.get("model")
        model = wish.model or kept or (row.default_model if row else None) or None
        key = wish.source or (str(self._key_file(wish.provider)) if wish.key else None)
        return OnboardingResult(
            wish.provider,
            model,
            key or self.has_key(wish.provider) or None,
            self._file,
            tuple(self._notes(wish, changes)),
        )

    def _notes(self, wish: OnboardingRequest, changes: Mapping[KeyPath, Any]) -> list[str]:
        """What may keep it from having an effect."""
        table = read(self._file, what="the config file", max_bytes=MAX_BYTES).table
        notes = [
            f"{name} is set, and comes before the file."
            for name in shadows(self._environment, table, changes)
        ]
        row = PROVIDERS.get(wish.provider)
        if wish.key is not None and row and changes.get((*_AGENT, "api_key")) is None:
            notes += [
                f"{name} is set, and comes before this key."
                for name in row.key_env
                if self._environment.get(name, "").strip()
            ]
        if wish.source:
            try:
                config = load(self._environment, self._file)
                credentials = Credentials(config, self._environment, self._redactor)
                credentials.named(wish.source, (*_AGENT, "api_key"))
            except ConfigError as error:
                notes.append(str(error))
        return notes

    def _key_file(self, provider: str) -> Path:
        return self._home / "credentials" / provider


def known(provider: str) -> str:
    """The name, if it is one of a provider that can be set up."""
    if provider not in CHOICES:
        hint = did_you_mean(provider, CHOICES) or f"Providers are {', '.join(CHOICES)}."
        raise BadRequest(f"there is no provider '{provider[:80]}'.", hint=hint)
    return provider


def usable(key: str, redactor: Redactor) -> str:
    """The key without blanks around it, hidden from now on; one that cannot be one is refused."""
    key = key.strip()
    if not key:
        raise BadRequest("the key is empty.", hint="Nothing was changed.")
    if not key.isascii() or not key.isprintable() or " " in key or len(key) > LONGEST:
        raise BadRequest(
            "the key holds a character that no key has, or too many.",
            hint="Copy it once more, and nothing else.",
        )
    redactor.add("the key", key)
    return key

"""Sets up a provider: writes it to the config file, and its key to a private file.

Either both files are written or neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dodona.app.config.atomic_files import (
    PendingFile,
    lock_folder,
    make_private_folder,
    write_files,
)
from dodona.app.config.config import (
    CREDENTIALS_FOLDER,
    MAX_CONFIG_BYTES,
    file_exists,
    file_to_edit,
    home_folder,
    is_implicit_file,
    load_config,
)
from dodona.app.config.edit import draft_config
from dodona.app.config.environment import overriding_variables
from dodona.app.config.settings import PROVIDER_NAMES
from dodona.app.models.credentials import MAX_KEY_LENGTH, Credentials
from dodona.core.errors import BadRequest, ConfigError, did_you_mean
from dodona.documents import KeyPath, is_table, read_document
from dodona.models.providers import PROVIDERS
from dodona.net.redactor import Redactor

PROVIDER_CHOICES: Final = tuple(name for name in PROVIDER_NAMES if name != "scripted")

_AGENT_PATH: Final = ("agent",)


@dataclass(frozen=True, slots=True, kw_only=True)
class OnboardingRequest:
    """The provider to set up, with its key or a `key_source`: `env:NAME` or `file:PATH`."""

    provider: str
    model: str | None = None
    base_url: str | None = None
    key: str | None = None
    key_source: str | None = None


@dataclass(frozen=True, slots=True)
class OnboardingResult:
    """The result, for display. `key` is the location of the key, not the key."""

    provider: str
    model: str | None
    key: str | None
    config: Path
    notes: tuple[str, ...]


class Onboarding:
    """Sets up the provider of the default agent, based on the current config file."""

    def __init__(
        self, environment: Mapping[str, str], file: Path | None, redactor: Redactor
    ) -> None:
        self._environment = environment
        self._redactor = redactor
        self._home = home_folder(environment)
        self._file = file_to_edit(environment, file)
        self._is_implicit = is_implicit_file(environment, self._file, file)
        self._agent: dict[str, Any] = {}
        if file_exists(self._file):
            table = read_document(
                self._file, label="the config file", max_bytes=MAX_CONFIG_BYTES
            ).table
            agent = table.get("agent")
            self._agent = agent if is_table(agent) else {}

    @property
    def provider(self) -> str | None:
        """The provider that the config file sets, if any."""
        provider = self._agent.get("provider")
        return provider if isinstance(provider, str) else None

    def key_location(self, provider: str) -> str:
        """Return the location of the provider's existing key, or "" if there is none."""
        row = PROVIDERS.get(provider)
        for name in row.key_env if row else ():
            if self._environment.get(name, "").strip():
                return name
        if provider == self.provider and "api_key" in self._agent:
            return str(self._agent["api_key"])
        return str(self._key_file(provider)) if file_exists(self._key_file(provider)) else ""

    def set_up(self, request: OnboardingRequest) -> OnboardingResult:
        """Write the config and the key. Blocks."""
        provider = check_provider(request.provider)
        key = None if request.key is None else check_key(request.key, self._redactor)
        if request.key_source is None and key is None and self._lacks_key(request):
            raise BadRequest(
                f"{provider} needs an API key.", hint="Use --key-stdin or --key-from env:NAME."
            )
        changes = self._changes(request)
        with lock_folder(self._file.parent):
            draft = draft_config(
                self._file, changes, self._environment, is_implicit=self._is_implicit
            )
            files = [*draft.files]
            if key is not None:
                file = self._key_file(provider)
                make_private_folder(self._home, file.parent)
                files.insert(0, PendingFile(file, f"{key}\n".encode(), mode=0o600))
            write_files(files)
        draft.trust()
        return self._build_result(request, changes)

    def _lacks_key(self, request: OnboardingRequest) -> bool:
        row = PROVIDERS.get(request.provider)
        return bool(
            row
            and row.needs_key
            and not request.base_url
            and not self.key_location(request.provider)
        )

    def _changes(self, request: OnboardingRequest) -> dict[KeyPath, Any]:
        """Return the config changes. A new provider resets model, URL and key of the old one."""
        is_new = request.provider != self.provider
        base_url = None if is_new else self._agent.get("base_url")
        changes: dict[str, Any] = {"provider": request.provider}
        if request.model or is_new:
            changes["model"] = request.model
        if request.base_url or is_new:
            changes["base_url"] = request.base_url
        if request.key_source:
            changes["api_key"] = request.key_source
        elif request.key is not None:
            # A custom URL gets a key only if the config names it.
            source = f"file:{self._key_file(request.provider)}"
            changes["api_key"] = source if request.base_url or base_url else None
        elif is_new:
            changes["api_key"] = None
        return {(*_AGENT_PATH, name): value for name, value in changes.items()}

    def _build_result(
        self, request: OnboardingRequest, changes: Mapping[KeyPath, Any]
    ) -> OnboardingResult:
        row = PROVIDERS.get(request.provider)
        current = None if request.provider != self.provider else self._agent.get("model")
        model = request.model or current or (row.default_model if row else None) or None
        key = request.key_source or (str(self._key_file(request.provider)) if request.key else None)
        return OnboardingResult(
            request.provider,
            model,
            key or self.key_location(request.provider) or None,
            self._file,
            tuple(self._warnings(request, changes)),
        )

    def _warnings(self, request: OnboardingRequest, changes: Mapping[KeyPath, Any]) -> list[str]:
        """Return reasons why the new settings may have no effect."""
        table = read_document(self._file, label="the config file", max_bytes=MAX_CONFIG_BYTES).table
        notes = [
            f"{name} is set and overrides the config file."
            for name in overriding_variables(self._environment, table, changes)
        ]
        row = PROVIDERS.get(request.provider)
        if request.key is not None and row and changes.get((*_AGENT_PATH, "api_key")) is None:
            notes += [
                f"{name} is set and overrides this key."
                for name in row.key_env
                if self._environment.get(name, "").strip()
            ]
        if request.key_source:
            try:
                config = load_config(self._environment, self._file)
                credentials = Credentials(config, self._environment, self._redactor)
                credentials.resolve(request.key_source, (*_AGENT_PATH, "api_key"))
            except ConfigError as error:
                notes.append(str(error))
        return notes

    def _key_file(self, provider: str) -> Path:
        return self._home / CREDENTIALS_FOLDER / provider


def check_provider(provider: str) -> str:
    """Return the name; raise BadRequest if no such provider can be set up."""
    if provider not in PROVIDER_CHOICES:
        hint = (
            did_you_mean(provider, PROVIDER_CHOICES) or f"Providers: {', '.join(PROVIDER_CHOICES)}."
        )
        raise BadRequest(f"there is no provider '{provider[:80]}'.", hint=hint)
    return provider


def check_key(key: str, redactor: Redactor) -> str:
    """Strip and validate a key, and register it for redaction."""
    key = key.strip()
    if not key:
        raise BadRequest("the key is empty.", hint="Nothing was changed.")
    if not key.isascii() or not key.isprintable() or " " in key or len(key) > MAX_KEY_LENGTH:
        raise BadRequest(
            "the key is too long or contains invalid characters.",
            hint="Copy only the key, and try again.",
        )
    redactor.add("the key", key)
    return key

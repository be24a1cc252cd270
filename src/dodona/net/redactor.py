"""Redact secrets in logs, errors, the journal and requests to models.

`redact` removes registered secrets and Dodona API tokens. `scrub` also removes text that looks
like a key, for output that people read. Secrets with fewer than eight characters are refused:
redacting one would also remove ordinary words, which would reveal it.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from threading import Lock
from typing import Any, cast
from urllib.parse import quote, quote_plus

from dodona.core.domain.api_tokens import TOKEN_PREFIX
from dodona.core.errors import ConfigError

MIN_SECRET_CHARS = 8

# The first group stays. Every repetition is bounded, possessive, or ends where the next match
# could begin, so hostile text is matched in linear time. Quotes and backslashes are never
# removed, so JSON stays valid JSON.
_NOT_REDACTED = r"(?!\[secret[ \]])"  # text that `redact` already replaced
_SECRET_PATTERNS = (
    re.compile(
        r"(?i)(\b(?:authorization|x-api-key|x-goog-api-key)[\"']?\s{0,8}+[:=]\s{0,8}+[\"']?"
        rf"(?:(?:bearer|basic|token)\s{{1,8}}+)?+){_NOT_REDACTED}[^\s\"',;\\]++"
    ),
    re.compile(rf"(?i)(\bbearer\s{{1,8}}+){_NOT_REDACTED}[\w.~+/=-]{{16,}}+"),
    re.compile(
        r"(?i)([?&](?:key|api[_-]?key|token|access[_-]?token|secret|client[_-]?secret|password"
        rf"|sig|signature)=){_NOT_REDACTED}[^&\s\"'#<>\\]++"
    ),
    re.compile(rf"(://[^\s/:@]*+:){_NOT_REDACTED}[^\s/\"]+(?=@)"),
    re.compile(
        r"()\b(?:sk-[\w-]{20,}+|AIza[\w-]{30,}+|(?:gh[pousr]_|github_pat_)\w{20,}+"
        r"|xox[a-z]-[\w-]{10,}+)"
    ),
)


# Dodona API tokens. Only their hashes are stored, so they cannot be registered as secrets.
_API_TOKEN = re.compile(r"dod_[\w-]{32,}+", re.ASCII)


class Redactor:
    """Replaces secrets by `[secret NAME]`, in every encoding that text commonly uses.

    These are the plain value, the value escaped for JSON or quoted for URLs, and the value
    inside base64 at any offset, as in a Basic auth header. Redacting twice changes nothing.
    Thread-safe; a new secret is redacted from the next call on.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self.generation = 0  # grows with each secret; text redacted earlier may contain it
        self._secrets: set[str] = set()
        self._names_by_form: dict[str, str] = {}
        self._pattern: re.Pattern[str] | None = None

    def add(self, name: str, secret: str) -> None:
        """Redact this value from now on. A value added twice keeps its first name."""
        if len(secret) < MIN_SECRET_CHARS:
            raise ConfigError(
                f"{name} is too short for a secret.",
                hint=f"A secret needs at least {MIN_SECRET_CHARS} characters, "
                "so that it can be redacted in logs.",
            )
        with self._lock:
            if secret in self._secrets:
                return
            self._secrets.add(secret)
            names = {**dict.fromkeys(_encoded_forms(secret), name), **self._names_by_form}
            # Markers match first and stay as they are; otherwise a secret equal to a name would
            # be replaced inside a marker. Longer forms match before shorter ones; otherwise a
            # secret that is a prefix of another would leave the rest of it.
            markers = [f"[secret {each}]" for each in dict.fromkeys(names.values())]
            words = [*markers, *sorted(names, key=len, reverse=True)]
            self._names_by_form = names
            self._pattern = re.compile("|".join(map(re.escape, words)))
            self.generation += 1

    def redact(self, text: str) -> str:
        """Return the text without registered secrets and Dodona API tokens."""
        pattern = self._pattern
        if pattern:
            text = pattern.sub(self._marker, text)
        return _API_TOKEN.sub("[secret token]", text) if TOKEN_PREFIX in text else text

    def redact_all(self, value: Any) -> Any:
        """Redact every string of a JSON value; keys stay as they are."""
        if isinstance(value, str):
            return self.redact(value)
        if isinstance(value, Mapping):
            pairs = cast("Mapping[Any, Any]", value).items()
            return {key: self.redact_all(below) for key, below in pairs}
        if isinstance(value, list | tuple):
            return [self.redact_all(below) for below in cast("list[Any]", value)]
        return value

    def scrub(self, text: str) -> str:
        """Redact the text, then remove everything that looks like a key or a password."""
        text = self.redact(text)
        for pattern in _SECRET_PATTERNS:
            text = pattern.sub(r"\1[secret]", text)
        return text

    def scrub_all(self, value: Any) -> Any:
        """Scrub every string of a JSON value, keys included; other objects become strings."""
        if value is None or isinstance(value, bool | int | float):
            return value
        if isinstance(value, dict):
            pairs = cast("dict[Any, Any]", value).items()
            return {self.scrub(str(key)): self.scrub_all(below) for key, below in pairs}
        if isinstance(value, list | tuple):
            return [self.scrub_all(below) for below in cast("list[Any]", value)]
        return self.scrub(str(value))

    def _marker(self, match: re.Match[str]) -> str:
        name = self._names_by_form.get(match[0])
        return f"[secret {name}]" if name else match[0]


def _encoded_forms(secret: str) -> Iterator[str]:
    yield secret
    yield json.dumps(secret)[1:-1]
    yield json.dumps(secret, ensure_ascii=False)[1:-1]
    raw = secret.encode(errors="surrogateescape")  # as environment variables may contain it
    for quoted in (quote(raw), quote(raw, safe=""), quote_plus(raw)):
        yield quoted
        yield re.sub(r"%..", lambda code: code[0].lower(), quoted)
    for encoded in _base64_forms(raw):
        yield encoded
        yield encoded.replace("+", "-").replace("/", "_")


def _base64_forms(secret: bytes) -> Iterator[str]:
    """Yield the encoded secret, alone and embedded between other bytes at each alignment."""
    whole = b64encode(secret).decode()
    yield whole
    yield whole.rstrip("=")
    for before in range(3):
        encoded = b64encode(bytes(before) + secret).decode()
        # Characters that also encode bits of a neighbouring byte vary, so they are left out.
        start = -(-before * 8 // 6)
        yield encoded[start : (before + len(secret)) * 8 // 6]

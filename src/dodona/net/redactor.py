"""Keeps secrets out of what is written, shown or sent: logs, errors, the journal, models.

`hide` takes out the values it was told, and tokens of Dodona's own; `scrub` also takes out what
merely looks like a key, for text that people read. Secrets of fewer than eight characters are
refused: hiding one would eat ordinary words, and by that tell it.
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

# The first group stays. Every repetition is bounded, or ends where the next match could begin,
# or never gives back what it took: hostile text costs no more than its length. A quote, or the
# backslash that escapes one, is never part of what goes: JSON stays JSON.
_NOT_REDACTED = r"(?!\[secret[ \]])"  # what `hide` has been at stays as it is
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


# Our own: nothing else looks so, and their texts are known to nobody who could name them.
_API_TOKEN = re.compile(r"dod_[\w-]{32,}+", re.ASCII)


class Redactor:
    """Replaces secrets by `[secret NAME]`, in the forms that text commonly holds them in.

    Those are the value itself, and the value escaped for JSON, quoted for URLs, or within
    base64 wherever it begins: a Basic header hides its password. Doing it twice changes
    nothing. Threads may share one; a secret added is hidden from the next call on.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self.generation = 0  # rises with each secret: what was hidden before may show it
        self._names_by_form: dict[str, str] = {}  # of each form
        self._pattern: re.Pattern[str] | None = None

    def add(self, name: str, secret: str) -> None:
        """Hide this value from now on; under the first name it was given."""
        if len(secret) < MIN_SECRET_CHARS:
            raise ConfigError(
                f"{name} is too short for a secret.",
                hint=f"Fewer than {MIN_SECRET_CHARS} characters cannot be hidden in logs.",
            )
        with self._lock:
            names = {**dict.fromkeys(_encoded_forms(secret), name), **self._names_by_form}
            # A marker comes first and stays, or a secret equal to a name would nest in it; the
            # longest form comes first, or a secret that begins another would leave its rest.
            markers = [f"[secret {known}]" for known in dict.fromkeys(names.values())]
            words = [*markers, *sorted(names, key=len, reverse=True)]
            self._names_by_form = names
            self._pattern = re.compile("|".join(map(re.escape, words)))
            self.generation += 1

    def redact(self, text: str) -> str:
        """The text without any known secret or token of ours; itself when it holds none."""
        pattern = self._pattern
        if pattern:
            text = pattern.sub(self._marker, text)
        return _API_TOKEN.sub("[secret token]", text) if TOKEN_PREFIX in text else text

    def redact_all(self, value: Any) -> Any:
        """`hide` in every text of a JSON value; keys stay as they are."""
        if isinstance(value, str):
            return self.redact(value)
        if isinstance(value, Mapping):
            pairs = cast("Mapping[Any, Any]", value).items()
            return {key: self.redact_all(below) for key, below in pairs}
        if isinstance(value, list | tuple):
            return [self.redact_all(below) for below in cast("list[Any]", value)]
        return value

    def scrub(self, text: str) -> str:
        """`hide`, then without anything that looks like a key or a password."""
        text = self.redact(text)
        for pattern in _SECRET_PATTERNS:
            text = pattern.sub(r"\1[secret]", text)
        return text

    def scrub_all(self, value: Any) -> Any:
        """`scrub` every text in a JSON value; what is no JSON becomes text."""
        if value is None or isinstance(value, bool | int | float):
            return value
        if isinstance(value, dict):
            pairs = cast("dict[Any, Any]", value).items()
            return {self.scrub(str(key)): self.scrub_all(below) for key, below in pairs}
        if isinstance(value, list | tuple):
            return [self.scrub_all(below) for below in cast("list[Any]", value)]
        return self.scrub(str(value))

    def _marker(self, found: re.Match[str]) -> str:
        name = self._names_by_form.get(found[0])
        return f"[secret {name}]" if name else found[0]


def _encoded_forms(secret: str) -> Iterator[str]:
    yield secret
    yield json.dumps(secret)[1:-1]
    yield json.dumps(secret, ensure_ascii=False)[1:-1]
    raw = secret.encode(errors="surrogateescape")  # as the environment may hold it
    for quoted in (quote(raw), quote(raw, safe=""), quote_plus(raw)):
        yield quoted
        yield re.sub(r"%..", lambda code: code[0].lower(), quoted)
    for encoded in _base64_forms(raw):
        yield encoded
        yield encoded.replace("+", "-").replace("/", "_")


def _base64_forms(secret: bytes) -> Iterator[str]:
    """The encoded secret, and what is left of it after any bytes before and behind it."""
    whole = b64encode(secret).decode()
    yield whole
    yield whole.rstrip("=")
    for before in range(3):
        encoded = b64encode(bytes(before) + secret).decode()
        # Characters that also hold bits of a neighbour are not the secret's alone.
        start = -(-before * 8 // 6)
        yield encoded[start : (before + len(secret)) * 8 // 6]

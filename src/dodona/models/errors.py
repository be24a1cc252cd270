"""Classify errors of model providers, and describe them for users and for the retry logic."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple, cast

import msgspec

from dodona.core.errors import ProviderError, ProviderErrorKind
from dodona.models.provider import ModelEndpoint

MAX_QUOTE_CHARS = 300  # of the provider's message in an error
MAX_READ_LENGTH = 64 * 1024  # of the provider's message before redaction

_TOO_LONG = re.compile(
    r"context.?length|context.?window|context.?size|context limit|maximum model length"
    r"|prompt is too long|request_too_large"
    r"|input token count.{0,40}exceeds|too many (input )?tokens",
    re.IGNORECASE,
)
_NO_CREDIT = re.compile(
    r"insufficient_quota|billing_error|credit balance is too low|insufficient (credits|balance)",
    re.IGNORECASE,
)
_BAD_KEY = re.compile(
    r"(invalid|incorrect|not valid|missing).{0,20}api.?key|api.?key.{0,20}not valid", re.I
)

# Errors inside a stream have a type or a code instead of an HTTP status.
_KINDS_BY_NAME: tuple[tuple[str, ProviderErrorKind], ...] = (
    ("overloaded", ProviderErrorKind.SERVER),
    ("rate_limit", ProviderErrorKind.RATE_LIMITED),
    ("resource_exhausted", ProviderErrorKind.RATE_LIMITED),
    ("authentication", ProviderErrorKind.UNAUTHORIZED),
    ("permission", ProviderErrorKind.UNAUTHORIZED),
    ("not_found", ProviderErrorKind.REJECTED),
    ("invalid", ProviderErrorKind.REJECTED),
)
_DESCRIPTIONS: Mapping[ProviderErrorKind, str] = {
    ProviderErrorKind.RATE_LIMITED: "rate-limited the request",
    ProviderErrorKind.SERVER: "failed",
    ProviderErrorKind.REJECTED: "rejected the request",
    ProviderErrorKind.UNAUTHORIZED: "rejected the API key",
    ProviderErrorKind.CONTEXT_TOO_LONG: "rejected the request as too long for the context window",
}


class ErrorDetails(NamedTuple):
    """The fields of a provider's error. `codes` are its codes and types in one line.

    `parameter` is the request member that it is about, if the provider names one.
    """

    message: str = ""
    codes: str = ""
    parameter: str = ""


class ProviderErrorFactory:
    """Builds errors that name the provider, quote its message without secrets, and add a hint."""

    def __init__(self, endpoint: ModelEndpoint) -> None:
        self._endpoint = endpoint
        self._provider = endpoint.provider

    def build(
        self,
        problem: str,
        kind: ProviderErrorKind,
        *,
        detail: str | bytes = "",
        hint: str = "",
        status: int | None = None,
        retry_after: float | None = None,
    ) -> ProviderError:
        """Build an error "PROVIDER problem: detail", with the detail redacted and truncated."""
        quoted = self._quote(detail)
        return ProviderError(
            f"{self._provider.name} {problem}: {quoted}"
            if quoted
            else f"{self._provider.name} {problem}.",
            kind=kind,
            provider=self._provider.name,
            status=status,
            retry_after=retry_after,
            hint=hint,
        )

    def from_response(self, status: int, headers: Mapping[str, str], body: bytes) -> ProviderError:
        """Build the error for an HTTP response with an error status."""
        message, codes, _ = read_details(body)
        text = f"{codes} {message}"
        kind, wait = _classify(status, text), parse_retry_after(headers)
        retry_hint = f"Try again in {math.ceil(wait)} seconds." if wait else ""
        return self.build(
            f"{_describe(kind, status, text)} ({status})",
            kind,
            detail=message or body,
            hint=self._hint(kind, status, text) or retry_hint,
            status=status,
            retry_after=wait,
        )

    def from_stream_error(self, error: object) -> ProviderError:
        """Build the error for an error event inside a stream."""
        message, codes, _ = _extract_details({"error": error})
        status = int(codes.split()[0]) if re.match(r"[345]\d\d\b", codes) else None
        text = f"{codes} {message}"
        if status is not None or _TOO_LONG.search(text) or _NO_CREDIT.search(text):
            kind = _classify(status or 400, text)
        else:
            lower = codes.lower()
            kind = next(
                (kind for word, kind in _KINDS_BY_NAME if word in lower), ProviderErrorKind.SERVER
            )
        return self.build(
            f"{_describe(kind, status, text)} while streaming",
            kind,
            detail=message or codes,
            hint=self._hint(kind, status, text),
            status=status,
        )

    def malformed(self, reason: str, detail: bytes = b"") -> ProviderError:
        """Build the error for a response that violates the protocol."""
        return self.build(
            f"sent an invalid response: {reason}",
            ProviderErrorKind.MALFORMED,
            detail=detail,
            hint=self._base_url_hint(),
        )

    def interrupted(
        self, reason: str = "the stream ended without a finish reason"
    ) -> ProviderError:
        """Build the error for an answer that ended before it was complete."""
        return self.build(f"interrupted the answer: {reason}", ProviderErrorKind.INTERRUPTED)

    def _hint(self, kind: ProviderErrorKind, status: int | None, text: str) -> str:
        if kind is ProviderErrorKind.UNAUTHORIZED:
            if _lacks_credit(status, text):
                return "Add credit to the account, or use another provider."
            names = " or ".join(self._provider.key_env)
            return f"Set {names} to a valid API key." if names else "Check the API key."
        if kind is ProviderErrorKind.CONTEXT_TOO_LONG:
            return "Shorten the conversation, or use a model with a larger context window."
        if status is not None and 300 <= status < 400:
            return self._base_url_hint()
        if status == 404:
            model_hint = f"Check the model name '{self._endpoint.model}'."
            return f"{model_hint} {self._base_url_hint()}".rstrip()
        return ""

    def _base_url_hint(self) -> str:
        if self._endpoint.base_url == self._provider.base_url:
            return ""
        return f"Check base_url ({self._quote(self._endpoint.base_url)})."

    def _quote(self, detail: str | bytes) -> str:
        detail = detail[:MAX_READ_LENGTH]
        if isinstance(detail, bytes):
            detail = detail.decode(errors="replace")
        # Scrub before truncating: half a key would not be recognized.
        text = " ".join(self._endpoint.redactor.scrub(detail).split())
        return text if len(text) <= MAX_QUOTE_CHARS else f"{text[: MAX_QUOTE_CHARS - 1]}…"


def parse_retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds to wait, from a number or a date; None if missing or invalid."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = headers.get(name, "").strip()
        try:
            seconds = float(value) * unit
        except ValueError:
            continue
        return seconds if math.isfinite(seconds) and seconds >= 0 else None
    try:
        date = parsedate_to_datetime(headers.get("retry-after", ""))
    except (ValueError, OverflowError):
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    return max(0.0, (date - datetime.now(UTC)).total_seconds())


def _classify(status: int, text: str) -> ProviderErrorKind:
    if status == 429:
        return (
            ProviderErrorKind.UNAUTHORIZED
            if _NO_CREDIT.search(text)
            else ProviderErrorKind.RATE_LIMITED
        )
    if status == 413 or (status < 500 and _TOO_LONG.search(text)):
        return ProviderErrorKind.CONTEXT_TOO_LONG
    if status in {401, 402, 403} or _NO_CREDIT.search(text) or _BAD_KEY.search(text):
        return ProviderErrorKind.UNAUTHORIZED
    if status >= 500 or status in {408, 409, 425}:
        return ProviderErrorKind.SERVER
    return ProviderErrorKind.REJECTED


def _describe(kind: ProviderErrorKind, status: int | None, text: str) -> str:
    """Describe the error as a predicate, with the provider as its subject."""
    if kind is ProviderErrorKind.UNAUTHORIZED and _lacks_credit(status, text):
        return "rejected the request for lack of credit"
    return _DESCRIPTIONS[kind]


def _lacks_credit(status: int | None, text: str) -> bool:
    return status == 402 or _NO_CREDIT.search(text) is not None


def _decode_json(body: bytes) -> object:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return None


def read_details(body: bytes) -> ErrorDetails:
    """Return the details of an error in the body of a response; empty ones if it is no JSON."""
    return _extract_details(_decode_json(body))


def _extract_details(answer: object) -> ErrorDetails:
    if isinstance(answer, list) and answer:  # Gemini wraps its errors
        answer = cast("list[Any]", answer)[0]
    if not isinstance(answer, dict):
        return ErrorDetails()
    members = cast("dict[str, Any]", answer)
    error = members.get("error", members)
    if not isinstance(error, dict):
        return ErrorDetails(str(error))
    fields = cast("dict[str, Any]", error)
    message = fields.get("message") or fields.get("detail") or ""
    codes = [str(fields[name]) for name in ("code", "type", "status") if fields.get(name)]
    return ErrorDetails(str(message), " ".join(codes), str(fields.get("param") or ""))

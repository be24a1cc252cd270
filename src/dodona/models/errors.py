"""What a provider says when it fails, and what that means for whoever asked."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, cast

import msgspec

from dodona.core.errors import ProviderError, ProviderErrorKind
from dodona.models.provider import ModelEndpoint

MAX_QUOTE_CHARS = 300  # characters of a provider's own words in an error
MAX_READ_LENGTH = 64 * 1024  # of what it said, at most

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

# Errors inside a stream have no status, but a type or a code.
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
    ProviderErrorKind.RATE_LIMITED: "limits the rate of requests",
    ProviderErrorKind.SERVER: "failed",
    ProviderErrorKind.REJECTED: "refused the request",
    ProviderErrorKind.UNAUTHORIZED: "refused the key",
    ProviderErrorKind.CONTEXT_TOO_LONG: "was given more than fits the model's window",
}


class ProviderErrorFactory:
    """Makes errors that name the provider, quote it without secrets, and say what to do."""

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
        """An HTTP answer that is no answer."""
        said, kind = _extract_message(_decode_json(body))
        fault, wait = _classify(status, f"{kind} {said}"), parse_retry_after(headers)
        later = f"Try again in {math.ceil(wait)} seconds." if wait else ""
        return self.build(
            f"{_describe(fault, status, f'{kind} {said}')} ({status})",
            fault,
            detail=said or body,
            hint=self._hint(fault, status, f"{kind} {said}") or later,
            status=status,
            retry_after=wait,
        )

    def from_stream_error(self, error: object) -> ProviderError:
        """An error inside a stream that began well."""
        said, kind = _extract_message({"error": error})
        status = int(kind.split()[0]) if re.match(r"[345]\d\d\b", kind) else None
        text = f"{kind} {said}"
        if status is not None or _TOO_LONG.search(text) or _NO_CREDIT.search(text):
            fault = _classify(status or 400, text)
        else:
            lower = kind.lower()
            fault = next(
                (fault for word, fault in _KINDS_BY_NAME if word in lower), ProviderErrorKind.SERVER
            )
        return self.build(
            f"{_describe(fault, status, text)} in mid-answer",
            fault,
            detail=said or kind,
            hint=self._hint(fault, status, text),
            status=status,
        )

    def malformed(self, reason: str, detail: bytes = b"") -> ProviderError:
        return self.build(
            f"does not follow the protocol: {reason}",
            ProviderErrorKind.MALFORMED,
            detail=detail,
            hint=self._base_url_hint(),
        )

    def interrupted(self, reason: str = "the stream ended without a finish") -> ProviderError:
        return self.build(f"broke off the answer: {reason}", ProviderErrorKind.INTERRUPTED)

    def _hint(self, kind: ProviderErrorKind, status: int | None, text: str) -> str:
        if kind is ProviderErrorKind.UNAUTHORIZED:
            if _lacks_credit(status, text):
                return "Add credit to the account, or use another provider."
            names = " or ".join(self._provider.key_env)
            return f"Set {names} to a valid key." if names else "Check the key."
        if kind is ProviderErrorKind.CONTEXT_TOO_LONG:
            return "Shorten the conversation, or use a model with a larger window."
        if status is not None and 300 <= status < 400:
            return self._base_url_hint()
        if status == 404:
            name = f"Check the name of the model '{self._endpoint.model}'."
            return f"{name} {self._base_url_hint()}".rstrip()
        return ""

    def _base_url_hint(self) -> str:
        if self._endpoint.base_url == self._provider.base_url:
            return ""
        return f"Check base_url ({self._quote(self._endpoint.base_url)})."

    def _quote(self, detail: str | bytes) -> str:
        detail = detail[:MAX_READ_LENGTH]
        if isinstance(detail, bytes):
            detail = detail.decode(errors="replace")
        # Scrubbed before it is cut to length: half a key would not be known as one.
        text = " ".join(self._endpoint.redactor.scrub(detail).split())
        return text if len(text) <= MAX_QUOTE_CHARS else f"{text[: MAX_QUOTE_CHARS - 1]}…"


def parse_retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait, from a number or a date; None when it is not said, or makes no sense."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        said = headers.get(name, "").strip()
        try:
            seconds = float(said) * unit
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
    """What the provider did, as the rest of a sentence."""
    if kind is ProviderErrorKind.UNAUTHORIZED and _lacks_credit(status, text):
        return "wants to be paid"
    return _DESCRIPTIONS[kind]


def _lacks_credit(status: int | None, text: str) -> bool:
    return status == 402 or _NO_CREDIT.search(text) is not None


def _decode_json(body: bytes) -> object:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return None


def _extract_message(answer: object) -> tuple[str, str]:
    """The message of an error, and its codes and types in one line."""
    if isinstance(answer, list) and answer:  # Gemini wraps its errors
        answer = cast("list[Any]", answer)[0]
    if not isinstance(answer, dict):
        return "", ""
    members = cast("dict[str, Any]", answer)
    error = members.get("error", members)
    if not isinstance(error, dict):
        return str(error), ""
    found = cast("dict[str, Any]", error)
    said = found.get("message") or found.get("detail") or ""
    kinds = [str(found[name]) for name in ("code", "type", "status") if found.get(name)]
    return str(said), " ".join(kinds)

"""Every error that Dodona raises on purpose. The branch says who must act.

    DodonaError
    ├── ConfigError        the operator: a setting is invalid
    │   └── UntrustedConfig    the config file in the current folder needs to be trusted
    ├── ExtensionError     the extension's author: it does not load, or a declaration is invalid
    ├── StoreError         the operator: the database is unavailable
    │   ├── RunFenced          no action: another process has taken over the run
    │   └── WriteRejected      a bug: the database works, but does not accept this data
    ├── TreeError          the tree author: a tree cannot be read, loaded or run
    │   ├── ReadError          the text is not a valid form
    │   │   └── UnexpectedEnd      the text ends too early; more input may complete it
    │   ├── LoadError          the forms are not a valid tree
    │   ├── ExpressionError    an expression met a value it cannot use
    │   ├── BlackboardError    the blackboard rejects a key or a value
    │   │   └── KeyMissing         the key is not set
    │   └── RunDiverged        a resumed run would not repeat its recorded steps
    ├── ToolFailed         the model: the call returned no result
    ├── ToolRetry          the model: the call was invalid, a corrected one may work
    │   └── Conflict           the data has changed: read it again
    ├── ProviderError      the runtime: retry or fall back
    ├── BudgetExceeded     the owner of the budget: wait, or raise the limit
    ├── Unauthorized       the caller: authentication is missing or invalid
    ├── AccessDenied       the caller: not allowed
    ├── NotFound           the caller: it does not exist, or belongs to another user
    ├── Cancelled          no action: a user cancelled it
    └── BadRequest         the caller: the request is invalid
        ├── InvalidField       a field or parameter has an invalid value
        ├── HeadMoved          the conversation has changed: read its head again
        ├── LaneFull           too many messages are queued: try again later
        └── ContextFull        the conversation and the question exceed the context budget

Any other exception is a bug and is not part of this hierarchy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """A position in a text; `excerpt` is its line with a caret under the column.

    Column 0 stands for the whole line, line 0 for the whole file.
    """

    file: str
    line: int = 0
    column: int = 0
    excerpt: str = ""

    def __str__(self) -> str:
        return ":".join(str(part) for part in (self.file, self.line, self.column) if part)


class DodonaError(Exception):
    """What happened, where, and what to do next; or several problems found in one pass."""

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 1
    http_status: ClassVar[int] = 500

    def __init__(
        self,
        message: str,
        *,
        where: SourceLocation | None = None,
        hint: str = "",
        problems: Sequence[DodonaError] = (),
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.hint = hint
        self.details = dict(details or {})  # machine-readable
        self._problems = tuple(problems)

    @classmethod
    def combine(cls, problems: Sequence[DodonaError]) -> DodonaError:
        """Return the only problem, or one error that holds all of them."""
        if len(problems) == 1:
            return problems[0]
        return cls(f"{len(problems)} problems.", problems=problems)

    def __str__(self) -> str:
        """Return location, message and hint on one line; one line per problem if several."""
        if self._problems:
            return "\n".join(str(problem) for problem in self._problems)
        location = f"{self.where}: " if self.where else ""
        hint = f" {self.hint}" if self.hint else ""
        return f"{location}{self.message}{hint}"

    def problems(self) -> Sequence[DodonaError]:
        """Return the individual problems: the error itself, unless it combines several."""
        return self._problems or (self,)


class ConfigError(DodonaError):
    code = "config_invalid"
    exit_code = 3


class UntrustedConfig(ConfigError):
    """Values of a file that the user did not name, and may not have written."""

    code = "config_untrusted"


class ExtensionError(DodonaError):
    code = "extension_invalid"
    exit_code = 3


class StoreError(DodonaError):
    code = "store_unavailable"
    exit_code = 4
    http_status = 503


class RunFenced(StoreError):
    """A process that was presumed dead must not write to the run any more."""

    code = "run_fenced"
    http_status = 409


class WriteRejected(StoreError):
    """Shares the code of StoreError: to a caller, both are failures of the store."""


class TreeError(DodonaError):
    code = "tree_invalid"
    http_status = 422


class ReadError(TreeError):
    code = "tree_unreadable"


class UnexpectedEnd(ReadError):
    code = "tree_incomplete"


class LoadError(TreeError):
    """Shares the code of TreeError: to a program, a tree that does not load is invalid."""


class ExpressionError(TreeError):
    code = "expression_failed"


class BlackboardError(TreeError):
    code = "blackboard_refused"


class KeyMissing(BlackboardError, KeyError):
    """Also a KeyError, for code that treats the blackboard as a mapping."""

    code = "blackboard_key_missing"


class RunDiverged(TreeError):
    """A step that must not run twice differs from its recorded request: the run ends."""

    code = "run_diverged"
    http_status = 409


class ToolFailed(DodonaError):
    """A tool could not do it, and calling it again does not help. The model reads the text."""

    code = "tool_failed"
    http_status = 502


class ToolRetry(DodonaError):
    """The model should call the tool again, with other arguments. It reads the text."""

    code = "tool_call_invalid"
    http_status = 422


class Conflict(ToolRetry):
    """Another writer was faster. Its changes are not overwritten."""

    code = "conflict"
    http_status = 409


class ProviderErrorKind(Enum):
    """The kind of provider failure; the first five are worth a retry."""

    CONNECTION = "connection"  # no connection, or it broke before the answer began
    RATE_LIMITED = "rate_limited"
    SERVER = "server"  # 5xx, overloaded
    NO_FIRST_TOKEN = "silent"  # no first token before the timeout
    INTERRUPTED = "cut"  # the stream stalled, or ended without a finish event
    REJECTED = "refused"  # 4xx: the request is invalid
    UNAUTHORIZED = "unauthorised"
    CONTEXT_TOO_LONG = "too_long"  # exceeds the model's context window
    MALFORMED = "garbled"  # the answer violates the protocol


class ProviderError(DodonaError):
    """A model call failed. `retry_after` is the delay that the provider requests, in seconds."""

    code = "provider_failed"
    exit_code = 5
    http_status = 502

    def __init__(
        self,
        message: str,
        *,
        kind: ProviderErrorKind,
        provider: str,
        status: int | None = None,
        retry_after: float | None = None,
        hint: str = "",
    ) -> None:
        super().__init__(message, hint=hint)
        self.kind = kind
        self.provider = provider
        self.status = status
        self.retry_after = retry_after

    @property
    def is_retryable(self) -> bool:
        """Whether the same request may succeed later, or with another provider."""
        return self.kind in _RETRYABLE

    @property
    def may_be_billed(self) -> bool:
        """Whether the provider may have generated output. Not if it rejected the request."""
        is_rejected = self.kind is ProviderErrorKind.SERVER and self.status is not None
        return not is_rejected and self.kind not in _UNBILLED


_RETRYABLE = frozenset(
    {
        ProviderErrorKind.CONNECTION,
        ProviderErrorKind.RATE_LIMITED,
        ProviderErrorKind.SERVER,
        ProviderErrorKind.NO_FIRST_TOKEN,
        ProviderErrorKind.INTERRUPTED,
    }
)
_UNBILLED = frozenset(
    {
        ProviderErrorKind.CONNECTION,
        ProviderErrorKind.RATE_LIMITED,
        ProviderErrorKind.REJECTED,
        ProviderErrorKind.UNAUTHORIZED,
        ProviderErrorKind.CONTEXT_TOO_LONG,
    }
)


class BudgetExceeded(DodonaError):
    """`details` has the budget's scope, period, unit, limit, used, held, wanted and resets_at.

    If only reservations of calls in progress block it, `details` also has `retry_after`.
    `may_repeat` is False if the request has already caused costs or effects.
    """

    code = "budget_exceeded"
    exit_code = 6
    http_status = 429
    may_repeat = True

    @property
    def retry_after(self) -> int | None:
        """Seconds after which calls in progress may have ended; None if the budget is used up."""
        return self.details.get("retry_after")


class Unauthorized(DodonaError):
    """A required token is missing, or it is unknown, revoked or expired."""

    code = "unauthorized"
    exit_code = 7
    http_status = 401


class AccessDenied(DodonaError):
    code = "access_denied"
    exit_code = 7
    http_status = 403


class NotFound(DodonaError):
    code = "not_found"
    exit_code = 2
    http_status = 404


class Cancelled(DodonaError):
    code = "cancelled"
    exit_code = 8
    http_status = 409


class BadRequest(DodonaError):
    code = "bad_request"
    exit_code = 2
    http_status = 400


class InvalidField(BadRequest):
    """A field or parameter is invalid. `field` is its path, such as `messages[2].content`."""

    def __init__(self, message: str, *, field: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.field = field


class HeadMoved(BadRequest):
    """Another request moved the head of the conversation first: read it again."""

    code = "head_moved"
    http_status = 409


class LaneFull(BadRequest):
    """The conversation's queue is at the limit of its agent."""

    code = "queue_full"
    http_status = 429


class ContextFull(BadRequest):
    """The conversation and the question exceed the token budget of the context by over 10 %."""

    code = "context_full"
    http_status = 413


def from_body(body: ErrorBody) -> DodonaError:
    """Rebuild an error from its body; an unknown code becomes a DodonaError."""
    where = body.where or None
    kind = _classes_by_code().get(body.code)
    if kind is ProviderError:
        return ProviderError(
            body.message, kind=ProviderErrorKind.SERVER, provider="", hint=body.hint
        )
    error = (kind or DodonaError)(
        body.message,
        where=where and SourceLocation(where.file, where.line or 0, where.column or 0),
        hint=body.hint,
        problems=[from_body(each) for each in body.problems or ()],
        details=body.details or None,
    )
    if kind is None:
        error.code = body.code  # pyright: ignore[reportAttributeAccessIssue] - of this instance only
    return error


def body_from_json(values: Mapping[str, Any]) -> ErrorBody:
    """Return the body of an error that other code has written: it may lack parts."""
    texts = {name: str(values.get(name, "")) for name in ("message", "hint")}
    return msgspec.convert({"code": "error", **values, **texts}, ErrorBody)


def from_json(values: Mapping[str, Any]) -> DodonaError:
    """Rebuild an error from JSON that may lack parts."""
    return from_body(body_from_json(values))


def _classes_by_code() -> dict[str, type[DodonaError]]:
    classes: dict[str, type[DodonaError]] = {}
    pending: list[type[DodonaError]] = [DodonaError]
    while pending:
        kind = pending.pop(0)
        classes.setdefault(kind.code, kind)
        pending.extend(kind.__subclasses__())
    return classes


def as_text(error: DodonaError) -> str:
    """Render an error for people: one line per problem, each followed by its source excerpt."""
    blocks: list[str] = []
    for problem in error.problems():
        excerpt = problem.where.excerpt if problem.where else ""
        blocks.append(f"{problem}\n{excerpt}" if excerpt else str(problem))
    return "\n".join(blocks)


class ErrorPosition(msgspec.Struct, frozen=True):
    """Where a problem is."""

    file: str
    line: int | msgspec.UnsetType = msgspec.UNSET
    column: int | msgspec.UnsetType = msgspec.UNSET


class ErrorBody(msgspec.Struct, frozen=True, kw_only=True):
    """An error, as programs receive it."""

    code: Annotated[str, Meta(description="A stable, machine-readable code.")]
    message: Annotated[str, Meta(description="The problem.")]
    hint: Annotated[str, Meta(description="How to fix it; may be empty.")]
    where: ErrorPosition | msgspec.UnsetType = msgspec.UNSET
    problems: (
        Annotated[list[ErrorBody], Meta(description="All problems, if there are several.")]
        | msgspec.UnsetType
    ) = msgspec.UNSET
    details: (
        Annotated[
            dict[str, Any],
            Meta(description="Details; for a budget: scope, used, limit, resets_at and more."),
        ]
        | msgspec.UnsetType
    ) = msgspec.UNSET


def to_body(error: DodonaError) -> ErrorBody:
    """Return an error for programs; `where` and `details` are included if they are set."""
    where, problems = error.where, error.problems()
    unset = msgspec.UNSET
    return ErrorBody(
        code=error.code,
        message=error.message,
        hint=error.hint,
        where=ErrorPosition(where.file, where.line or unset, where.column or unset)
        if where
        else unset,
        details=msgspec.to_builtins(error.details, enc_hook=str) or unset,
        problems=[to_body(each) for each in problems] if len(problems) > 1 else unset,
    )


def as_json(error: DodonaError) -> dict[str, Any]:
    """Return an error as the JSON document of a response."""
    return {"error": msgspec.to_builtins(to_body(error))}


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    """Return a "Did you mean" sentence with the closest candidate, or an empty string."""
    # Comparing is quadratic in the length of the words, and untrusted files contain any word.
    near = get_close_matches(word[:80], [k for k in candidates if k != word], n=1, cutoff=0.6)
    return f"Did you mean '{near[0]}'?" if near else ""

"""Every error Dodona raises on purpose. The branch says who must act.

    DodonaError
    ├── ConfigError        the operator: a setting is wrong
    ├── StoreError         the operator: the database cannot be used
    │   └── Fenced             nobody: another process has taken the run over
    ├── TreeError          the tree author: a file does not read, load or run
    │   ├── ReadError          the text is not a form
    │   │   └── UnexpectedEnd      the text stops too early; more of it may help
    │   ├── LoadError          forms that are not a tree
    │   ├── ExpressionError    an expression met a value it cannot use
    │   ├── BlackboardError    a key or value the blackboard does not take
    │   │   └── KeyMissing         a key nobody has set
    │   └── Diverged           a run that is resumed would do another thing than before
    ├── ToolFailed         the model: the call had no result
    ├── ToolRetry          the model: the call was wrong, a better one may work
    │   └── Conflict           it changed meanwhile: look at it again
    ├── ProviderError      the runtime: retry or fall back
    ├── BudgetExceeded     whoever set the ceiling
    ├── Unauthorized       the caller: who are you?
    ├── AccessDenied       the caller: not allowed
    ├── NotFound           the caller: no such thing, or it is somebody else's
    ├── Cancelled          nobody: somebody asked for the end
    └── BadRequest         the caller: the request makes no sense
        ├── HeadMoved          somebody else was faster: look again where it goes on
        └── LaneFull           too much waits there already: later

Anything else that is raised is a bug and stays outside this tree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from typing import Any, ClassVar


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """A place in a text; `excerpt` shows its line with a caret under it.

    Column 0 is the whole line, line 0 the whole of what `file` names.
    """

    file: str
    line: int = 0
    column: int = 0
    excerpt: str = ""

    def __str__(self) -> str:
        return ":".join(str(part) for part in (self.file, self.line, self.column) if part)


class DodonaError(Exception):
    """What happened, where, and what to do next; or several mistakes found in one pass."""

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
        self.details = dict(details or {})  # the same for programs
        self._problems = tuple(problems)

    @classmethod
    def combine(cls, problems: Sequence[DodonaError]) -> DodonaError:
        """The one mistake found, or an error that holds them all."""
        if len(problems) == 1:
            return problems[0]
        return cls(f"{len(problems)} mistakes.", problems=problems)

    def __str__(self) -> str:
        """Where, what, what to do, on one line; of several mistakes, a line for each."""
        if self._problems:
            return "\n".join(str(problem) for problem in self._problems)
        place = f"{self.where}: " if self.where else ""
        hint = f" {self.hint}" if self.hint else ""
        return f"{place}{self.message}{hint}"

    def problems(self) -> Sequence[DodonaError]:
        """The single mistakes this error reports: itself, unless it gathers several."""
        return self._problems or (self,)


class ConfigError(DodonaError):
    code = "config_invalid"
    exit_code = 3


class StoreError(DodonaError):
    code = "store_unavailable"
    exit_code = 4
    http_status = 503


class RunFenced(StoreError):
    """A process that was taken for dead must not write any more."""

    code = "run_fenced"
    http_status = 409


class TreeError(DodonaError):
    code = "tree_invalid"
    http_status = 422


class ReadError(TreeError):
    code = "tree_unreadable"


class UnexpectedEnd(ReadError):
    code = "tree_incomplete"


class LoadError(TreeError):
    """Shares its code: to a program, a tree that does not load is invalid."""


class ExpressionError(TreeError):
    code = "expression_failed"


class BlackboardError(TreeError):
    code = "blackboard_refused"


class KeyMissing(BlackboardError, KeyError):
    """A mapping's own way to say so, for whoever treats the blackboard as one."""

    code = "blackboard_key_missing"


class RunDiverged(TreeError):
    """What must not be done twice was asked for otherwise the first time: the run ends."""

    code = "run_diverged"
    http_status = 409


class ToolFailed(DodonaError):
    code = "tool_failed"
    http_status = 502


class ToolRetry(DodonaError):
    code = "tool_call_invalid"
    http_status = 422


class Conflict(ToolRetry):
    """Somebody else was faster; nothing of theirs is lost."""

    code = "conflict"
    http_status = 409


class ProviderErrorKind(Enum):
    """What went wrong at a provider; the first five are worth another try."""

    CONNECTION = "connection"  # nobody answers, or the line broke before an answer began
    RATE_LIMITED = "rate_limited"
    SERVER = "server"  # 5xx, overloaded
    NO_FIRST_TOKEN = "silent"  # no first token in time
    INTERRUPTED = "cut"  # the stream ended without a finish, or stalled in mid-answer
    REJECTED = "refused"  # 4xx: the request is wrong
    UNAUTHORIZED = "unauthorised"
    CONTEXT_TOO_LONG = "too_long"  # more than the model's window
    MALFORMED = "garbled"  # the answer does not follow the protocol


class ProviderError(DodonaError):
    """A model call came to nothing. `retry_after` is what the provider asked for, in seconds."""

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
        """May the same request work a moment later, or elsewhere?"""
        return self.kind in _RETRYABLE

    @property
    def may_be_billed(self) -> bool:
        """Has the provider perhaps made something? Not when it turned the request down."""
        is_turned_down = self.kind is ProviderErrorKind.SERVER and self.status is not None
        return not is_turned_down and self.kind not in _UNBILLED


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
    """`details` are the budget's scope, period, unit, limit, used, held, wanted and resets_at."""

    code = "budget_exceeded"
    exit_code = 6
    http_status = 429


class Unauthorized(DodonaError):
    """No token where one is needed, or one that does not count."""

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


class HeadMoved(BadRequest):
    """Somebody else was faster: whoever asked should look again."""

    code = "head_moved"
    http_status = 409


class LaneFull(BadRequest):
    """A conversation has more to answer than its agent lets wait."""

    code = "queue_full"
    http_status = 429


def from_json(body: Mapping[str, Any]) -> DodonaError:
    """What `as_json` made of an error, as an error again; of an unknown code, the root has it."""
    message, hint, code = (str(body.get(name, "")) for name in ("message", "hint", "code"))
    kind = _classes_by_code().get(code)
    if kind is ProviderError:
        return ProviderError(message, kind=ProviderErrorKind.SERVER, provider="", hint=hint)
    where = SourceLocation(**body["where"]) if "where" in body else None
    problems = [from_json(problem) for problem in body.get("problems", ())]
    details = body.get("details")
    error = (kind or DodonaError)(
        message, where=where, hint=hint, problems=problems, details=details
    )
    if kind is None and code:
        error.code = code  # pyright: ignore[reportAttributeAccessIssue] - of this one only
    return error


def _classes_by_code() -> dict[str, type[DodonaError]]:
    found: dict[str, type[DodonaError]] = {}
    pending: list[type[DodonaError]] = [DodonaError]
    while pending:
        kind = pending.pop(0)
        found.setdefault(kind.code, kind)
        pending.extend(kind.__subclasses__())
    return found


def as_text(error: DodonaError) -> str:
    """What a person reads: each mistake on its line, its place in the file under it."""
    blocks: list[str] = []
    for problem in error.problems():
        excerpt = problem.where.excerpt if problem.where else ""
        blocks.append(f"{problem}\n{excerpt}" if excerpt else str(problem))
    return "\n".join(blocks)


def as_json(error: DodonaError) -> dict[str, Any]:
    """What a program reads; `where` is there when the mistake has a place, `details` if any."""
    body: dict[str, Any] = {"code": error.code, "message": error.message, "hint": error.hint}
    if error.where:
        place = {"line": error.where.line, "column": error.where.column}
        known = {name: number for name, number in place.items() if number}
        body["where"] = {"file": error.where.file, **known}
    if error.details:
        body["details"] = error.details
    problems = error.problems()
    if len(problems) > 1:
        body["problems"] = [as_json(problem)["error"] for problem in problems]
    return {"error": body}


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    """A sentence that names the closest known word, or nothing."""
    # Comparing is quadratic in the words' lengths, and a hostile file chooses its own.
    near = get_close_matches(word[:80], [k for k in candidates if k != word], n=1, cutoff=0.6)
    return f"Did you mean '{near[0]}'?" if near else ""

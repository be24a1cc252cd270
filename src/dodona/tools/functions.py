"""Tools that are Python functions with type hints: `@tool`.

    @tool(effect="keyed")
    async def book_room(ctx: Context, room: str, hours: int = 1) -> str:
        \"\"\"Book a meeting room.

        room: the room's name
        \"\"\"

| the function returns                          | the model reads                                  |
|-----------------------------------------------|--------------------------------------------------|
| text                                          | the text                                         |
| None                                          | "Done."                                          |
| a model, dataclass, dict, list, set or number | JSON                                             |
| `Result(…, sources=[…])`                      | its content; the user sees the sources           |
| anything else                                 | an error that names the type                     |
"""

from __future__ import annotations

import asyncio
import inspect
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Final, Literal, TypeAlias, TypedDict, TypeVar, Unpack, cast, overload

from dodona.concurrency.workers import post_to_loop
from dodona.core.errors import ConfigError, ToolFailed, did_you_mean
from dodona.core.extensions import Extension, attach, location_of, underlying_function
from dodona.core.messages import Origin, ToolSpec
from dodona.core.ports.journal import Effect
from dodona.core.ports.tools import SourceKind, SourceReference, ToolContext, ToolOutput
from dodona.tools.arguments import ArgumentReader
from dodona.tools.blocking_calls import call_in_thread
from dodona.tools.registry import (
    CATEGORY_PATTERN,
    DEFAULT_SCOPE,
    DEFAULT_TIMEOUT_SECONDS,
    NAME_PATTERN,
    FunctionTool,
)
from dodona.tools.signatures.json_values import encode_json
from dodona.tools.signatures.signature import FunctionSignature, Problems, read_signature

DEFAULT_CATEGORY: Final = "custom"

_BINARY: Final = (bytes, bytearray, memoryview)

EffectName: TypeAlias = Literal["none", "keyed", "once"]
F = TypeVar("F", bound=Callable[..., Any])


class Context:
    """The call that a tool's function is executing: its user, project, run and deadline.

    Every method may be called from any thread.
    """

    __slots__ = ("_call", "_cancelled", "_has_ended", "_loop", "_thread", "deadline")

    def __init__(self, call: ToolContext, *, timeout_seconds: float) -> None:
        self._call = call
        self.deadline = time.monotonic() + timeout_seconds  # a time of `time.monotonic`
        self._cancelled = threading.Event()
        self._has_ended = False
        self._thread = threading.get_ident()
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:
            self._loop = None  # a test calls the function directly

    @property
    def user_id(self) -> str:
        """The user who asked."""
        return self._call.user_id

    @property
    def project_id(self) -> str:
        """The project of the run."""
        return self._call.project_id

    @property
    def run_id(self) -> int:
        """The run that makes the call."""
        return self._call.run_id

    @property
    def agent(self) -> str:
        """The agent that makes the call."""
        return self._call.agent

    @property
    def key(self) -> str:
        """The idempotency key: the same when the call is repeated after a crash."""
        return self._call.key

    @property
    def seconds_left(self) -> float:
        """The seconds until the deadline; 0 after it."""
        return max(0.0, self.deadline - time.monotonic())

    @property
    def is_cancelled(self) -> bool:
        """Whether the call has timed out or its run was cancelled. Check it in long loops."""
        return self._cancelled.is_set()

    def wait_cancelled(self, seconds: float) -> bool:
        """Block this thread until the call is cancelled, or for some seconds: only in a `def`."""
        return self._cancelled.wait(seconds)

    def progress(self, message: str) -> None:
        """Show the user a message about the progress of the call."""
        self._send(self._call.report, message)

    def emit(self, text: str) -> None:
        """Send text to the user at once, as a part of the answer."""
        self._send(self._call.emit, text)

    def _send(self, send: Callable[[str], None], text: str) -> None:
        if self._loop is None or threading.get_ident() == self._thread:
            self._deliver(send, text)
        else:
            post_to_loop(self._loop, self._deliver, send, text)

    def _deliver(self, send: Callable[[str], None], text: str) -> None:
        # An abandoned thread may still send; the run does not accept it any more.
        if not self._has_ended:
            send(text)

    def end(self, *, is_cancelled: bool) -> None:
        """Discard what the function sends from now on; a cancellation becomes visible to it."""
        self._has_ended = True
        if is_cancelled:
            self._cancelled.set()


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a tool with its sources: paths, URLs or `SourceReference` objects."""

    content: Any
    sources: Iterable[str | PurePath | SourceReference] = ()


class FunctionToolOptions(TypedDict, total=False):
    """The options of `@tool`. The defaults are the safe assumptions for an unknown tool."""

    name: str | None
    description: str | None
    category: str
    scope: tuple[str, ...]
    effect: EffectName
    writes: bool
    sends: bool
    reads_private: bool
    untrusted: bool
    timeout_seconds: float


@overload
def tool(function: F, /) -> F: ...
@overload
def tool(**options: Unpack[FunctionToolOptions]) -> Callable[[F], F]: ...
def tool(
    function: F | None = None, /, **options: Unpack[FunctionToolOptions]
) -> F | Callable[[F], F]:
    """Declare that a function is a tool. The function stays as it is: call it in your tests.

    The name and the description default to those of the function. `scope` names the agents that may
    use it. `effect` is what a second call after a crash would do: nothing ("none"), nothing with
    the same `ctx.key` ("keyed"), or the same again ("once"). `writes` says whether a call changes
    something, `sends` whether arguments leave this machine, `reads_private` whether the result
    must not leave it. Set `untrusted` if the result may contain text of strangers, such as a web
    page or a ticket: calls that follow it and write or send then need an approval.
    """

    def declare(declared: F) -> F:
        attach(declared, ToolDeclaration(declared, options))
        return declared

    return declare if function is None else declare(function)


@dataclass(frozen=True, slots=True, eq=False)
class ToolDeclaration(Extension):
    """A function that `@tool` has declared, with its options."""

    function: Callable[..., Any]
    options: FunctionToolOptions

    @property
    def name(self) -> str:
        """The name of the tool."""
        inner = underlying_function(self.function)
        return self.options.get("name") or str(getattr(inner, "__name__", inner))

    def build(self) -> FunctionTool:
        """Build the tool. Raises one ExtensionError with all problems of the declaration."""
        problems = Problems(self.name[:80], location_of(self.function))
        _check_kind(self.function, problems)
        signature = read_signature(self.function, context_type=Context, problems=problems)
        description = self.options.get("description") or signature.description
        self._check_options(description, problems)
        problems.raise_any()
        spec = ToolSpec(self.name, description.strip(), signature.schema)
        try:
            ArgumentReader(spec)
        except ConfigError as error:  # such as a regular expression that JSON Schema does not have
            problems.add_error(error)
            problems.raise_any()
        options = self.options
        timeout_seconds = options.get("timeout_seconds", DEFAULT_TIMEOUT_SECONDS)
        return FunctionTool(
            spec=spec,
            function=_FunctionCall(self.name, self.function, signature, timeout_seconds),
            category=options.get("category", DEFAULT_CATEGORY),
            agent_scope=tuple(options.get("scope", DEFAULT_SCOPE)),
            effect=Effect(options.get("effect", Effect.ONCE.value)),
            origin=Origin.PLUGIN if options.get("untrusted") else Origin.PROJECT,
            writes=options.get("writes", True),
            sends=options.get("sends", True),
            reads_private=options.get("reads_private", True),
            timeout_seconds=timeout_seconds,
        )

    def _check_options(self, description: str, problems: Problems) -> None:
        for option in self.options.keys() - FunctionToolOptions.__annotations__.keys():
            names = FunctionToolOptions.__annotations__
            hint = did_you_mean(option, names) or f"Available: {', '.join(names)}."
            problems.add(f"has the unknown option '{option}'.", hint)
        if not description.strip():
            problems.add(
                "has no description.", "Write a docstring: the model chooses a tool by it."
            )
        if not NAME_PATTERN.fullmatch(self.name):
            problems.add("has an invalid name.", "Use up to 64 letters, digits, '_' and '-'.")
        if not CATEGORY_PATTERN.fullmatch(
            category := self.options.get("category", DEFAULT_CATEGORY)
        ):
            text = f"has the invalid category '{category[:80]}'."
            problems.add(text, "Use up to 40 letters, digits, '_' and '-'.")
        if isinstance(scope := self.options.get("scope", DEFAULT_SCOPE), str):
            problems.add("has a string as its scope.", f'Write ("{scope}",).')
        effects = [each.value for each in Effect]
        if (effect := self.options.get("effect", Effect.ONCE.value)) not in effects:
            hint = did_you_mean(str(effect), effects) or f"Available: {', '.join(effects)}."
            problems.add(f"has the unknown effect '{effect}'.", hint)
        seconds = self.options.get("timeout_seconds", DEFAULT_TIMEOUT_SECONDS)
        if not _is_positive_number(seconds):
            problems.add(f"must have a timeout > 0 seconds (got {seconds!r}).")


def _is_positive_number(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value) and value > 0


def _check_kind(function: Callable[..., Any], problems: Problems) -> None:
    if inspect.isclass(function):
        problems.add("is a class.", "Decorate a function.")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        problems.add("is a generator.", "Return the whole result; send parts of it with ctx.emit.")


@dataclass(frozen=True, slots=True)
class _FunctionCall:
    """Calls the function of a tool with converted arguments."""

    tool: str
    function: Callable[..., Any]
    signature: FunctionSignature
    timeout_seconds: float

    async def __call__(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        ctx = Context(context, timeout_seconds=self.timeout_seconds)
        values = self.signature.convert(self.tool, arguments)
        if self.signature.context_parameter is not None:
            values[self.signature.context_parameter] = ctx
        is_cancelled = False
        try:
            return _to_output(self.tool, await self._call(values))
        except asyncio.CancelledError:
            is_cancelled = True
            raise
        except SystemExit:
            # It would end the process, and with it every other run.
            raise ToolFailed(f"{self.tool} called sys.exit, which a tool cannot do.") from None
        finally:
            ctx.end(is_cancelled=is_cancelled)

    async def _call(self, values: Mapping[str, Any]) -> Any:
        if _is_async(self.function):
            return await self.function(**values)
        result = await call_in_thread(lambda: self.function(**values), tool=self.tool)
        # A decorator may have wrapped an async function in a sync one.
        return await result if inspect.isawaitable(result) else result


def _is_async(function: Callable[..., Any]) -> bool:
    method = getattr(function, "__call__", None)  # noqa: B004 - the method may be async
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(method)


# -- results ---------------------------------------------------------------------------------------


def _to_output(tool: str, value: Any) -> ToolOutput:
    result = value if isinstance(value, Result) else Result(value)
    sources = [result.sources] if isinstance(result.sources, str) else result.sources
    return ToolOutput(
        _to_text(tool, result.content), tuple(_to_source(tool, each) for each in sources)
    )


def _to_text(tool: str, value: Any) -> str:
    if value is None:
        return "Done."
    if isinstance(value, str):
        return str(value).encode(errors="replace").decode()  # half of a surrogate pair is no text
    kind = cast(type[Any], type(value))
    if not issubclass(kind, _BINARY):  # JSON would have it in base64, which no model reads
        try:
            return encode_json(value).decode()
        except (TypeError, ValueError, OverflowError, RecursionError):
            pass
    raise ToolFailed(
        f"{tool} returned an object of the type {kind.__name__}, which is no result.",
        hint="A tool returns text, a model, JSON values, a Result, or None.",
    )


def _to_source(tool: str, source: object) -> SourceReference:
    if isinstance(source, SourceReference):
        return source
    if not isinstance(source, str | PurePath):
        raise ToolFailed(
            f"{tool} returned a source of the type {type(source).__name__}.",
            hint="A source is a path, a URL or a SourceReference.",
        )
    path = str(source)
    is_url = path.startswith(("http://", "https://"))
    return SourceReference(path, kind=SourceKind.WEB if is_url else SourceKind.NOTE)

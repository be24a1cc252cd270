"""Stream a model call over HTTP, with timeouts and size limits, for any provider API."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping
from itertools import groupby
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

import aiohttp
import msgspec
from pydantic import Field

from dodona.core.errors import ProviderError, ProviderErrorKind
from dodona.core.messages import AssistantText
from dodona.core.ports.model import (
    Done,
    FinishReason,
    ModelEvent,
    ModelRequest,
    ModelTimeouts,
    TextDelta,
    ThinkingDelta,
    Usage,
)
from dodona.documents import Section
from dodona.models.errors import ProviderErrorFactory, read_details
from dodona.models.parameters import RejectedParameters
from dodona.models.provider import ModelEndpoint
from dodona.models.sse import MAX_EVENT_BYTES, EventTooLong, SseParser
from dodona.models.surrogates import SurrogateJoiner
from dodona.net.http import HttpPool

MAX_ANSWER_BYTES = 64 * 1024 * 1024
MAX_ERROR_BYTES = 64 * 1024
ERROR_READ_TIMEOUT = 5.0
DRAIN_TIMEOUT = 0.05

E = TypeVar("E")  # an event of the stream


class Timeouts(Section):
    """Timeouts for requests to the provider, in seconds."""

    connect: float = Field(default=10.0, gt=0, description="Time to establish a connection.")
    first_token: float = Field(
        default=180.0,
        gt=0,
        description="Time until the first token of the answer. Reasoning models may need long.",
    )
    gap: float = Field(
        default=90.0,
        gt=0,
        description="Time between two chunks of a streamed answer.",
    )


class AnswerDecoder(ABC, Generic[E]):
    """Decodes one response. Decoded events are queued in `ready`."""

    def __init__(
        self, endpoint: ModelEndpoint, errors: ProviderErrorFactory, event_type: type[E]
    ) -> None:
        self.ready: deque[ModelEvent] = deque()
        self.is_finished = False  # `Done` was queued
        self._endpoint = endpoint
        self._errors = errors
        self._surrogates = SurrogateJoiner()
        self._decode = msgspec.json.Decoder(event_type).decode
        self._model = endpoint.model
        self._wire_finish = ""
        self._wire_usage: dict[str, Any] = {}

    @property
    @abstractmethod
    def usage(self) -> Usage:
        """The usage reported so far."""

    @abstractmethod
    def read_event(self, data: bytes) -> None:
        """Decode the data of one event of the stream."""

    @abstractmethod
    def read_whole(self, body: bytes) -> None:
        """Decode a response that was not streamed, although a stream was requested."""

    @abstractmethod
    def end(self) -> None:
        """Handle the end of the stream: finish if the answer is complete, else raise."""

    def _decode_repaired(self, data: bytes) -> E:
        """Decode an event that could not be decoded as it is."""
        try:
            return self._decode(self._surrogates.repair(data))
        except (msgspec.DecodeError, RecursionError) as error:
            raise self._errors.malformed(str(error), data) from error

    def _queue_done(self, finish: FinishReason, message: AssistantText) -> None:
        provider = self._endpoint.provider.name
        self.is_finished = True
        self.ready.append(Done(finish, message, self.usage, provider, self._model))


class Wire(Protocol):
    """Encodes requests and decodes responses of one provider API."""

    @property
    def url(self) -> str: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    @property
    def errors(self) -> ProviderErrorFactory: ...

    @property
    def rejected(self) -> RejectedParameters: ...

    def encode_request(self, request: ModelRequest, rejected: frozenset[str]) -> bytes: ...

    def new_decoder(self) -> AnswerDecoder[Any]: ...


class WireModel:
    """A `Model` that is called over HTTP."""

    def __init__(
        self, wire: Wire, *, http: HttpPool, timeouts: ModelTimeouts, provider: str, name: str
    ) -> None:
        self._wire = wire
        self._http = http
        self._timeouts = timeouts
        self._provider = provider
        self._name = name

    @property
    def provider(self) -> str:
        return self._provider

    @property
    def name(self) -> str:
        return self._name

    def stream(self, request: ModelRequest) -> WireStream:
        """Return the stream of one answer."""
        return WireStream(self._wire, request, http=self._http, timeouts=self._timeouts)


class WireStream:
    """The events of one answer. The request is sent by the first `anext`, not on entering."""

    def __init__(
        self, wire: Wire, request: ModelRequest, *, http: HttpPool, timeouts: ModelTimeouts
    ) -> None:
        self._wire = wire
        self._request = request
        self._http = http
        self._timeouts = timeouts
        self._decoder = wire.new_decoder()
        self._ready = self._decoder.ready
        self._response: aiohttp.ClientResponse | None = None
        self._parser: SseParser | None = None  # None: the response is not streamed
        self._pieces: list[bytes] = []
        self._size = 0
        self._is_over = False
        self._failure: ProviderError | None = None

    @property
    def usage(self) -> Usage:
        return self._decoder.usage

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_over = True
        self._ready.clear()
        response = self._response
        if response is None:
            return
        try:
            if kind is None and self._decoder.is_finished:
                # Read the end of the transfer, so that the pool can reuse the connection. A
                # provider that keeps the connection open is not waited for.
                async with asyncio.timeout(DRAIN_TIMEOUT):
                    await response.content.wait_eof()
        except (TimeoutError, aiohttp.ClientError, OSError):
            pass
        finally:
            response.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ModelEvent:
        ready = self._ready
        if not ready:
            if not self._is_over:
                await self._fetch_events()
            if not ready:
                if self._failure is None:
                    raise StopAsyncIteration
                failure, self._failure = self._failure, None
                raise failure
        return ready.popleft()

    async def _fetch_events(self) -> None:
        """Wait for events. A failure is raised only after the events before it."""
        try:
            if self._response is None:
                await self._start()
            if not (self._ready or self._is_over):
                await self._wait_for_event()
        except ProviderError as error:
            self._failure = error
            self._close()
        except BaseException:
            self._close()
            raise

    def _close(self) -> None:
        self._is_over = True
        if self._response is not None:
            self._response.close()

    async def _start(self) -> None:
        """Send the request and wait for the first event."""
        seconds = self._timeouts.first_token
        try:
            async with asyncio.timeout(seconds):
                self._response = await self._request_answer()
                await self._check_content_type(self._response)
                while not (self._ready or self._is_over):
                    self._process_chunk(await self._read_chunk())
        except TimeoutError as error:
            raise self._wire.errors.build(
                f"did not respond within {seconds:g} seconds", ProviderErrorKind.NO_FIRST_TOKEN
            ) from error

    async def _request_answer(self) -> aiohttp.ClientResponse:
        """Send the request; again without each optional parameter that the provider rejects."""
        wire, rejected = self._wire, self._wire.rejected.names
        body = wire.encode_request(self._request, rejected)
        while True:
            self._response = response = await self._send_request(body)
            if response.status == 200:
                wire.rejected.remember(rejected)
                return response
            error_body = await self._read_error()
            error = wire.errors.from_response(response.status, response.headers, error_body)
            if not _is_invalid_request(error):
                raise error
            rejected |= {wire.rejected.find(read_details(error_body))}
            shorter = wire.encode_request(self._request, rejected)
            if shorter == body:
                raise error
            response.close()
            body = shorter

    async def _send_request(self, body: bytes) -> aiohttp.ClientResponse:
        try:
            return await self._http.post(
                self._wire.url,
                body,
                headers=self._wire.headers,
                connect_seconds=self._timeouts.connect,
            )
        except (aiohttp.ClientError, OSError) as error:
            raise self._wire.errors.build(
                "cannot be reached",
                ProviderErrorKind.CONNECTION,
                detail=str(error) or type(error).__name__,
            ) from error

    async def _check_content_type(self, response: aiohttp.ClientResponse) -> None:
        """Prepare for a stream or a whole response; raise if it is neither."""
        if response.content_type == "text/html":
            raise self._wire.errors.malformed("it is an HTML page", await self._read_error())
        if response.content_type != "application/json":
            self._parser = SseParser()

    async def _read_error(self) -> bytes:
        """Read the start of an error body, as much as arrives in time."""
        body = b""
        try:
            async with asyncio.timeout(ERROR_READ_TIMEOUT):
                while len(body) < MAX_ERROR_BYTES and (chunk := await self._read_chunk()):
                    body += chunk
        except (TimeoutError, ProviderError):
            pass
        return body

    async def _wait_for_event(self) -> None:
        """Wait for the next event. Keep-alive comments do not count."""
        seconds = self._timeouts.gap
        try:
            async with asyncio.timeout(seconds):
                while not (self._ready or self._is_over):
                    self._process_chunk(await self._read_chunk())
        except TimeoutError as error:
            raise self._wire.errors.interrupted(
                f"no data was received for {seconds:g} seconds"
            ) from error

    async def _read_chunk(self) -> bytes:
        assert self._response is not None
        try:
            return await self._response.content.readany()
        except (aiohttp.ClientError, OSError) as error:
            raise self._wire.errors.interrupted(str(error) or type(error).__name__) from error

    def _process_chunk(self, chunk: bytes) -> None:
        """Process received bytes; an empty chunk is the end of the response."""
        if not chunk:
            self._finish()
        elif self._parser is None:
            self._pieces.append(chunk)
        else:
            self._read_events(self._parser, chunk)
        self._is_over = self._is_over or self._decoder.is_finished
        self._size += len(chunk)
        if self._size > MAX_ANSWER_BYTES:
            raise self._wire.errors.malformed(f"it is larger than {MAX_ANSWER_BYTES:,} bytes")

    def _read_events(self, parser: SseParser, chunk: bytes) -> None:
        decoder = self._decoder
        try:
            events = parser.feed(chunk)
        except EventTooLong as error:
            raise self._wire.errors.malformed(
                f"an event is larger than {MAX_EVENT_BYTES:,} bytes"
            ) from error
        for data in events:
            decoder.read_event(data)
            if decoder.is_finished:
                break
        if len(self._ready) > 2:
            _merge_deltas(self._ready)

    def _finish(self) -> None:
        self._is_over = True
        if self._parser is None:
            self._decoder.read_whole(b"".join(self._pieces))
            return
        for data in self._parser.flush():
            try:
                self._decoder.read_event(data)
            except ProviderError as error:
                if error.kind is not ProviderErrorKind.MALFORMED:  # an incomplete last event
                    raise
        if not self._decoder.is_finished:
            self._decoder.end()


def _is_invalid_request(error: ProviderError) -> bool:
    return error.kind is ProviderErrorKind.REJECTED and error.status in {400, 422}


def _merge_deltas(ready: deque[ModelEvent]) -> None:
    """Merge text deltas that were received together, to save work downstream."""
    events = tuple(ready)
    ready.clear()
    for kind, group in groupby(events, type):
        same_kind = tuple(group)
        if kind is TextDelta:
            ready.append(TextDelta(_join_text(same_kind)))
        elif kind is ThinkingDelta:
            ready.append(ThinkingDelta(_join_text(same_kind)))
        else:
            ready.extend(same_kind)


def _join_text(events: tuple[ModelEvent, ...]) -> str:
    return "".join([each.text for each in events if isinstance(each, TextDelta | ThinkingDelta)])

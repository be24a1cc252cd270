"""What a client of OpenAI's wire hears: of a run from its chunks, of a model from its events.

chunk of a run                          delta
content                                 content
thinking                                reasoning_content
tool_call, tool_result                  none: the agent's own tools are not the client's to call
source, system, context_update,
approval                                none: what an answer cites is in its text
restart                                 none, if what was sent still stands
done                                    the finish
error                                   raised
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final
from uuid import uuid4

from dodona.core.chunks import Chunk
from dodona.core.errors import from_json
from dodona.core.messages import ToolCall
from dodona.core.ports.model import CallDelta, Done, ModelEvent, Restart, TextDelta, ThinkingDelta
from dodona.gateway.http.openai_errors import OpenAiError
from dodona.gateway.v1.completion import FINISHES, Delta

_BETWEEN: Final = "\n\n"  # what an agent says before and after it has used tools


class RunDeltas:
    """A run, chunk by chunk: `text` and `thinking` as they stand, `finish` once it has ended.

    A stream cannot take back what it has sent. When a model begins anew, what it says again is not
    sent again; when it says something else, that is an error.
    """

    def __init__(self, *, streams: bool) -> None:
        self.finish = ""
        self._streams = streams
        self._said: list[tuple[int, str]] = []  # with the places of the chunks
        self._thoughts: list[tuple[int, str]] = []
        self._sent: list[str] = []
        self._begins_anew = False
        self._has_worked = False  # since something was said
        self._takers: Mapping[str, Callable[[Chunk], Delta | None]] = {
            "content": self._content,
            "thinking": self._thinking,
            "tool_call": self._work,
            "tool_result": self._work,
            "restart": self._restart,
            "done": self._done,
            "error": self._error,
        }

    @property
    def text(self) -> str:
        return "".join([text for _, text in self._said])

    @property
    def thinking(self) -> str:
        return "".join([text for _, text in self._thoughts])

    def take(self, chunk: Chunk) -> Delta | None:
        """What is to be sent for a chunk, if anything; the error that ended a run is raised."""
        taker = self._takers.get(chunk.body["type"])
        return None if taker is None else taker(chunk)

    def _content(self, chunk: Chunk) -> Delta | None:
        text: str = chunk.body["content"]
        if self._has_worked and self._said:
            text = _BETWEEN + text
        self._has_worked = False
        self._said.append((chunk.seq, text))
        if self._streams and self._begins_anew:
            text = self._unsent()
        else:
            self._sent.append(text)
        return {"content": text} if text else None

    def _unsent(self) -> str:
        whole, sent = self.text, "".join(self._sent)
        if whole.startswith(sent):
            self._sent, self._begins_anew = [whole], False
            return whole[len(sent) :]
        if sent.startswith(whole):
            return ""
        raise OpenAiError("the model began its answer anew.", hint="Ask again, or without stream.")

    def _thinking(self, chunk: Chunk) -> Delta:
        text: str = chunk.body["content"]
        self._thoughts.append((chunk.seq, text))
        return {"reasoning_content": text}

    def _work(self, _chunk: Chunk) -> None:
        self._has_worked = True

    def _restart(self, chunk: Chunk) -> None:
        last: int = chunk.body["discard_after"]
        before = len(self._said)
        self._said = [each for each in self._said if each[0] <= last]
        self._thoughts = [each for each in self._thoughts if each[0] <= last]
        self._begins_anew = self._begins_anew or len(self._said) < before

    def _done(self, chunk: Chunk) -> None:
        self.finish = FINISHES[chunk.body.get("finish", "stop")]

    def _error(self, chunk: Chunk) -> None:
        raise from_json(chunk.body["error"])


class ModelDeltas:
    """The answer of a model that is relayed: its calls are the client's to make."""

    def __init__(self) -> None:
        self._calls: dict[int, str] = {}  # the ids under which they were sent
        self._held: dict[int, str] = {}  # arguments of calls whose name has not come yet

    def take(self, event: ModelEvent) -> Iterator[Delta]:
        match event:
            case TextDelta(text):
                yield {"content": text}
            case ThinkingDelta(text):
                yield {"reasoning_content": text}
            case CallDelta():
                yield from self._call(event)
            case Restart(reason):
                raise OpenAiError(f"the model began its answer anew: {reason}", hint="Ask again.")
            case Done():
                yield from self._left(event.message.calls)

    def _call(self, piece: CallDelta) -> Iterator[Delta]:
        index = piece.index
        if index in self._calls:
            if piece.text:
                yield _calls({"index": index, "function": {"arguments": piece.text}})
            return
        self._held[index] = self._held.get(index, "") + piece.text
        if piece.name:
            yield self._begin(index, piece.id, piece.name)

    def _begin(self, index: int, id_: str, name: str) -> Delta:
        is_new = bool(id_) and id_ not in self._calls.values()
        self._calls[index] = id_ if is_new else f"call_{uuid4().hex[:24]}"
        function = {"name": name, "arguments": self._held.pop(index, "")}
        begun = {"index": index, "id": self._calls[index], "type": "function"}
        return _calls({**begun, "function": function})

    def _left(self, calls: tuple[ToolCall, ...]) -> Iterator[Delta]:
        """Those of which no piece came before the end."""
        for index, call in enumerate(calls):
            if index not in self._calls:
                self._held[index] = call.arguments
                yield self._begin(index, call.id, call.name)


def _calls(piece: Mapping[str, Any]) -> Delta:
    return {"tool_calls": [dict(piece)]}

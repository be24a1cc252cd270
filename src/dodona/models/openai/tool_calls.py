"""The calls of an answer, put together from the pieces that OpenAI-compatible servers send.

OpenAI numbers the calls and sends each in many pieces. Others send whole calls, leave the number
or the id out, give every call the number 0, or change the id from piece to piece.
"""

from __future__ import annotations

from typing import Any

import msgspec

from dodona.core.messages import ToolCall
from dodona.core.ports.model import CallDelta
from dodona.models.encoding import is_json_object, new_call_id


class FunctionPiece(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class CallPiece(msgspec.Struct, gc=False):
    index: int | None = None
    id: str | None = None
    function: FunctionPiece | None = None
    extra_content: msgspec.Raw = msgspec.Raw()


class _PartialCall:
    __slots__ = ("extra", "id", "is_whole", "name", "pieces")

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.pieces: list[str] = []
        self.is_whole = False  # came with all its arguments at once
        self.extra = b""

    def differs_from(self, id_: str, name: str) -> bool:
        """Does a piece with this id and name begin another call?"""
        if not name or not self.name:
            return False
        if id_ and self.id:
            return id_ != self.id
        return self.is_whole or name != self.name


class CallAssembler:
    """The calls so far, in the order in which they began."""

    __slots__ = ("_by_id", "_by_index", "_calls")

    def __init__(self) -> None:
        self._calls: list[_PartialCall] = []
        self._by_index: dict[int, int] = {}
        self._by_id: dict[str, int] = {}

    def __bool__(self) -> bool:
        return bool(self._calls)

    def add(self, piece: CallPiece) -> CallDelta:
        function = piece.function or FunctionPiece()
        name, text = function.name or "", function.arguments or ""
        if not isinstance(text, str):
            text = msgspec.json.encode(text).decode()
        place = self._find_or_add(piece.index, piece.id or "", name)
        call = self._calls[place]
        call.id = call.id or piece.id or ""
        call.name = call.name or name
        extra = bytes(piece.extra_content)
        if extra not in {b"", b"null"}:
            call.extra = extra
        if text:
            call.is_whole = bool(name) and not call.pieces and is_json_object(text)
            call.pieces.append(text)
        return CallDelta(place, call.name, text, call.id)

    def finish(self) -> tuple[tuple[ToolCall, ...], list[bytes]]:
        """The calls, each with an id of its own; and what else the provider said of each."""
        calls: list[ToolCall] = []
        taken: set[str] = set()
        for call in self._calls:
            id_ = call.id if call.id and call.id not in taken else new_call_id()
            taken.add(id_)
            calls.append(ToolCall(id_, call.name, "".join(call.pieces) or "{}"))
        return tuple(calls), [call.extra for call in self._calls]

    def _find_or_add(self, index: int | None, id_: str, name: str) -> int:
        place = self._find_index(index, id_, name)
        if place is None or self._calls[place].differs_from(id_, name):
            place = len(self._calls)
            self._calls.append(_PartialCall())
        if index is not None:
            self._by_index[index] = place
        if id_:
            self._by_id.setdefault(id_, place)
        return place

    def _find_index(self, index: int | None, id_: str, name: str) -> int | None:
        if index is not None:
            return self._by_index.get(index)
        if id_ in self._by_id:
            return self._by_id[id_]
        if (id_ and name) or not self._calls:
            return None
        return len(self._calls) - 1

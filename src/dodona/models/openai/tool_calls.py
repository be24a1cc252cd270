"""Assemble tool calls from the pieces that OpenAI-compatible servers stream.

OpenAI sends an index with every piece. Other servers send complete calls, omit the index or the
id, use index 0 for every call, or change the id from piece to piece.
"""

from __future__ import annotations

from typing import Any

import msgspec

from dodona.core.messages import ToolCall
from dodona.core.ports.model import CallDelta
from dodona.models.encoding import is_json_object, new_call_id


class FunctionPiece(msgspec.Struct, gc=False):
    """The `function` member of a piece."""

    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class CallPiece(msgspec.Struct, gc=False):
    """One element of `tool_calls` in a streamed delta."""

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
        self.is_whole = False  # received with all its arguments at once
        self.extra = b""

    def differs_from(self, id_: str, name: str) -> bool:
        """Return whether a piece with this id and name starts another call."""
        if not name or not self.name:
            return False
        if id_ and self.id:
            return id_ != self.id
        return self.is_whole or name != self.name


class CallAssembler:
    """Collects the calls of one answer, in the order in which they start."""

    __slots__ = ("_by_id", "_by_index", "_calls")

    def __init__(self) -> None:
        self._calls: list[_PartialCall] = []
        self._by_index: dict[int, int] = {}
        self._by_id: dict[str, int] = {}

    def __bool__(self) -> bool:
        return bool(self._calls)

    def add(self, piece: CallPiece) -> CallDelta:
        """Add a piece, and return the delta to report."""
        function = piece.function or FunctionPiece()
        name, text = function.name or "", function.arguments or ""
        if not isinstance(text, str):
            text = msgspec.json.encode(text).decode()
        position = self._find_or_add(piece.index, piece.id or "", name)
        call = self._calls[position]
        call.id = call.id or piece.id or ""
        call.name = call.name or name
        extra = bytes(piece.extra_content)
        if extra not in {b"", b"null"}:
            call.extra = extra
        if text:
            call.is_whole = bool(name) and not call.pieces and is_json_object(text)
            call.pieces.append(text)
        return CallDelta(position, call.name, text, call.id)

    def finish(self) -> tuple[tuple[ToolCall, ...], list[bytes]]:
        """Return the calls with unique ids, and the `extra_content` of each."""
        calls: list[ToolCall] = []
        used_ids: set[str] = set()
        for call in self._calls:
            id_ = call.id if call.id and call.id not in used_ids else new_call_id()
            used_ids.add(id_)
            calls.append(ToolCall(id_, call.name, "".join(call.pieces) or "{}"))
        return tuple(calls), [call.extra for call in self._calls]

    def _find_or_add(self, index: int | None, id_: str, name: str) -> int:
        position = self._find_index(index, id_, name)
        if position is None or self._calls[position].differs_from(id_, name):
            position = len(self._calls)
            self._calls.append(_PartialCall())
        if index is not None:
            self._by_index[index] = position
        if id_:
            self._by_id.setdefault(id_, position)
        return position

    def _find_index(self, index: int | None, id_: str, name: str) -> int | None:
        if index is not None:
            return self._by_index.get(index)
        if id_ in self._by_id:
            return self._by_id[id_]
        if (id_ and name) or not self._calls:
            return None
        return len(self._calls) - 1

"""Global keys in a file: whole, kept, and nobody's lost."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from dodona.core.errors import StoreError
from dodona.trees import FileKeyValue


async def test_what_was_put_is_there(tmp_path: Path) -> None:
    """Only the keys that are asked for, and only those that have a value."""
    kept = FileKeyValue(tmp_path / "keys.json")
    assert await kept.get(["a"]) == {}
    await kept.put({"a": 1, "b": [True, None]})
    await kept.put({"a": 2})
    assert await kept.get(["a", "b", "c"]) == {"a": 2, "b": [True, None]}


async def test_concurrent_puts_lose_nothing(tmp_path: Path) -> None:
    """Every run's keys are kept, whoever writes at the same moment; nothing else is left behind."""
    path = tmp_path / "keys.json"
    puts = [FileKeyValue(path).put({f"k{n}": n}) for n in range(30)]
    await asyncio.gather(*puts)
    assert json.loads(path.read_text()) == {f"k{n}": n for n in range(30)}
    assert await asyncio.to_thread(os.listdir, tmp_path) == ["keys.json"]


CIRCLE: list[Any] = []
CIRCLE.append(CIRCLE)


@pytest.mark.parametrize("value", [object(), CIRCLE])
async def test_a_value_that_is_no_json_changes_nothing(tmp_path: Path, value: Any) -> None:
    """The error says so, and the file stays as it was."""
    kept = FileKeyValue(tmp_path / "keys.json")
    await kept.put({"a": 1})
    with pytest.raises(StoreError, match="The file was not changed"):
        await kept.put({"a": value})
    assert await kept.get(["a"]) == {"a": 1}


@pytest.mark.parametrize("text", ["{", "[1]", "\x00"])
async def test_a_broken_file_is_told(tmp_path: Path, text: str) -> None:
    """It is not overwritten: a person must look at it."""
    path = tmp_path / "keys.json"
    path.write_text(text)
    with pytest.raises(StoreError, match="Fix or remove the file"):
        await FileKeyValue(path).get(["a"])
    with pytest.raises(StoreError):
        await FileKeyValue(path).put({"a": 1})
    assert path.read_text() == text

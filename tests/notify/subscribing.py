"""Subscribers for tests: files in a folder, a clock that stands until it is set."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dodona.core.events import Event, Severity
from dodona.notify import SubscriberRegistry


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Folder:
    """A folder of subscribers, and what is loaded from it alone."""

    path: Path
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        self.subscribers = SubscriberRegistry(builtin=self.path, clock=self.clock)

    def write(self, name: str, text: str) -> Path:
        file = self.path / f"{name}.toml"
        file.write_text(text)
        return file

    def add(self, id_: str, types: str = "*", *, batching: str = "", output: str = "",
            template: str = "{{ count }}", events: str = "", about: str = "") -> None:  # fmt: skip
        """Write a subscriber, and load it with the others."""
        self.write(
            id_,
            f"[subscriber]\nid = '{id_}'\n{about}\n[events]\ntypes = ['{types}']\n{events}\n"
            f"[batching]\n{batching}\n[output]\ntemplate = '''{template}'''\n{output}\n",
        )
        self.subscribers.load()
        assert self.subscribers.problems() == ()


def event(
    type_: str, severity: Severity = Severity.INFO, *, dedupe_key: str = "", **payload: Any
) -> Event:
    return Event(type_, "test", severity, payload, dedupe_key=dedupe_key)

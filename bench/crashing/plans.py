"""Plans: questions that encode which calls the model server makes, turn by turn."""

from __future__ import annotations

import re
from dataclasses import dataclass
from random import Random
from typing import Final

KINDS: Final = ("none", "keyed", "once", "write")
TOOLS: Final = {kind: f"probe_{kind}" for kind in KINDS[:3]} | {"write": "vault_write"}

_MARK = re.compile(r"\[plan (\d+): ([a-z+,]*)\]")


@dataclass(frozen=True, slots=True)
class Plan:
    """The kinds of calls in each turn; the answer follows the last turn."""

    number: int
    turns: tuple[tuple[str, ...], ...]

    @property
    def question(self) -> str:
        turns = ",".join("+".join(turn) for turn in self.turns)
        return f"What do you find? [plan {self.number}: {turns}]"

    @classmethod
    def read(cls, text: str) -> Plan | None:
        """Return the last plan in a text."""
        found = _MARK.findall(text)
        if not found:
            return None
        number, turns = found[-1]
        kinds = tuple(tuple(turn.split("+")) for turn in turns.split(",") if turn)
        return cls(int(number), kinds)

    @classmethod
    def draw(cls, number: int, random: Random) -> Plan:
        """Draw up to three turns of up to three calls, at most two of which have effect `once`.

        Three consecutive calls with unknown outcome would end a run.
        """
        turns = [
            [random.choice(KINDS) for _ in range(random.randint(1, 3))]
            for _ in range(random.choice((0, 1, 1, 2, 2, 3)))
        ]
        once = 0
        for turn in turns:
            for place, kind in enumerate(turn):
                once += kind == "once"
                if kind == "once" and once > 2:
                    turn[place] = "none"
        return cls(number, tuple(tuple(turn) for turn in turns))


@dataclass(frozen=True, slots=True)
class Call:
    """A call that the model server requested in its answer to one request.

    A repeated request is answered with other calls, so that an effect of a discarded answer can be
    detected.
    """

    plan: int
    turn: int
    request: int
    place: int
    kind: str

    @property
    def label(self) -> str:
        return f"{self.plan}-{self.turn}-{self.request}-{self.place}"

    @property
    def id(self) -> str:
        return f"call_{self.label}"

    @property
    def arguments(self) -> dict[str, str]:
        if self.kind == "write":
            return {"path": self.path, "content": self.content}
        return {"call": self.label}

    @property
    def path(self) -> str:
        return f"crash/{self.label}.md"

    @property
    def content(self) -> str:
        return f"# Call {self.label}\n\nWritten once.\n"


def words(plan: int, turn: int, request: int) -> list[str]:
    """The text of one answer of the model server, in pieces."""
    return [f"({plan}.{turn}.{request}.{n}) " for n in range(8)]

"""A tree compiled to closures: one `tick` and one `halt` for each place a node stands in.

A `Place` is a node in a compiled tree: a subtree that is used twice has two places. Its path
names it for people (`loop/tools/execute`; nodes without a name are left out, but for the last);
its key, with iterations and indexes (`loop[2]/tools[1]/execute`), names one execution of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dodona.core.errors import LoadError
from dodona.trees.language.node import Node
from dodona.trees.runtime.frame import Frame, HaltFunction, TickFunction
from dodona.trees.runtime.status import Status

# A colon, so that no node's name is the same.
FINALLY = ":finally"
MAX_PLACES = 50_000
MAX_DEPTH = 100


class Compiled(NamedTuple):
    tick: TickFunction
    halt: HaltFunction


@dataclass(slots=True, eq=False)
class Region:
    """The slots of a part of the tree that has a frame of its own."""

    owner: Place | None = None
    phase: str = ""  # ":finally", when it is one
    initial_slots: list[Any] = field(default_factory=list[Any])
    polled: bool = False


class Branch(NamedTuple):
    """A compiled part with a frame of its own."""

    tick: TickFunction
    halt: HaltFunction
    region: Region


@dataclass(slots=True, eq=False)
class Place:
    index: int
    node: Node
    depth: int
    parent: int | None
    region: Region
    # Named ancestors within the region, each with the slot that counts its iterations.
    segments: tuple[tuple[str, int | None], ...]
    path: str = ""
    # The part of its keys that lies in this region, and the slots that fill it.
    key_pattern: str = ""
    counter_slots: tuple[int, ...] = ()

    def key(self, frame: Frame) -> str:
        """This execution of the node: `loop[2]/tools[1]/execute`."""
        own = self.key_pattern
        if self.counter_slots:
            slots = frame.slots
            own %= tuple([slots[slot] for slot in self.counter_slots])
        outer = _key_prefix(frame)
        return f"{outer}/{own}" if outer else own


def _key_prefix(frame: Frame) -> str:
    """What stands before the keys of the frame's region."""
    region = frame.region
    if region.owner is None or frame.parent is None:
        outer = frame.phase
    else:
        outer = region.owner.key(frame.parent)
        if frame.index is not None:
            outer = f"{outer}[{frame.index}]"
    if outer and region.phase:
        return f"{outer}/{region.phase}"
    return outer or region.phase


# Wraps a node when a run is traced or debugged; plain runs have none and pay nothing.
Instrument = Callable[[Place, Compiled], Compiled]


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    places: tuple[Place, ...]
    body: Branch
    finally_branch: Branch | None


class Build:
    """Compiles the nodes of one region; nodes ask it for slots and for their children."""

    def __init__(
        self,
        region: Region,
        places: list[Place],
        instrument: Instrument | None,
        *,
        place: Place | None = None,
        segments: tuple[tuple[str, int | None], ...] = (),
    ) -> None:
        self.region = region
        self.places = places
        self.instrument = instrument
        self._place = place
        self._segments = segments

    @property
    def place(self) -> Place:
        """Where the node being compiled stands."""
        assert self._place is not None
        return self._place

    def add_slot(self, initial: Any = None) -> int:
        self.region.initial_slots.append(initial)
        return len(self.region.initial_slots) - 1

    def mark_polled(self) -> None:
        """The node being compiled is to see every tick."""
        region: Region | None = self.region
        while region is not None:
            region.polled = True
            region = region.owner.region if region.owner else None

    def with_counter(self, slot: int) -> Build:
        """For children that run again and again: their keys carry the number in the slot."""
        node = self.place.node
        steps = (*self.place.segments[:-1], (node.name or node.kind.name, slot))
        return Build(self.region, self.places, self.instrument, place=self._place, segments=steps)

    def compile_children(self, node: Node) -> tuple[Compiled, ...]:
        return tuple(self.compile(child) for child in node.children)

    def compile(self, node: Node) -> Compiled:
        """The node as closures over this region."""
        place = self._add_place(node)
        inner = Build(
            self.region,
            self.places,
            self.instrument,
            place=place,
            segments=self._child_segments(node),
        )
        compiled = node.kind.compile(node, inner)
        if node.kind.may_raise:
            compiled = compiled._replace(tick=_catch_errors(place, compiled.tick))
        return self.instrument(place, compiled) if self.instrument is not None else compiled

    def compile_branch(self, node: Node, *, within: Node | None = None, phase: str = "") -> Branch:
        """The node as a region of its own; `within` is a parent that is never ticked itself."""
        region = Region(owner=self._place, phase=phase)
        at = self._place if within is None else self._add_place(within)
        steps = ((within.name, None),) if within is not None and within.name else ()
        build = Build(region, self.places, self.instrument, place=at, segments=steps)
        tick, halt = build.compile(node)
        return Branch(tick, halt, region)

    def _child_segments(self, node: Node) -> tuple[tuple[str, int | None], ...]:
        return (*self._segments, (node.name, None)) if node.name else self._segments

    def _add_place(self, node: Node) -> Place:
        depth = self._place.depth + 1 if self._place else 0
        self._check_size(node, depth)
        place = Place(
            index=len(self.places),
            node=node,
            depth=depth,
            parent=self._place.index if self._place else None,
            region=self.region,
            segments=(*self._segments, (node.label, None)),
        )
        self.places.append(place)
        return place

    def _check_size(self, node: Node, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise LoadError(
                f"nodes are nested more than {MAX_DEPTH} deep, subtrees included.",
                where=node.span.location(),
            )
        if len(self.places) >= MAX_PLACES:
            raise LoadError(
                f"the tree has more than {MAX_PLACES} nodes, subtrees included.",
                where=node.span.location(),
                hint="A subtree that is used twice counts twice.",
            )


def compile_tree(root: Node, finally_node: Node | None, instrument: Instrument | None) -> Program:
    """Closures for a tree's body and its :finally."""
    places: list[Place] = []
    top = Build(Region(), places, instrument)
    body = top.compile_branch(root)
    ending = top.compile_branch(finally_node, phase=FINALLY) if finally_node is not None else None
    _assign_paths(places)
    return Program(tuple(places), body, ending)


def _assign_paths(places: list[Place]) -> None:
    """Give every place its path: the names above it and its own; twins get a serial.

    So every path is one place's, and so is every key, which is the path with indexes.
    """
    seen: Counter[str] = Counter()
    for place in places:
        owner = place.region.owner
        names = [owner.path if owner else "", place.region.phase, *(n for n, _ in place.segments)]
        path = "/".join(name for name in names if name)
        seen[path] += 1
        serial = f"~{seen[path]}" if seen[path] > 1 else ""
        place.path = path + serial
        place.counter_slots = tuple(slot for _, slot in place.segments if slot is not None)
        place.key_pattern = _build_key_pattern(place) + serial


def _build_key_pattern(place: Place) -> str:
    """Where nothing is filled in, the very text; elsewhere `loop[%d]/execute`."""
    if not place.counter_slots:
        return "/".join(name for name, _ in place.segments)
    parts = ((name.replace("%", "%%"), slot) for name, slot in place.segments)
    return "/".join(name if slot is None else f"{name}[%d]" for name, slot in parts)


def _catch_errors(place: Place, tick: TickFunction) -> TickFunction:
    """A node that raises has failed. Nodes raise only when nothing of theirs runs."""

    def bounded(frame: Frame) -> Status:
        try:
            return tick(frame)
        except Exception as error:  # noqa: BLE001 - the boundary of a node tick
            return frame.run.fail_node(place, frame, error)

    return bounded

"""A tree compiled to closures: one `tick` and one `halt` for each place of a node.

A `Place` is a node in a compiled tree: a subtree that is used twice has two places. Its path
is its display name (`loop/tools/execute`; ancestors without a name are left out). Its key, with
iterations and indexes (`loop[2]/tools[1]/execute`), identifies one execution of it.
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

# The colon prevents a conflict with a node's name.
FINALLY = ":finally"
MAX_PLACES = 50_000
MAX_DEPTH = 100


class Compiled(NamedTuple):
    """A compiled node."""

    tick: TickFunction
    halt: HaltFunction


@dataclass(slots=True, eq=False)
class Region:
    """A part of the tree with a separate frame: the initial values of its slots."""

    owner: Place | None = None
    phase: str = ""  # ":finally" for a :finally
    initial_slots: list[Any] = field(default_factory=list[Any])
    polled: bool = False


class Branch(NamedTuple):
    """A compiled part with a separate frame."""

    tick: TickFunction
    halt: HaltFunction
    region: Region


@dataclass(slots=True, eq=False)
class Place:
    """A node's position in a compiled tree."""

    index: int
    node: Node
    depth: int
    parent: int | None
    region: Region
    # Named ancestors within the region, each with the slot that counts its iterations.
    segments: tuple[tuple[str, int | None], ...]
    path: str = ""
    # The part of its keys within this region, as a pattern, and the slots that fill it.
    key_pattern: str = ""
    counter_slots: tuple[int, ...] = ()

    def key(self, frame: Frame) -> str:
        """Return the key of this execution of the node: `loop[2]/tools[1]/execute`."""
        key = self.key_pattern
        if self.counter_slots:
            slots = frame.slots
            key %= tuple([slots[slot] for slot in self.counter_slots])
        prefix = _key_prefix(frame)
        return f"{prefix}/{key}" if prefix else key


def _key_prefix(frame: Frame) -> str:
    """Return the prefix of the keys in the frame's region."""
    region = frame.region
    if region.owner is None or frame.parent is None:
        prefix = frame.phase
    else:
        prefix = region.owner.key(frame.parent)
        if frame.index is not None:
            prefix = f"{prefix}[{frame.index}]"
    if prefix and region.phase:
        return f"{prefix}/{region.phase}"
    return prefix or region.phase


# Wraps a node when a run is traced or debugged; plain runs have no instrument and no overhead.
Instrument = Callable[[Place, Compiled], Compiled]


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """A compiled tree."""

    places: tuple[Place, ...]
    body: Branch
    finally_branch: Branch | None


class Build:
    """Compiles the nodes of one region; provides slots and compiled children to nodes."""

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
        """The place of the node being compiled."""
        assert self._place is not None
        return self._place

    def add_slot(self, initial: Any = None) -> int:
        self.region.initial_slots.append(initial)
        return len(self.region.initial_slots) - 1

    def mark_polled(self) -> None:
        """Make the region of the node being compiled receive every tick."""
        region: Region | None = self.region
        while region is not None:
            region.polled = True
            region = region.owner.region if region.owner else None

    def with_counter(self, slot: int) -> Build:
        """Return a build for repeated children: their keys contain the number in the slot."""
        node = self.place.node
        segments = (*self.place.segments[:-1], (node.name or node.kind.name, slot))
        return Build(
            self.region, self.places, self.instrument, place=self._place, segments=segments
        )

    def compile_children(self, node: Node) -> tuple[Compiled, ...]:
        return tuple(self.compile(child) for child in node.children)

    def compile(self, node: Node) -> Compiled:
        """Compile the node to closures over this region."""
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
        """Compile the node as a separate region; `within` is a parent that is never ticked."""
        region = Region(owner=self._place, phase=phase)
        at = self._place if within is None else self._add_place(within)
        segments = ((within.name, None),) if within is not None and within.name else ()
        build = Build(region, self.places, self.instrument, place=at, segments=segments)
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
    """Compile the body and the :finally of a tree."""
    places: list[Place] = []
    top = Build(Region(), places, instrument)
    body = top.compile_branch(root)
    final = top.compile_branch(finally_node, phase=FINALLY) if finally_node is not None else None
    _assign_paths(places)
    return Program(tuple(places), body, final)


def _assign_paths(places: list[Place]) -> None:
    """Set the path of every place: the names above it and its name; duplicates get a number.

    So every path is unique, and so is every key, which is the path with indexes.
    """
    counts: Counter[str] = Counter()
    for place in places:
        owner = place.region.owner
        names = [owner.path if owner else "", place.region.phase, *(n for n, _ in place.segments)]
        path = "/".join(name for name in names if name)
        counts[path] += 1
        suffix = f"~{counts[path]}" if counts[path] > 1 else ""
        place.path = path + suffix
        place.counter_slots = tuple(slot for _, slot in place.segments if slot is not None)
        place.key_pattern = _build_key_pattern(place) + suffix


def _build_key_pattern(place: Place) -> str:
    """Return `loop[%d]/execute`; literal text if the place has no counters."""
    if not place.counter_slots:
        return "/".join(name for name, _ in place.segments)
    parts = ((name.replace("%", "%%"), slot) for name, slot in place.segments)
    return "/".join(name if slot is None else f"{name}[%d]" for name, slot in parts)


def _catch_errors(place: Place, tick: TickFunction) -> TickFunction:
    """Turn an exception into FAILURE. Nodes raise only while none of their children runs."""

    def safe_tick(frame: Frame) -> Status:
        try:
            return tick(frame)
        except Exception as error:  # noqa: BLE001 - the boundary of a node tick
            return frame.run.fail_node(place, frame, error)

    return safe_tick

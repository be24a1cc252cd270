"""Traces: what exchanges leave beside words: whose texts were read, and in which versions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from dodona.core.messages import Origin
from dodona.core.ports.tools import SourceKind, SourceReference

MAX_ENTRIES: Final = 100  # versions and addresses that one exchange keeps

_VERSIONED_KINDS: Final = (SourceKind.NOTE, SourceKind.CODE)


@dataclass(frozen=True, slots=True)
class Provenance:
    """`read` has the version of each note and file as it was read last, by kind and path."""

    untrusted: frozenset[Origin] = frozenset()
    versions_read: Mapping[tuple[SourceKind, str], str] = field(default_factory=dict[Any, str])
    urls: frozenset[str] = frozenset()  # that a search returned, or that were fetched

    @classmethod
    def of(cls, sources: Iterable[SourceReference], untrusted: Iterable[Origin]) -> Self:
        """Those of a run that ends."""
        known = list(sources)
        read = {
            (s.kind, s.path): s.version for s in known if s.version and s.kind in _VERSIONED_KINDS
        }
        urls = dict.fromkeys(s.path for s in known if s.kind is SourceKind.WEB)
        return cls(
            frozenset(untrusted),
            dict(list(read.items())[-MAX_ENTRIES:]),
            frozenset(list(urls)[-MAX_ENTRIES:]),
        )

    def merged_with(self, later: Provenance) -> Provenance:
        if later == _EMPTY:
            return self
        return Provenance(
            self.untrusted | later.untrusted,
            {**self.versions_read, **later.versions_read},
            self.urls | later.urls,
        )

    def as_json(self) -> dict[str, Any]:
        """Only what there is: most exchanges leave little."""
        found: dict[str, Any] = {
            "outside": sorted(origin.value for origin in self.untrusted),
            "read": [
                [kind.value, path, version] for (kind, path), version in self.versions_read.items()
            ],
            "urls": sorted(self.urls),
        }
        return {name: value for name, value in found.items() if value}

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any]) -> Self:
        """What `as_json` put among other things."""
        return cls(
            frozenset(Origin(value) for value in metadata.get("outside", ())),
            {(SourceKind(kind), path): version for kind, path, version in metadata.get("read", ())},
            frozenset(metadata.get("urls", ())),
        )


_EMPTY: Final = Provenance()

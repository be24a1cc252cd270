"""Provenance of exchanges: untrusted origins, versions of sources read, and URLs seen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from dodona.core.messages import Origin
from dodona.core.ports.tools import SourceKind, SourceReference

MAX_ENTRIES: Final = 100  # versions and URLs per exchange, each

_VERSIONED_KINDS: Final = (SourceKind.NOTE, SourceKind.CODE)


@dataclass(frozen=True, slots=True)
class Provenance:
    """`versions_read` maps kind and path of each note and file to the version last read."""

    untrusted: frozenset[Origin] = frozenset()
    versions_read: Mapping[tuple[SourceKind, str], str] = field(default_factory=dict[Any, str])
    urls: frozenset[str] = frozenset()  # returned by a search, or fetched

    @classmethod
    def of(cls, sources: Iterable[SourceReference], untrusted: Iterable[Origin]) -> Self:
        """Return the provenance of a run that ends."""
        all_sources = list(sources)
        versions = {
            (s.kind, s.path): s.version
            for s in all_sources
            if s.version and s.kind in _VERSIONED_KINDS
        }
        urls = dict.fromkeys(s.path for s in all_sources if s.kind is SourceKind.WEB)
        return cls(
            frozenset(untrusted),
            dict(list(versions.items())[-MAX_ENTRIES:]),
            frozenset(list(urls)[-MAX_ENTRIES:]),
        )

    def merged_with(self, later: Provenance) -> Provenance:
        """Combine with a later provenance, whose versions replace earlier ones."""
        if later == _EMPTY:
            return self
        return Provenance(
            self.untrusted | later.untrusted,
            {**self.versions_read, **later.versions_read},
            self.urls | later.urls,
        )

    def as_json(self) -> dict[str, Any]:
        """The JSON form, without empty values."""
        values: dict[str, Any] = {
            "outside": sorted(origin.value for origin in self.untrusted),
            "read": [
                [kind.value, path, version] for (kind, path), version in self.versions_read.items()
            ],
            "urls": sorted(self.urls),
        }
        return {name: value for name, value in values.items() if value}

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any]) -> Self:
        """Read the values of `as_json` from the metadata of a message."""
        return cls(
            frozenset(Origin(value) for value in metadata.get("outside", ())),
            {(SourceKind(kind), path): version for kind, path, version in metadata.get("read", ())},
            frozenset(metadata.get("urls", ())),
        )


_EMPTY: Final = Provenance()

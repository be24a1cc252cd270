"""Provenance of exchanges: what they are derived from, versions of sources read, and URLs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Self

import msgspec

from dodona.core.domain.trust import NO_MARKS, Mark, Marks, merge_marks
from dodona.core.ports.tools import ShownLines, SourceKind, SourceReference

MAX_ENTRIES: Final = 100  # versions, URLs and ranges of lines per exchange, each

_VERSIONED_KINDS: Final = (SourceKind.NOTE, SourceKind.CODE)


class Provenance(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the text of an exchange is derived from.

    `marks` are the untrusted sources that the run has read, `is_private` is set if it has read text
    that must not leave this machine. `versions_read` maps the path of each note and of each file to
    the version last read. `shown` are the lines of notes in the results of tools.
    """

    marks: Marks = NO_MARKS
    is_private: bool = False
    versions_read: Mapping[SourceKind, Mapping[str, str]] = {}
    urls: frozenset[str] = frozenset()  # returned by a search
    shown: frozenset[ShownLines] = frozenset()

    @classmethod
    def of(
        cls,
        sources: Iterable[SourceReference],
        marks: Iterable[Mark],
        *,
        is_private: bool,
        shown: Iterable[ShownLines],
        urls: Iterable[str],
    ) -> Self:
        """Return the provenance of a run that ends."""
        versions: dict[SourceKind, dict[str, str]] = {}
        versioned = [s for s in sources if s.version and s.kind in _VERSIONED_KINDS]
        for source in versioned[-MAX_ENTRIES:]:
            versions.setdefault(source.kind, {})[source.path] = source.version
        return cls(
            frozenset(marks),
            is_private,
            versions,
            frozenset(list(urls)[-MAX_ENTRIES:]),
            frozenset(list(shown)[-MAX_ENTRIES:]),
        )

    def merged_with(self, later: Provenance) -> Provenance:
        """Combine with a later provenance, whose versions replace earlier ones."""
        if later == NO_PROVENANCE:
            return self
        return Provenance(
            merge_marks(self.marks, later.marks),
            self.is_private or later.is_private,
            {
                kind: {**self.versions_read.get(kind, {}), **later.versions_read.get(kind, {})}
                for kind in {**self.versions_read, **later.versions_read}
            },
            self.urls | later.urls,
            self.shown | later.shown,
        )


NO_PROVENANCE: Final = Provenance()

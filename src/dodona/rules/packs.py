"""Packs: folders that bring rules, subscribers and trees together, with a manifest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dodona import __version__
from dodona.core.errors import ConfigError
from dodona.documents import Document, read
from dodona.rules.parameters import Parameter
from dodona.rules.sections import PackFile
from dodona.rules.versions import is_within

MANIFEST = "pack.toml"
RESERVED = frozenset({"dodona", "user"})  # whose state shipped rules, and loose ones, have


@dataclass(frozen=True, slots=True, kw_only=True)
class Pack:
    id: str
    version: str
    description: str
    folder: Path
    settings: Mapping[str, Parameter] = field(default_factory=dict[str, Parameter])

    @property
    def rules(self) -> Path:
        return self.folder / "rules"

    @property
    def subscribers(self) -> Path:
        return self.folder / "subscribers"

    @property
    def trees(self) -> Path:
        return self.folder / "trees"


@dataclass(frozen=True, slots=True)
class _Draft:
    document: Document
    manifest: PackFile


def packs(folder: Path) -> tuple[Sequence[Pack], Sequence[ConfigError]]:
    """The packs in a folder, by name, and what is wrong with those that cannot be used.

    One whose requirements are not met is such, and so is one that needs it. It blocks.
    """
    drafts: dict[str, _Draft] = {}
    wrong: list[ConfigError] = []
    for manifest in _manifests(folder):
        try:
            document = read(manifest, what="the manifest")
            found = document.checked(PackFile)
            _announce(drafts, _Draft(document, found))
        except ConfigError as error:
            wrong.append(error)
    wrong += _drop_unmet(drafts)
    return [_pack(draft) for draft in drafts.values()], wrong


def read_manifest(file: Path) -> Pack:
    """The pack of this manifest alone; of what it requires nothing is asked. It blocks."""
    document = read(file, what="the manifest")
    return _pack(_Draft(document, document.checked(PackFile)))


def is_broken(pack: Pack) -> bool:
    """Is its manifest still there, and cannot be read any more? It blocks."""
    manifest = pack.folder / MANIFEST
    try:
        if manifest.is_file():
            read_manifest(manifest)
    except ConfigError:
        return True
    return False


def _manifests(folder: Path) -> list[Path]:
    try:
        inside = sorted(each for each in folder.iterdir() if not each.name.startswith("."))
        return [each / MANIFEST for each in inside if (each / MANIFEST).is_file()]
    except OSError:
        return []


def _announce(drafts: dict[str, _Draft], draft: _Draft) -> None:
    pack_id, mistakes = draft.manifest.pack.id, draft.document.mistakes(PackFile)
    if pack_id in RESERVED:
        raise mistakes.wrong(("pack", "id"), "must be another name", got=pack_id)
    if pack_id in drafts:
        hint = f"The first is {drafts[pack_id].document.file}."
        raise mistakes.wrong(("pack", "id"), "is taken", hint=hint, got=pack_id)
    drafts[pack_id] = draft


def _drop_unmet(drafts: dict[str, _Draft]) -> list[ConfigError]:
    """Until all that are left have what they need: one that goes may be needed by others."""
    wrong: list[ConfigError] = []
    while True:
        unmet = {
            pack_id: found for pack_id, each in drafts.items() if (found := _unmet(each, drafts))
        }
        if not unmet:
            return wrong
        for pack_id, found in unmet.items():
            del drafts[pack_id]
            wrong += found


def _unmet(draft: _Draft, drafts: Mapping[str, _Draft]) -> list[ConfigError]:
    mistakes = draft.document.mistakes(PackFile)
    found: list[ConfigError] = []
    for name, versions in draft.manifest.pack.requires.items():
        path = ("pack", "requires", name)
        there = __version__ if name == "dodona" else ""
        if name in drafts:
            there = drafts[name].manifest.pack.version
        if not there:
            found.append(mistakes.wrong(path, "is not there", hint="Add that pack first."))
        elif not is_within(there, versions):
            found.append(mistakes.wrong(path, f"is not met: there is {there}", got=versions))
    return found


def _pack(draft: _Draft) -> Pack:
    section = draft.manifest.pack
    return Pack(
        id=section.id,
        version=section.version,
        description=section.description,
        folder=draft.document.file.parent,
        settings=draft.manifest.settings,
    )

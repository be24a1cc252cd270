"""Packs: folders that bring rules, subscribers and trees together, with a manifest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dodona import __version__
from dodona.core.errors import ConfigError
from dodona.documents import Document, read_document
from dodona.rules.parameters import RuleParameter
from dodona.rules.sections import PackFile
from dodona.rules.versions import is_in_range

MANIFEST = "pack.toml"
RESERVED_IDS = frozenset({"dodona", "user"})  # whose state shipped rules, and loose ones, have


@dataclass(frozen=True, slots=True, kw_only=True)
class Pack:
    id: str
    version: str
    description: str
    folder: Path
    settings: Mapping[str, RuleParameter] = field(default_factory=dict[str, RuleParameter])

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
class _PackDraft:
    document: Document
    manifest: PackFile


def load_packs(folder: Path) -> tuple[Sequence[Pack], Sequence[ConfigError]]:
    """The packs in a folder, by name, and what is wrong with those that cannot be used.

    One whose requirements are not met is such, and so is one that needs it. It blocks.
    """
    drafts: dict[str, _PackDraft] = {}
    wrong: list[ConfigError] = []
    for manifest in _find_manifests(folder):
        try:
            document = read_document(manifest, label="the manifest")
            found = document.validate(PackFile)
            _register_draft(drafts, _PackDraft(document, found))
        except ConfigError as error:
            wrong.append(error)
    wrong += _drop_unmet(drafts)
    return [_build_pack(draft) for draft in drafts.values()], wrong


def read_manifest(file: Path) -> Pack:
    """The pack of this manifest alone; of what it requires nothing is asked. It blocks."""
    document = read_document(file, label="the manifest")
    return _build_pack(_PackDraft(document, document.validate(PackFile)))


def has_invalid_manifest(pack: Pack) -> bool:
    """Is its manifest still there, and cannot be read any more? It blocks."""
    manifest = pack.folder / MANIFEST
    try:
        if manifest.is_file():
            read_manifest(manifest)
    except ConfigError:
        return True
    return False


def _find_manifests(folder: Path) -> list[Path]:
    try:
        inside = sorted(each for each in folder.iterdir() if not each.name.startswith("."))
        return [each / MANIFEST for each in inside if (each / MANIFEST).is_file()]
    except OSError:
        return []


def _register_draft(drafts: dict[str, _PackDraft], draft: _PackDraft) -> None:
    pack_id, mistakes = draft.manifest.pack.id, draft.document.error_builder(PackFile)
    if pack_id in RESERVED_IDS:
        raise mistakes.invalid_value(("pack", "id"), "must be another name", got=pack_id)
    if pack_id in drafts:
        hint = f"The first is {drafts[pack_id].document.file}."
        raise mistakes.invalid_value(("pack", "id"), "is taken", hint=hint, got=pack_id)
    drafts[pack_id] = draft


def _drop_unmet(drafts: dict[str, _PackDraft]) -> list[ConfigError]:
    """Until all that are left have what they need: one that goes may be needed by others."""
    wrong: list[ConfigError] = []
    while True:
        unmet = {
            pack_id: found
            for pack_id, each in drafts.items()
            if (found := _find_unmet(each, drafts))
        }
        if not unmet:
            return wrong
        for pack_id, found in unmet.items():
            del drafts[pack_id]
            wrong += found


def _find_unmet(draft: _PackDraft, drafts: Mapping[str, _PackDraft]) -> list[ConfigError]:
    mistakes = draft.document.error_builder(PackFile)
    found: list[ConfigError] = []
    for name, versions in draft.manifest.pack.requires.items():
        path = ("pack", "requires", name)
        there = __version__ if name == "dodona" else ""
        if name in drafts:
            there = drafts[name].manifest.pack.version
        if not there:
            found.append(mistakes.invalid_value(path, "is not there", hint="Add that pack first."))
        elif not is_in_range(there, versions):
            found.append(
                mistakes.invalid_value(path, f"is not met: there is {there}", got=versions)
            )
    return found


def _build_pack(draft: _PackDraft) -> Pack:
    section = draft.manifest.pack
    return Pack(
        id=section.id,
        version=section.version,
        description=section.description,
        folder=draft.document.file.parent,
        settings=draft.manifest.settings,
    )

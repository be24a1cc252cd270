"""Packs: folders with a manifest that bundle rules, subscribers and trees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dodona.core.errors import ConfigError
from dodona.core.version import __version__
from dodona.documents import Document, read_document
from dodona.rules.parameters import RuleParameter
from dodona.rules.sections import PackFile, parse_range

MANIFEST = "pack.toml"
RESERVED_IDS = frozenset({"dodona", "user"})  # for built-in rules and for rules without a pack


@dataclass(frozen=True, slots=True, kw_only=True)
class Pack:
    """A loaded pack."""

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
    """Return the packs in a folder, sorted by name, and the errors of the others (blocking).

    A pack with unmet requirements is an error, and so is a pack that requires it.
    """
    drafts: dict[str, _PackDraft] = {}
    errors: list[ConfigError] = []
    for manifest in _find_manifests(folder):
        try:
            document = read_document(manifest, label="the manifest")
            _register_draft(drafts, _PackDraft(document, document.validate(PackFile)))
        except ConfigError as error:
            errors.append(error)
    errors += _drop_unmet(drafts)
    return [_build_pack(draft) for draft in drafts.values()], errors


def read_manifest(file: Path) -> Pack:
    """Read one manifest (blocking), without checking its requirements."""
    document = read_document(file, label="the manifest")
    return _build_pack(_PackDraft(document, document.validate(PackFile)))


def has_invalid_manifest(pack: Pack) -> bool:
    """Return whether the manifest still exists but is no longer valid (blocking)."""
    manifest = pack.folder / MANIFEST
    try:
        if manifest.is_file():
            read_manifest(manifest)
    except ConfigError:
        return True
    return False


def _find_manifests(folder: Path) -> list[Path]:
    try:
        folders = sorted(each for each in folder.iterdir() if not each.name.startswith("."))
        return [each / MANIFEST for each in folders if (each / MANIFEST).is_file()]
    except OSError:
        return []


def _register_draft(drafts: dict[str, _PackDraft], draft: _PackDraft) -> None:
    pack_id, error_builder = draft.manifest.pack.id, draft.document.error_builder(PackFile)
    if pack_id in RESERVED_IDS:
        raise error_builder.invalid_value(("pack", "id"), "is reserved", got=pack_id)
    if pack_id in drafts:
        hint = f"The first is {drafts[pack_id].document.file}."
        raise error_builder.invalid_value(("pack", "id"), "already exists", hint=hint, got=pack_id)
    drafts[pack_id] = draft


def _drop_unmet(drafts: dict[str, _PackDraft]) -> list[ConfigError]:
    """Drop packs with unmet requirements, repeatedly: others may require a dropped pack."""
    errors: list[ConfigError] = []
    while True:
        unmet = {
            pack_id: problems
            for pack_id, each in drafts.items()
            if (problems := _find_unmet(each, drafts))
        }
        if not unmet:
            return errors
        for pack_id, problems in unmet.items():
            del drafts[pack_id]
            errors += problems


def _find_unmet(draft: _PackDraft, drafts: Mapping[str, _PackDraft]) -> list[ConfigError]:
    error_builder = draft.document.error_builder(PackFile)
    errors: list[ConfigError] = []
    for name, versions in draft.manifest.pack.requires.items():
        path = ("pack", "requires", name)
        installed = __version__ if name == "dodona" else ""
        if name in drafts:
            installed = drafts[name].manifest.pack.version
        if not installed:
            hint = "Add that pack first."
            errors.append(error_builder.invalid_value(path, "is not installed", hint=hint))
        elif installed not in parse_range(versions):
            errors.append(
                error_builder.invalid_value(
                    path, f"is not met: {installed} is installed", got=versions
                )
            )
    return errors


def _build_pack(draft: _PackDraft) -> Pack:
    section = draft.manifest.pack
    return Pack(
        id=section.id,
        version=section.version,
        description=section.description,
        folder=draft.document.file.parent,
        settings=draft.manifest.settings,
    )

from __future__ import annotations

import pytest

from dodona.core.errors import AccessDenied, DodonaError, ToolRetry
from dodona.tools.vault.notes.paths import folder_parts, is_allowed_name, note_parts


@pytest.mark.parametrize(
    ("path", "parts"),
    [
        ("plan.md", ("plan.md",)),
        ("notes/plan.md", ("notes", "plan.md")),
        ("./notes//plan.md", ("notes", "plan.md")),
        ("Über uns/Größe.MD", ("Über uns", "Größe.MD")),
        ("a b/c: d.md", ("a b", "c: d.md")),
        ("notes/a..b.md", ("notes", "a..b.md")),
        ("日本語/メモ.md", ("日本語", "メモ.md")),
        ("می\u200cخواهم/👩\u200d🌾.md", ("می\u200cخواهم", "👩\u200d🌾.md")),
    ],
)
def test_a_path_of_a_note(path: str, parts: tuple[str, ...]) -> None:
    """Folders and a name, in any script."""
    assert note_parts(path) == parts


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("../secret.md", AccessDenied),
        ("notes/../../secret.md", AccessDenied),
        ("notes/..", AccessDenied),
        ("/etc/passwd.md", AccessDenied),
        ("//server/share.md", AccessDenied),
        ("~/.ssh/id.md", AccessDenied),
        ("~root/x.md", AccessDenied),
        ("C:/secret.md", AccessDenied),
        ("c:secret.md", AccessDenied),
        (".hidden.md", AccessDenied),
        (".git/config.md", AccessDenied),
        ("notes/.obsidian/x.md", AccessDenied),
        ("..\\secret.md", ToolRetry),
        ("notes\\plan.md", ToolRetry),
        ("\\\\server\\share.md", ToolRetry),
        ("\\\\?\\C:\\secret.md", ToolRetry),
        ("//?/C:/secret.md", AccessDenied),
        ("//./pipe/x.md", AccessDenied),
        ("C:secret.md", AccessDenied),
        ("\uff0e\uff0e/secret.md", AccessDenied),
        ("\uff0e\uff0e\uff0fsecret.md", AccessDenied),
        ("notes/\u2025/secret.md", AccessDenied),
        ("notes/\u2024\u2024/secret.md", AccessDenied),
        ("\uff0fetc\uff0fpasswd.md", None),
        ("notes\u2215plan.md", None),
        ("plan\u202edm.md", ToolRetry),
        ("plan\u2066.md", ToolRetry),
        ("plan\u200f.md", ToolRetry),
        ("plan\u200b.md", ToolRetry),
        ("\ufeffplan.md", ToolRetry),
        ("pl\u00adan.md", ToolRetry),
        ("pl\u200dan.md", ToolRetry),
        ("\u200c.md", ToolRetry),
        ("plan\x7f.md", ToolRetry),
        ("plan\x9f.md", ToolRetry),
        ("plan\r.md", ToolRetry),
        ("plan.md\0", ToolRetry),
        ("plan.md\0.txt", ToolRetry),
        ("plan\n.md", ToolRetry),
        ("plan\u2028.md", ToolRetry),
        ("plan\ud800.md", ToolRetry),
        ("", ToolRetry),
        (".", ToolRetry),
        ("notes", ToolRetry),
        ("notes/", ToolRetry),
        ("plan.txt", ToolRetry),
        ("plan.md/", None),
        ("plan.md/../x", AccessDenied),
        (".md", AccessDenied),
        ("notes/plan.md ", ToolRetry),
        (" notes/plan.md", ToolRetry),
        ("a" * 300 + ".md", ToolRetry),
        ("ü" * 150 + ".md", ToolRetry),
        ("a/" * 20 + "b.md", ToolRetry),
        ("a" * 100_000, ToolRetry),
    ],
)
def test_hostile_and_wrong_paths(path: str, kind: type[DodonaError] | None) -> None:
    """What leaves the vault is denied; what is only wrong is told so; all of it in few words."""
    if kind is None:
        assert len(note_parts(path)) == 1  # a name, and no more than that
        return
    with pytest.raises(kind) as caught:
        note_parts(path)
    assert len(str(caught.value)) < 700
    assert not set(str(caught.value)) & {"\0", "\n", "\u2028", "\ud800"}


def test_a_folder_may_be_the_vault_itself() -> None:
    """And has no ending."""
    assert folder_parts("") == folder_parts(".") == ()
    assert folder_parts("notes/old/") == ("notes", "old")


@pytest.mark.parametrize(
    "name", [".git", " a", "a ", "a\\b", "a\nb", "a\udcff", "a\u202eb", "x" * 201]
)
def test_what_no_path_can_name_is_passed_over(name: str) -> None:
    """A file that a model could not ask for is no part of the vault."""
    assert not is_allowed_name(name)
    assert is_allowed_name("notes")

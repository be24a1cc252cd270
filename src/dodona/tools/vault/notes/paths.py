"""Which paths are valid in a vault. Paths come from the model, which untrusted notes may influence.

A path that tries to leave the vault is denied; an invalid one is reported with a hint. No file is
touched here: links are refused where files are opened.
"""

from __future__ import annotations

import re
import unicodedata
from pathlib import PurePosixPath
from typing import Final

from dodona.core.errors import AccessDenied, ToolRetry

MAX_PATH_CHARS: Final = 512
MAX_PART_BYTES: Final = 200  # file systems allow up to 255
MAX_DEPTH: Final = 16

# Control characters, line separators, lone surrogates and the backslash; also direction marks and
# zero-width characters, which make different paths look the same. Joiners are needed in some
# scripts and emoji, but not after ASCII.
_FORBIDDEN_CHARACTERS = re.compile(
    "[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\\\\"
    "\u00ad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0001]"
    "|(?<![^\x00-\x7f])[\u200c\u200d]"
)
_EXAMPLE: Final = "Give a path relative to the vault, such as 'notes/plan.md'."


def note_parts(path: str) -> tuple[str, ...]:
    """Split the path of a note into folders and name."""
    parts = folder_parts(path)
    if not parts or not is_note(parts[-1]):
        raise ToolRetry(f"'{_printable(path)}' is not a note.", hint="Note names end in '.md'.")
    return parts


def folder_parts(path: str) -> tuple[str, ...]:
    """Split the path of a folder; empty for the vault itself."""
    if len(path) > MAX_PATH_CHARS:
        raise ToolRetry(f"the path is longer than {MAX_PATH_CHARS} characters.")
    if _FORBIDDEN_CHARACTERS.search(path):
        raise ToolRetry(
            f"'{_printable(path)}' contains characters that are not allowed in a path.",
            hint=_EXAMPLE,
        )
    if path.startswith(("/", "~")) or re.match(r"[A-Za-z]:", path):
        raise AccessDenied(f"'{path}' is an absolute path.", hint=_EXAMPLE)
    parts = PurePosixPath(path).parts
    # We never open a look-alike of `../`, but a program that gets the path from us might.
    if ".." in parts or ".." in unicodedata.normalize("NFKC", path).split("/"):
        raise AccessDenied(f"'{path}' leads out of the vault.", hint=_EXAMPLE)
    if any(part.startswith(".") for part in parts):
        raise AccessDenied(f"'{path}' is hidden and therefore not part of the vault.")
    if len(parts) > MAX_DEPTH or any(len(part.encode()) > MAX_PART_BYTES for part in parts):
        raise ToolRetry(
            f"'{_printable(path)}' is too long.",
            hint=f"The limits are {MAX_DEPTH} levels and {MAX_PART_BYTES} bytes per name.",
        )
    if any(part != part.strip() for part in parts):
        raise ToolRetry(f"a name in '{path}' starts or ends with a space.")
    return parts


def is_note(name: str) -> bool:
    """Whether a file name is that of a note."""
    return len(name) > 3 and name.lower().endswith(".md")


def is_allowed_name(name: str) -> bool:
    """Whether an existing file or folder can be part of the vault."""
    return not (
        name.startswith(".")
        or name != name.strip()
        or _FORBIDDEN_CHARACTERS.search(name)
        or len(name.encode()) > MAX_PART_BYTES
    )


def fold_name(name: str) -> str:
    """Return a key that ignores case and Unicode encoding."""
    return unicodedata.normalize("NFC", name).casefold()


def is_same_name(name: str, other: str) -> bool:
    """Whether two names are equal up to Unicode encoding."""
    return unicodedata.normalize("NFC", name) == unicodedata.normalize("NFC", other)


def _printable(path: str) -> str:
    return _FORBIDDEN_CHARACTERS.sub("�", path[:80])

"""Which paths are in a vault. A path is a model's word, and a note may have told it what to say.

What tries to leave the vault is denied; what is only wrong is told with what would be right. No
file is touched here: links are refused where files are opened.
"""

from __future__ import annotations

import re
import unicodedata
from pathlib import PurePosixPath
from typing import Final

from dodona.core.errors import AccessDenied, ToolRetry

MAX_PATH_CHARS: Final = 512
MAX_PART_BYTES: Final = 200  # in bytes; file systems end at 255
MAX_DEPTH: Final = 16

# Control characters, line separators, halves of surrogate pairs, and the other kind of slash; what
# turns the direction of writing, and what takes no room: by them two paths look like one. Joiners
# are a part of some scripts and pictures, but not of anything in ASCII.
_FORBIDDEN_CHARACTERS = re.compile(
    "[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\\\\"
    "\u00ad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0001]"
    "|(?<![^\x00-\x7f])[\u200c\u200d]"
)
_EXAMPLE: Final = "Give a path relative to the vault, such as 'notes/plan.md'."


def note_parts(path: str) -> tuple[str, ...]:
    """The folders and the name of a note."""
    parts = folder_parts(path)
    if not parts or not is_note(parts[-1]):
        raise ToolRetry(
            f"'{_printable(path)}' is no note.", hint="The names of notes end in '.md'."
        )
    return parts


def folder_parts(path: str) -> tuple[str, ...]:
    """The folders of a path; none for the vault itself."""
    if len(path) > MAX_PATH_CHARS:
        raise ToolRetry(f"the path is longer than {MAX_PATH_CHARS} characters.")
    if _FORBIDDEN_CHARACTERS.search(path):
        raise ToolRetry(
            f"'{_printable(path)}' holds characters that no path in the vault may have.",
            hint=_EXAMPLE,
        )
    if path.startswith(("/", "~")) or re.match(r"[A-Za-z]:", path):
        raise AccessDenied(f"'{path}' is an absolute path.", hint=_EXAMPLE)
    parts = PurePosixPath(path).parts
    # Nothing here opens a look-alike of `../`, but a program that gets the path from us might.
    if ".." in parts or ".." in unicodedata.normalize("NFKC", path).split("/"):
        raise AccessDenied(f"'{path}' leads out of the vault.", hint=_EXAMPLE)
    if any(part.startswith(".") for part in parts):
        raise AccessDenied(f"'{path}' is hidden, and so no part of the vault.")
    if len(parts) > MAX_DEPTH or any(len(part.encode()) > MAX_PART_BYTES for part in parts):
        raise ToolRetry(
            f"'{_printable(path)}' is too long.",
            hint=f"At most {MAX_DEPTH} folders deep, with names of at most {MAX_PART_BYTES} bytes.",
        )
    if any(part != part.strip() for part in parts):
        raise ToolRetry(f"a name in '{path}' begins or ends with a space.")
    return parts


def is_note(name: str) -> bool:
    return len(name) > 3 and name.lower().endswith(".md")


def is_allowed_name(name: str) -> bool:
    """May a file or folder that is there be part of the vault?"""
    return not (
        name.startswith(".")
        or name != name.strip()
        or _FORBIDDEN_CHARACTERS.search(name)
        or len(name.encode()) > MAX_PART_BYTES
    )


def fold_name(name: str) -> str:
    """By which names are one on a system that cares for neither case nor encoding."""
    return unicodedata.normalize("NFC", name).casefold()


def is_same_name(name: str, other: str) -> bool:
    """Are these the same characters, however they are encoded?"""
    return unicodedata.normalize("NFC", name) == unicodedata.normalize("NFC", other)


def _printable(path: str) -> str:
    return _FORBIDDEN_CHARACTERS.sub("�", path[:80])

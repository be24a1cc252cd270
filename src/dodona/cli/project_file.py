"""`.dodona/project`: which project a folder and all below it belong to."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from dodona.core.domain.projects import DEFAULT_PROJECT
from dodona.core.errors import BadRequest

PROJECT_FILE: Final = Path(".dodona", "project")

_PROJECT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def project_of(folder: Path) -> str:
    """The project of the nearest folder, here or above, that names one; else the default."""
    for each in (folder, *folder.parents):
        if found := read_project_id(each):
            return found
    return DEFAULT_PROJECT


def read_project_id(folder: Path) -> str:
    """The project that this very folder names; empty when it names none."""
    try:
        text = (folder / PROJECT_FILE).read_text(encoding="utf-8").strip()
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return ""
    except (OSError, UnicodeDecodeError):
        text = ""
    if not _PROJECT_ID.fullmatch(text):
        raise BadRequest(
            f"{folder / PROJECT_FILE} names no project.",
            hint="Mend it with: dodona init, or remove it.",
        )
    return text


def write_project_id(folder: Path, project_id: str) -> None:
    place = folder / PROJECT_FILE
    place.parent.mkdir(exist_ok=True)
    place.write_text(f"{project_id}\n", encoding="utf-8")


def suggest_project_id(folder: Path) -> str:
    """A name for the project in a folder."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", folder.name).strip("._-")[:64]
    if not name:
        raise BadRequest(f"{folder} gives no name for a project.", hint="Name it: --project NAME")
    return name

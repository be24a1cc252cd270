"""`.dodona/project`, the file that assigns a folder and its subfolders to a project."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from dodona.core.domain.projects import DEFAULT_PROJECT
from dodona.core.errors import BadRequest

PROJECT_FILE: Final = Path(".dodona", "project")

_PROJECT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def project_of(folder: Path) -> str:
    """Return the project of a folder or its nearest ancestor that has one, else the default."""
    for each in (folder, *folder.parents):
        if project_id := read_project_id(each):
            return project_id
    return DEFAULT_PROJECT


def read_project_id(folder: Path) -> str:
    """Return the project in this folder's own file; empty if there is none."""
    try:
        text = (folder / PROJECT_FILE).read_text(encoding="utf-8").strip()
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return ""
    except (OSError, UnicodeDecodeError):
        text = ""
    if not _PROJECT_ID.fullmatch(text):
        raise BadRequest(
            f"{folder / PROJECT_FILE} does not contain a valid project name.",
            hint="Fix it with: dodona init. Or remove the file.",
        )
    return text


def write_project_id(folder: Path, project_id: str) -> None:
    """Write the project file of a folder."""
    file = folder / PROJECT_FILE
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"{project_id}\n", encoding="utf-8")


def suggest_project_id(folder: Path) -> str:
    """Derive a project name from the name of a folder."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", folder.name).strip("._-")[:64]
    if not name:
        raise BadRequest(f"cannot derive a project name from {folder}.", hint="Use --project NAME.")
    return name

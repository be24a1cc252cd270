"""The plants, in a file, so that they survive a restart."""

import json
import os
from pathlib import Path

START = {"fern": "wet", "fig": "dry", "olive": "dry"}


def file() -> Path:
    """Return the file of the plants: GREENHOUSE, or `greenhouse.json` in the current folder."""
    return Path(os.environ.get("GREENHOUSE", "greenhouse.json"))


def load() -> dict[str, str]:
    """Return the state of each plant."""
    return json.loads(file().read_text("utf-8")) if file().exists() else dict(START)


def save(plants: dict[str, str]) -> None:
    """Replace the file."""
    draft = file().with_suffix(".new")
    draft.write_text(json.dumps(plants), "utf-8")
    draft.replace(file())

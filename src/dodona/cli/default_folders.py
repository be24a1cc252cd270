"""Where the notes and the code of the default project are, for commands that work on the files.

What the settings name here comes first. Else it is what the gateway of the same store uses: it may
have been told by whoever started it, and a command beside it must not mean other notes.
"""

from __future__ import annotations

import os
from pathlib import Path

from dodona.app.config.config import Config
from dodona.app.models.credentials import Credentials
from dodona.app.projects.code import code_folders
from dodona.app.projects.vaults import vault_folder
from dodona.cli.client.connect import announced_gateway
from dodona.net.redactor import Redactor


def default_vault(config: Config, redactor: Redactor) -> Path:
    """The folder of its notes. It blocks."""
    if config.settings.vault.path is None:
        announced = announced_gateway(config, Credentials(config, os.environ, redactor))
        if announced is not None and announced.vault:
            return Path(announced.vault)
    return vault_folder(config)


def default_code(config: Config, redactor: Redactor) -> tuple[Path, ...]:
    """The folders of its code. It blocks."""
    if not config.settings.code.paths:
        announced = announced_gateway(config, Credentials(config, os.environ, redactor))
        if announced is not None:
            return tuple(map(Path, announced.code))
    return code_folders(config)

"""Options that most commands share, and what they decide: the config to load, the output format."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

from cyclopts import Parameter

from dodona.app.config.config import Config, load_config
from dodona.app.models.credentials import Credentials
from dodona.app.telemetry.logging import configure_logging
from dodona.cli.arguments import AsJson
from dodona.cli.project_file import project_of
from dodona.cli.terminal.output import REDACTOR, format_columns, print_json, print_text
from dodona.cli.terminal.screen import strip_control_chars
from dodona.core.json_document import to_builtins

ConfigFile = Annotated[Path | None, Parameter(name="--config", help="Path to the config file.")]
ProjectName = Annotated[
    str | None,
    Parameter(name="--project", help="Project. Defaults to the project of the current folder."),
]

NO_CONFIG_FILE: Final = "no config file, defaults and environment only"

_LOG_LEVEL_KEY: Final = ("log", "level")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonOptions:
    """`--json` and `--config`."""

    json: AsJson = False
    config: ConfigFile = None

    def load_config(self) -> Config:
        """Load the config. Log only warnings and errors unless a log level is configured."""
        config = load_config(os.environ, self.config)
        configure_logging(config.settings.log, REDACTOR)
        Credentials(config, os.environ, REDACTOR).register_all()
        if config.origins.of(_LOG_LEVEL_KEY) is None:
            logging.getLogger("dodona").setLevel(logging.WARNING)
        return config

    def print_result(self, document: Any, text: str) -> None:
        """Print the JSON document or the text, without secrets and control characters."""
        if self.json:
            print_json(REDACTOR.scrub_all(to_builtins(document)))
        else:
            print_text(REDACTOR.scrub(strip_control_chars(text)))

    def print_table(
        self,
        document: Any,
        heading: tuple[str, ...],
        rows: Iterable[tuple[str, ...]],
        *,
        empty: str,
    ) -> None:
        """Print the JSON document or a table; the text `empty` if it has no rows."""
        lines = [heading, *rows]
        self.print_result(document, format_columns(lines) if len(lines) > 1 else empty)


Options = Annotated[CommonOptions, Parameter(name="*")]
DEFAULTS: Final = CommonOptions()


def current_project(name: str | None) -> str:
    """Return the given project, else the project of the current folder."""
    return project_of(Path.cwd()) if name is None else name

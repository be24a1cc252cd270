"""Structured logs of all standard library loggers, with secrets redacted.

Other modules log to `logging.getLogger(__name__)`; values in `extra` become fields.
"""

from __future__ import annotations

import logging
import sys
from contextlib import suppress
from typing import Any, TextIO

import structlog
from structlog.typing import EventDict, Processor

from dodona.app.config.settings import LoggingSection
from dodona.net.redactor import Redactor
from dodona.telemetry.log_context import log_fields


def configure_logging(
    settings: LoggingSection, redactor: Redactor, stream: TextIO | None = None
) -> None:
    """Log to standard error according to the settings. Replaces an earlier configuration."""
    handler = _Handler(stream or sys.stderr)
    is_terminal = handler.stream.isatty()
    is_text = settings.format == "text" or (settings.format == "auto" and is_terminal)
    json_lines: list[Processor] = [structlog.processors.JSONRenderer(ensure_ascii=False)]
    renderers = _text_renderers(colours=is_terminal) if is_text else json_lines
    handler.setFormatter(_build_formatter(redactor, renderers))
    root = logging.getLogger()
    for previous in [each for each in root.handlers if isinstance(each, _Handler)]:
        root.removeHandler(previous)
    root.addHandler(handler)
    # Log only warnings of third-party libraries: their "info" does not concern our users.
    root.setLevel(logging.WARNING)
    logging.getLogger("dodona").setLevel(settings.level.upper())


class _Handler(logging.StreamHandler[TextIO]):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - overrides
        """Report the error without the arguments, which may contain a secret."""
        place = f"{record.name}, {record.pathname}:{record.lineno}"
        with suppress(OSError, ValueError):  # the stream itself may be broken
            self.stream.write(f"cannot write a log record: {place}\n")


def _build_formatter(
    redactor: Redactor, renderers: list[Processor]
) -> structlog.stdlib.ProcessorFormatter:
    def scrub(_logger: Any, _method: str, record: EventDict) -> EventDict:
        return redactor.scrub_all(record)

    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[
            structlog.stdlib.add_log_level,
            structlog.stdlib.add_logger_name,
            structlog.stdlib.ExtraAdder(),
            _add_log_context,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
        ],
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            scrub,  # after exceptions become text, before escaping
            *renderers,
        ],
    )


def _add_log_context(_logger: Any, _method: str, record: EventDict) -> EventDict:
    """Add the fields of the current request and run."""
    for name, value in log_fields().items():
        record.setdefault(name, value)
    return record


def _text_renderers(*, colours: bool) -> list[Processor]:
    console = structlog.dev.ConsoleRenderer(
        colors=colours, exception_formatter=structlog.dev.plain_traceback
    )
    return [_escape_unprintable, console]


def _escape_unprintable(_logger: Any, _method: str, record: EventDict) -> EventDict:
    """Escape control characters: untrusted text must not move the cursor or forge a line."""
    for key, value in record.items():
        if isinstance(value, str) and not value.isprintable():
            keep = "\n\t" if key in ("exception", "stack") else ""
            record[key] = "".join(
                c if c.isprintable() or c in keep else c.encode("unicode_escape").decode()
                for c in value
            )
    return record

"""Logs are structured, readable on a terminal, and hold no secret."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from dodona.app.config.settings import LoggingSection
from dodona.app.telemetry import logging as logs
from dodona.net.redactor import Redactor

KEY = "a-key-of-some-length"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def root() -> Iterator[logging.Logger]:
    """The root logger, as it was before."""
    logger = logging.getLogger()
    handlers, level = list(logger.handlers), logger.level
    yield logger
    logger.handlers[:] = handlers
    logger.setLevel(level)


@pytest.fixture
def redactor() -> Redactor:
    made = Redactor()
    made.add("KEY", KEY)
    return made


log = logging.getLogger("dodona.example")


def start(settings: LoggingSection, redactor: Redactor, stream: io.StringIO) -> None:
    """Without the handlers of pytest, which add to records and raise what they cannot write."""
    root = logging.getLogger()
    root.handlers[:] = [h for h in root.handlers if type(h).__module__ == logs.__name__]
    logs.configure_logging(settings, redactor, stream)


def records(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_record_is_one_line_of_json(redactor: Redactor) -> None:
    """With its time, level, logger and fields, where the stream is no terminal."""
    stream = io.StringIO()
    start(LoggingSection(), redactor, stream)
    log.info("run %s ended", 7, extra={"seconds": 0.5, "tools": ["a", "b"]})
    (record,) = records(stream)
    assert str(record.pop("timestamp")).endswith("Z")
    assert record == {
        "event": "run 7 ended",
        "level": "info",
        "logger": "dodona.example",
        "seconds": 0.5,
        "tools": ["a", "b"],
    }


def test_text_has_colours_on_a_terminal_only(redactor: Redactor) -> None:
    """`auto` is text there; `text` elsewhere is plain; `json` is JSON everywhere."""
    terminal, plain, machine = Terminal(), io.StringIO(), Terminal()
    for format_, stream in (("auto", terminal), ("text", plain), ("json", machine)):
        start(LoggingSection(format=format_), redactor, stream)
        log.warning("watch out")
    assert "\x1b[" in terminal.getvalue()
    assert "\x1b[" not in plain.getvalue()
    assert "watch out" in plain.getvalue()
    assert records(machine)[0]["event"] == "watch out"


def test_the_level_is_the_least_that_is_written(redactor: Redactor) -> None:
    """And starting again replaces what was there: no line comes twice."""
    stream = io.StringIO()
    start(LoggingSection(level="debug"), redactor, stream)
    start(LoggingSection(level="warning"), redactor, stream)
    log.info("quiet")
    log.warning("loud")
    assert [record["event"] for record in records(stream)] == ["loud"]


@pytest.mark.parametrize("format_", ["json", "text"])
def test_no_secret_is_written(redactor: Redactor, format_: str) -> None:
    """Not in the message, its arguments, fields, tracebacks, nor what only looks like one."""
    stream = io.StringIO()
    start(LoggingSection.model_validate({"format": format_}), redactor, stream)
    try:
        int(f"refused {KEY}")
    except ValueError:
        log.exception("with %s", KEY, extra={KEY: 1, "headers": {"x": [KEY, {"y": KEY}]}})
    log.error("GET https://api.example/?key=unknown-key")
    log.error('said "Authorization: Bearer unknown-key"', stack_info=True)
    text = stream.getvalue()
    assert KEY not in text
    assert "unknown-key" not in text
    assert "'refused [secret KEY]'" in text
    assert "Traceback" in text
    if format_ == "json":
        assert len(records(stream)) == 3


def test_a_stranger_s_text_cannot_move_the_cursor_or_fake_a_line(redactor: Redactor) -> None:
    """Control characters are escaped; those of a traceback's lines stay."""
    stream = io.StringIO()
    start(LoggingSection(format="text"), redactor, stream)
    try:
        json.loads("{}")["\x1b[2J"]
    except KeyError:
        log.exception("one\n2026-01-01 [info] two\x1b[2J\r", extra={"x": "\x07"})
    text = stream.getvalue()
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "\\n2026-01-01" in text
    assert "\nTraceback (most recent call last):\n" in text


def test_a_record_that_cannot_be_written_shows_nothing_of_itself(redactor: Redactor) -> None:
    """The standard library would print its arguments as they are."""
    stream = io.StringIO()
    start(LoggingSection(), redactor, stream)
    log.error("%d", KEY)
    assert KEY not in stream.getvalue()
    assert stream.getvalue().startswith("cannot write a log record: dodona.example, ")

"""Files of subscribers: every mistake is told at once, with its place and what to write."""

from __future__ import annotations

import pytest

from dodona.core.errors import ConfigError
from dodona.notify.subscriber import read_subscriber
from tests.notify.subscribing import Folder

RIGHT = """\
[subscriber]
id = "x"
[events]
types = ["tool.*"]
[output]
template = "{{ count }}"
"""


def mistakes(folder: Folder, text: str) -> list[str]:
    file = folder.write("x", text)
    with pytest.raises(ConfigError) as found:
        read_subscriber(file)
    return str(found.value).replace(f"{folder.path}/", "").splitlines()


def test_what_is_not_said_has_its_default(folder: Folder) -> None:
    """The shortest file is a whole subscriber."""
    found = read_subscriber(folder.write("x", RIGHT))
    assert found.as_json() == {
        "id": "x",
        "name": "x",
        "description": "",
        "version": "1",
        "events": ["tool.*"],
        "core": False,
        "enabled": True,
        "inject_at": "turn_start",
        "file": str(folder.path / "x.toml"),
    }
    assert (found.system_type, found.is_persistent) == ("x", True)


def test_all_mistakes_are_told_at_once(folder: Folder) -> None:
    """Of keys, of values, of patterns, of the filter, of each template."""
    text = '''\
[subscriber]
id = "Tool Failure"
nam = "x"
[events]
types = ["tool.*", "tool*"]
severity = "warn"
filter = "payload.tool = 'x'"
[batching]
windowms = 5
max_size = 0
dedupe_key = "{{ count }}"
[output]
inject_at = "after_tools"
priority = "urgent"
template = """
one
{{ pyload.tool }}
"""
shown = "{% if %}"
keep = "yes"
[outputs]
'''
    found = mistakes(folder, text)
    assert found == [
        'x.toml:2: subscriber.id is not a valid id (got "Tool Failure"). '
        "A lowercase letter, then at most 63 lowercase letters, digits, _ or -.",
        "x.toml:3: unknown key subscriber.nam. Did you mean 'name'?",
        "x.toml:5: events.types contains an invalid event pattern: 'tool*' (got an array). "
        "Write a type like tool.call.success, a prefix like tool.*, or *.",
        "x.toml:6: events.severity must be one of debug, info, warning, error, critical "
        "(got \"warn\"). Did you mean 'warning'?",
        found[4],
        "x.toml:9: unknown key batching.windowms. Did you mean 'window_ms'?",
        "x.toml:10: batching.max_size must be >= 1 (got 0).",
        "x.toml:11: batching.dedupe_key is invalid: the template uses an undefined value: "
        "'count' is undefined. Available variables: event, payload.",
        "x.toml:13: output.inject_at must be one of immediate, turn_start, after_tool, turn_end "
        "(got \"after_tools\"). Did you mean 'after_tool'?",
        "x.toml:14: output.priority must be one of low, normal, high, critical, event "
        '(got "urgent").',
        "x.toml:17: output.template is invalid: the template uses an undefined value: 'pyload' is "
        "undefined. Did you mean 'payload'?",
        "x.toml:19: output.shown is invalid: the template is not a valid template: Expected an "
        "expression, "
        "got 'end of statement block'. Put literal {{, {% or {# between {% raw %} and "
        "{% endraw %}.",
        'x.toml:20: output.keep must be true or false (got "yes").',
        "x.toml:21: unknown section [outputs]. Did you mean 'output'?",
    ]
    # The words are those of `dodona.conditions`; the place is ours.
    assert found[4].startswith("x.toml:7: events.filter is invalid: ")


def test_what_a_subscriber_cannot_do_without(folder: Folder) -> None:
    """An id, types and a template."""
    assert mistakes(folder, "[subscriber]\n[events]\n[output]\n") == [
        "x.toml:1: subscriber.id is missing. "
        "A lowercase letter, then at most 63 lowercase letters, digits, _ or -.",
        "x.toml:2: events.types is missing. "
        "Patterns: tool.call.failure, tool.*, budget.*.warning, *.",
        "x.toml:3: output.template is missing. The text for the model, a Jinja2 template over "
        "events, event (the last), count, payload (of the last) and rows (all payloads, in compact "
        "form).",
    ]
    assert mistakes(folder, RIGHT.replace('["tool.*"]', "[]")) == [
        "x.toml:4: events.types contains an invalid event pattern: '' (got an array). "
        "Write a type like tool.call.success, a prefix like tool.*, or *."
    ]

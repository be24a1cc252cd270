"""Templates: they show, choose and repeat, within bounds, whoever wrote them."""

from __future__ import annotations

from typing import Any

import pytest

from dodona.core.errors import ConfigError
from dodona.templates import Template, render

VALUES = {"project_id": "oak", "tools": ["vault_read", "vault_search"]}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain *Markdown* & <tags>", "plain *Markdown* & <tags>"),
        ("{{ project_id }}: {{ tools | join(', ') }}", "oak: vault_read, vault_search"),
        ("a\n{% if tools %}\nb\n{% else %}\nc\n{% endif %}\nd\n", "a\nb\nd"),
        ("{% for tool in tools %}\n- {{ tool }}\n{% endfor %}", "- vault_read\n- vault_search\n"),
        ("{% for n in range(3) %}{{ loop.index }}/{{ loop.length }} {% endfor %}", "1/3 2/3 3/3 "),
        ("{% for t in tools if t != 'vault_read' %}{{ t | upper }}{% endfor %}", "VAULT_SEARCH"),
        ("{{ tools | length }} {{ tools | first }} {{ tools[1] }}", "2 vault_read vault_search"),
        ("{{ tools | unique | sort | join(' ') }}", "vault_read vault_search"),
        ("{{ nobody | default('none') }}{% if nobody is defined %}!{% endif %}", "none"),
        ("{{ 'some' if tools else 'no' }} tools", "some tools"),
        (
            "{{ 12345 | thousands }} {{ 0.5 | duration }} {{ 1 | duration }}",
            "12,345 0.5 seconds 1 second",
        ),
        (
            "{{ 119 | duration }}, {{ 7200 | duration }}, {{ 200000 | duration }}",
            "1 minute, 2 hours, 2 days",
        ),
        ("{% raw %}{{ not mine }}{% endraw %}{# a comment #}", "{{ not mine }}"),
    ],
)
def test_a_template_shows_chooses_and_repeats(text: str, expected: str) -> None:
    """Values as they are: it is text for a model, nothing is escaped."""
    assert render(text, VALUES) == expected


def test_values_that_only_seem_equal_render_each_their_own_way() -> None:
    """1 == True == 1.0, also within lists and maps."""
    shown = [render("{{ x }} {{ y[0] }}", {"x": x, "y": [x]}) for x in (1, True, 1.0, "1")]
    assert shown == ["1 1", "True True", "1.0 1.0", "1 1"]
    changing: dict[str, Any] = {"tools": ["a"]}
    assert render("{{ tools | join }}", changing) == "a"
    changing["tools"].append("b")
    assert render("{{ tools | join }}", changing) == "ab"


def test_values_are_those_of_json() -> None:
    """Anything else is a bug of whoever renders: it might look different each time."""
    with pytest.raises(TypeError, match="a template takes JSON values, not object"):
        render("", {"x": [object()]})


MISTAKES = [
    (
        "one\n{{ project_id }",
        "t.md:2: the template is not a valid template: unexpected '}'. "
        "Put literal {{, {% or {# between {% raw %} and {% endraw %}.",
    ),
    (
        "one\ntwo {{ project }}",
        "t.md:2: the template uses an undefined value: 'project' is undefined. "
        "Did you mean 'project_id'?",
    ),
    (
        "{% for t in tools %}\n{{ t.title_of }}\n{% endfor %}",
        "t.md:2: the template uses an undefined value: 'str object' has no attribute 'title_of'.",
    ),
    (
        "{{ weather }}",
        "t.md:1: the template uses an undefined value: 'weather' is undefined. "
        "Available variables: project_id, tools.",
    ),
    (
        "\n{{ project_id.__class__.__mro__ }}",
        "t.md:2: the template is not allowed to do this: access to attribute '__class__' of "
        "'str' object is "
        "unsafe.",
    ),
    ("{{ tools | joi }}", "t.md:1: unknown filter 'joi' in a template. Did you mean 'join'?"),
    ("{{ 'a' < 1 }}", "t.md:1: the template cannot be rendered: '<' not supported between "),
    ("{{ project_id.upper }}", "t.md:1: the template cannot be rendered: a builtin_function_or_"),
    (
        "{{ tools | unique }}",
        "t.md:1: the template cannot be rendered: a generator cannot be shown.",
    ),
    ("{{ " + "9" * 5000 + " }}", "t.md: the template is not a valid template: Exceeds the limit"),
]


@pytest.mark.parametrize(("text", "told"), MISTAKES)
def test_mistakes_are_told_with_file_and_line(text: str, told: str) -> None:
    """The author is to find them, not the user of a run."""
    assert mistake(text).startswith(told)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("{% include 'other.md' %}", "include"),
        ("{% extends 'other.md' %}", "extends"),
        ("{% import 'other.md' as x %}", "import"),
        ("{% macro f() %}{% endmacro %}", "macro"),
        ("{% set x = 1 %}", "set"),
        ("{% block x %}{% endblock %}", "block"),
        ("{{ tools.pop() }}", "a call other than range()"),
        ("{{ lipsum() }}", "a call other than range()"),
        ("{{ 9 ** 9 }}", "arithmetic"),
        ("{{ 'a' * 9 }}", "arithmetic"),
        ("{{ 'a' ~ 'b' }}", "concat"),
    ],
)
def test_a_template_is_no_program(text: str, what: str) -> None:
    """It cannot call, assign, compute or reach other files."""
    assert mistake(text) == (
        f"t.md:1: a template cannot use {what}. Only values, if, for and simple filters are "
        "supported."
    )


LONG = '"' + "a" * 100_000 + '"'


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{% for a in range(1001) %}{% endfor %}", "a range can have at most 1,000 numbers."),
        ("{% for a in range(1000) %}" + "x" * 1000 + "{% endfor %}", "more than 262,144 char"),
        (f"{{% for a in [{LONG}] %}}{{{{ [a,a,a]|join }}}}{{% endfor %}}", "at most 262,144 char"),
        (
            "{% for a in tools %}" * 3 + "{% endfor %}" * 3,
            "loops in a template can be nested at most 2 deep",
        ),
        (
            "{% for a in tools recursive %}{% endfor %}",
            "loops in a template can be nested at most 2 deep",
        ),
        (
            f"{{% for a in {LONG} %}}{{% for b in {LONG} %}}{{% endfor %}}{{% endfor %}}",
            "it takes too long.",
        ),
        ("{% if tools %}" * 300 + "{% endif %}" * 300, "nested too deeply."),
        ("{{" + "(" * 2000 + "1" + ")" * 2000 + "}}", "nested too deeply."),
        ("{{ tools }}" * 20_000, "more than 5,000 tokens."),
    ],
)
def test_a_template_that_would_not_end_is_ended(text: str, told: str) -> None:
    """Too long, too deep, too much: each has its bound."""
    assert told in mistake(text)


def mistake(text: str) -> str:
    with pytest.raises(ConfigError) as wrong:
        render(text, VALUES, file="t.md")
    return str(wrong.value)


def test_a_mistake_calls_the_text_what_it_is() -> None:
    """Its author may never have heard of templates."""
    with pytest.raises(ConfigError) as wrong:
        render("{{ x }}", {}, label="message")
    assert str(wrong.value) == (
        "message:1: the message uses an undefined value: 'x' is undefined. Available variables: ."
    )


def test_what_a_map_holds_comes_before_what_python_adds() -> None:
    """A payload may have any keys; what it has not is missing, as ever."""
    values = {"payload": {"items": 3, "keys": ["a"], "other": "x"}}
    text = "{{ payload.items }} {{ payload.keys[0] }} {{ payload['other'] }}"
    assert Template(text).render(values) == "3 a x"
    with pytest.raises(ConfigError) as wrong:
        Template("{{ payload.values }}").render(values)
    told = "the template cannot be rendered: a builtin_function_or_method cannot be shown."
    assert wrong.value.message == told


NAMES = ("events", "payload", "count")


def test_with_names_what_they_name_can_be_asked_for() -> None:
    """Also what a loop brings along."""
    text = "{% for e in events %}{{ loop.index }}{{ e }}{% endfor %}{% for n in range(count) %}x"
    template = Template(text + "{% endfor %}", names=NAMES)
    assert template.render({"events": ["a", "b"], "count": 3}) == "1a2bxxx"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "a\n{% if count %}\n{{ pyload.tool }}{% endif %}{{ other }}",
            "3: the template uses an undefined value: 'pyload' is undefined. "
            "Did you mean 'payload'?",
        ),
        (
            "{{ x | default(1) }}",
            "1: the template uses an undefined value: 'x' is undefined. "
            "Available variables: count, events, payload.",
        ),
        (
            "{% for e in events %}{% endfor %}\n{{ e }}",
            "2: the template uses an undefined value: 'e' is undefined. "
            "Available variables: count, events, payload.",
        ),
    ],
)
def test_with_names_nothing_else_can_be_asked_for(text: str, told: str) -> None:
    """Whoever writes a file learns it when it is loaded, not when the event happens."""
    with pytest.raises(ConfigError) as wrong:
        Template(text, names=NAMES)
    assert str(wrong.value) == told

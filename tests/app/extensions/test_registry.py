"""The registry of an app: names are unique, and declarations valid."""

from __future__ import annotations

from pathlib import Path

import pytest

from dodona.app.extensions.registry import load_registry
from dodona.core.errors import ConfigError, DodonaError, ExtensionError
from tests.app.extensions.files import config_with, error_text, registry_of, tool_text

TOOL = tool_text()
LEAF = "from dodona import leaf\n\n\n@leaf('my.leaf')\ndef mine(bb): ...\n"
DECORATOR = "from dodona import decorator\n\n\n@decorator('mine')\ndef mine(bb): ...\n"
TREE = (
    "from dodona import DefaultDecisionTree, decision_tree\n\n\n"
    "@decision_tree('mine')\nclass Mine(DefaultDecisionTree): ...\n"
)
PROVIDER = "from dodona import model\n\n\n@model('mine')\nasync def mine(request):\n    yield ''\n"
SUBSCRIBER = "from dodona import subscriber\n\n\n@subscriber('a.b')\ndef mine(events): ...\n"
SUBAGENT = (
    "from dodona import Subagent\n\nmine = Subagent(name='mine', description='It.', "
    "system_prompt_path='librarian.md', allowed_tools=())\n"
)

TWICE = {
    "tool": (TOOL, "weather", 4),
    "leaf": (LEAF, "my.leaf", 4),
    "decorator": (DECORATOR, "mine", 4),
    "decision tree": (TREE, "mine", 4),
    "model provider": (PROVIDER, "mine", 4),
    "subscriber": (SUBSCRIBER, "mine", 4),
}


@pytest.mark.parametrize(("kind", "text", "name", "line"), [(k, *v) for k, v in TWICE.items()])
def test_a_name_is_used_once(tmp_path: Path, kind: str, text: str, name: str, line: int) -> None:
    """The error names both places."""
    with pytest.raises(ExtensionError) as caught:
        registry_of(tmp_path, text, f"\n{text}")
    assert error_text(caught.value, tmp_path) == (
        f"b.py:{line + 1}: {kind} '{name}' has the name of the {kind} in a.py:{line}. Give it "
        "another name."
    )


def test_a_subagent_is_an_object_without_a_line(tmp_path: Path) -> None:
    """The error names the files."""
    with pytest.raises(ExtensionError) as caught:
        registry_of(tmp_path, SUBAGENT, SUBAGENT)
    assert error_text(caught.value, tmp_path) == (
        "b.py: subagent 'mine' has the name of the subagent in a.py. Give it another name."
    )


BUILT_IN = {
    "tool": (tool_text("vault_read"), "vault_read", 4),
    "tool of a subagent": (tool_text("delegate_librarian"), "delegate_librarian", 4),
    "leaf": (LEAF.replace("my.leaf", "llm-call"), "llm-call", 4),
    "decorator": (DECORATOR.replace("'mine'", "'turn-control'"), "turn-control", 4),
    "decision tree": (TREE.replace("'mine'", "'default'"), "default", 4),
    "model provider": (PROVIDER.replace("'mine'", "'openai'"), "openai", 4),
    "subscriber": (SUBSCRIBER.replace("def mine", "def tool_failure"), "tool_failure", 4),
    "subagent": (SUBAGENT.replace("'mine'", "'librarian'"), "librarian", 0),
}


@pytest.mark.parametrize(("kind", "text", "name", "line"), [(k, *v) for k, v in BUILT_IN.items()])
def test_the_name_of_a_built_in_one_is_taken(
    tmp_path: Path, kind: str, text: str, name: str, line: int
) -> None:
    """Also that of a tool which this installation does not have."""
    with pytest.raises(ExtensionError) as caught:
        registry_of(tmp_path, text)
    place, kind = f"a.py:{line}" if line else "a.py", kind.removesuffix(" of a subagent")
    assert error_text(caught.value, tmp_path) == (
        f"{place}: {kind} '{name}' has the name of Dodona's own {kind}. Give it another name."
    )


def test_a_tool_with_the_name_of_a_delegation(tmp_path: Path) -> None:
    """A subagent has a tool: the one with which models delegate to it."""
    with pytest.raises(ExtensionError) as caught:
        registry_of(tmp_path, tool_text("delegate_mine"), SUBAGENT)
    assert error_text(caught.value, tmp_path) == (
        "b.py: tool 'delegate_mine' has the name of the tool in a.py:4. Give it another name."
    )


INVALID = {
    "a decision tree that cannot be built": (
        TREE.replace("...", "\n    def __init__(self): ..."),
        "a.py:4: decision tree 'mine' cannot be built: TypeError: Mine.__init__() takes 1 "
        "positional argument but 2 were given. It is called with an AgentConfig.",
    ),
    "a decision tree without a method": (
        "from dodona import decision_tree\n\n\n"
        "@decision_tree('mine')\nclass Mine:\n    def __init__(self, config): ...\n",
        "a.py:4: decision tree 'mine' has no method should_continue. Inherit from "
        "DefaultDecisionTree.",
    ),
    "a subscriber with an unknown option": (
        SUBSCRIBER.replace("'a.b'", "'a.b', windw_ms=3"),
        "a.py:4: subscriber 'mine' has no option 'windw_ms'. Did you mean 'window_ms'?",
    ),
    "a subscriber with an invalid option": (
        SUBSCRIBER.replace("'a.b'", "'a.b', window_ms=-1"),
        "a.py:4: subscriber 'mine': window_ms must be >= 0 (got -1).",
    ),
    "a subscriber with an invalid pattern": (
        SUBSCRIBER.replace("'a.b'", "'a..b'"),
        "a.py:4: subscriber 'mine': types contains an invalid event pattern: 'a..b' (got an "
        "array). Write a type like tool.call.success, a prefix like tool.*, or *.",
    ),
    "a tool without a description": (
        "from dodona import tool\n\n\n@tool\ndef mine() -> str:\n    return ''\n",
        "a.py:4: tool 'mine' has no description. Write a docstring: the model chooses a tool by "
        "it.",
    ),
}


@pytest.mark.parametrize(("text", "message"), INVALID.values(), ids=INVALID)
def test_an_invalid_declaration(tmp_path: Path, text: str, message: str) -> None:
    """It is found before anything runs."""
    with pytest.raises(DodonaError) as caught:
        registry_of(tmp_path, text)
    assert error_text(caught.value, tmp_path) == message


def test_agents_can_use_the_names_of_extensions(tmp_path: Path) -> None:
    """A config may name tools, decision trees and providers that its extensions declare."""
    for name, text in (("a.py", TOOL), ("b.py", TREE), ("c.py", PROVIDER)):
        (tmp_path / name).write_text(text)
    more = "[agent]\nprovider='mine'\ndecision_tree='mine'\ntools=['weather', 'vault_read']\n"
    registry = load_registry(config_with(tmp_path, "a.py", "b.py", "c.py", more=more))
    assert registry.agent.find_decision_tree("mine").name == "mine"
    assert registry.agent.toolbox.find("weather") is not None
    assert list(registry.providers) == ["mine"]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            "[agent]\ndecision_tree='mien'\n",
            'dodona.toml:4: agent.decision_tree must be a known decision tree (got "mien"). Did '
            "you mean 'mine'?",
        ),
        (
            "[agent]\nprovider='nine'\n",
            'dodona.toml:4: agent.provider must be a known provider (got "nine"). Did you mean '
            "'mine'?",
        ),
        (
            "[agent]\ntools=['wether']\n",
            'dodona.toml:4: agent.tools[0] is not a known tool (got "wether"). Did you mean '
            "'weather'?",
        ),
        ("[agents.scout]\n", "dodona.toml:3: agents.scout is the name of a subagent."),
    ],
)
def test_a_name_that_no_extension_declares(tmp_path: Path, more: str, message: str) -> None:
    """The error names the line of the config, and a similar name."""
    texts = (TOOL, TREE, PROVIDER, SUBAGENT.replace("'mine'", "'scout'"))
    for name, text in zip("abcd", texts, strict=True):
        (tmp_path / f"{name}.py").write_text(text)
    config = config_with(tmp_path, "a.py", "b.py", "c.py", "d.py", more=more)
    with pytest.raises(ConfigError) as caught:
        load_registry(config)
    assert error_text(caught.value, tmp_path).startswith(message)

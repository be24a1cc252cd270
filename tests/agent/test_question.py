"""What may be asked: all mistakes are told at once, and wishes are kept as they were."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dodona.agent.question import MAX_QUESTION_CHARS, Question, context_id
from dodona.core.domain.conversations.conversation import NO_OPTIONS, RunOptions
from dodona.core.errors import BadRequest, NotFound
from dodona.core.json_document import parse_document

FINE: list[dict[str, Any]] = [
    {"question": "?"},
    {"question": "x" * MAX_QUESTION_CHARS},
    {"question": "Why?", "max_tokens": 1, "sources": [], "thinking": False, "new": True},
    {"question": "Why?", "sources": ["vault", "web", "code", "thread", "house"]},
    {"question": "Why?", "project_id": None, "model": None, "context_id": None},
]
TEXT = "question must be a string of 1 to 10,000 characters"
TOKENS = "max_tokens must be a whole number from 1 to 1,000,000, or null"
SOURCES = "sources must be a list of strings, or null"
WRONG: list[tuple[dict[str, Any], list[str]]] = [
    ({}, ["question is required."]),
    ({"question": ""}, [f"{TEXT} (got '')."]),
    ({"question": " \n"}, [f"{TEXT} (got ' \\n')."]),
    ({"question": 7}, [f"{TEXT} (got 7)."]),
    ({"question": "x" * 10_001}, [f"{TEXT} (got 10,001 characters)."]),
    ({"question": "?", "qestion": 1}, ["there is no field 'qestion'."]),
    ({"question": "?", "max_tokens": 0}, [f"{TOKENS} (got 0)."]),
    ({"question": "?", "max_tokens": True}, [f"{TOKENS} (got true)."]),
    ({"question": "?", "max_tokens": 1.5}, [f"{TOKENS} (got 1.5)."]),
    ({"question": "?", "sources": "web"}, [f"{SOURCES} (got 'web')."]),
    ({"question": "?", "sources": ["a b"]}, [f"{SOURCES}."]),
    ({"question": "?", "sources": [["web"]]}, [f"{SOURCES}."]),
    (
        {"question": "?", "thinking": "yes"},
        ["thinking must be true or false, or null (got 'yes')."],
    ),
    ({"question": "?", "new": 1}, ["new must be true or false (got 1)."]),
    (
        {"question": "?", "model": ""},
        ["model must be a string of 1 to 200 characters, or null (got '')."],
    ),
    (
        {"question": "?", "project_id": "x" * 201},
        ["project_id must be a string of 1 to 200 characters (got 201 characters)."],
    ),
    (
        {"question": 1, "model": 2, "what": 3},
        [
            "there is no field 'what'.",
            f"{TEXT} (got 1).",
            "model must be a string of 1 to 200 characters, or null (got 2).",
        ],
    ),
]


@pytest.mark.parametrize("given", FINE)
def test_what_may_be_asked(given: dict[str, Any]) -> None:
    """What is None is left out; the rest is taken as it is."""
    question = parse_document(Question, given)

    assert question.question == given["question"]
    assert question.project_id == "default"


@pytest.mark.parametrize(("given", "told"), WRONG)
def test_what_may_not_be_asked(given: dict[str, Any], told: list[str]) -> None:
    """Every mistake is told, each in a sentence."""
    with pytest.raises(BadRequest) as raised:
        parse_document(Question, given)

    assert [problem.message for problem in raised.value.problems()] == told


def test_wishes_are_what_was_given() -> None:
    """Only those: a question without any keeps nothing."""
    given = {"model": "m", "max_tokens": 5, "sources": ["web"], "thinking": False}
    request = parse_document(Question, {"question": "?", **given}).to_request("ada")

    assert request.options == RunOptions(model="m", max_tokens=5, sources=("web",), thinking=False)
    assert msgspec.json.decode(msgspec.json.encode(request.options)) == given
    assert (
        parse_document(Question, {"question": "?", "new": True}).to_request("ada").options
        == NO_OPTIONS
    )


def test_a_node_has_an_opaque_name() -> None:
    """What an answer gave leads back to its run; anything else leads nowhere."""
    assert Question(question="?", context_id=context_id(42)).to_request("ada").parent_id == 42
    assert Question(question="?").to_request("ada").parent_id is None
    for wrong in ("42", "node-0", "node-", "node--1", "node-1x", "node-" + "9" * 30):
        with pytest.raises(NotFound):
            Question(question="?", context_id=wrong).to_request("ada")

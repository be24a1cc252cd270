"""A model that says what it was told to say."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from dodona.core.errors import ConfigError, ProviderError, ProviderErrorKind
from dodona.core.messages import (
    AssistantText,
    RawMessage,
    SystemText,
    ToolCall,
    ToolResult,
    ToolSpec,
    UserText,
)
from dodona.core.ports.model import (
    CallDelta,
    Done,
    FinishReason,
    ModelEvent,
    ModelRequest,
    TextDelta,
    ThinkingDelta,
    Usage,
)
from dodona.models.scripted.answers import BrokenAnswer, read_answers
from dodona.models.scripted.model import ScriptedModel

ASKED = ModelRequest((UserText("Where is it?"),))


async def play(model: ScriptedModel, request: ModelRequest = ASKED) -> list[ModelEvent]:
    async with model.stream(request) as stream:
        return [event async for event in stream]


async def test_text_is_streamed_word_by_word() -> None:
    """The words together are the text, blanks and all."""
    model = ScriptedModel(["The  oak\nis old. "])
    assert (model.provider, model.name) == ("scripted", "scripted")
    assert await play(model) == [
        TextDelta("The  "),
        TextDelta("oak\n"),
        TextDelta("is "),
        TextDelta("old. "),
        Done(
            FinishReason.STOP,
            AssistantText("The  oak\nis old. "),
            Usage(3, 4),
            "scripted",
            "scripted",
        ),
    ]


async def test_thinking_comes_first_and_calls_last() -> None:
    """The message is given as it is, with the provider's JSON."""
    calls = (ToolCall("1", "search", '{"q": "oak"}'), ToolCall("2", "list", ""))
    message = AssistantText("I look.", calls, "Hm, notes?", RawMessage("scripted", b"{}"))
    *deltas, done = await play(ScriptedModel([message], name="oak-1"))
    assert deltas == [
        ThinkingDelta("Hm, "),
        ThinkingDelta("notes?"),
        TextDelta("I "),
        TextDelta("look."),
        CallDelta(0, "search", '{"q": ', "1"),
        CallDelta(0, "search", '"oak"}', "1"),
        CallDelta(1, "list", "", "2"),
    ]
    assert isinstance(done, Done)
    assert done.message is message
    assert (done.finish, done.model) == (FinishReason.TOOL_CALLS, "oak-1")
    assert done.usage == Usage(input_tokens=3, output_tokens=6, reasoning_tokens=2)


async def test_input_is_counted_in_words() -> None:
    """Of every message, and of the arguments of calls; thinking does not go back."""
    messages = (
        SystemText("Be brief."),
        UserText("Where is it?"),
        AssistantText("I look.", (ToolCall("1", "search", '{"q": 1}'),), "not counted"),
        ToolResult("1", "search", "by the river"),
    )
    done = (await play(ScriptedModel([""]), ModelRequest(messages)))[-1]
    assert isinstance(done, Done)
    assert done.usage == Usage(input_tokens=2 + 3 + 2 + 2 + 3)


async def test_requests_are_recorded_and_answers_can_depend_on_them() -> None:
    """A callable makes an answer of any kind."""

    def repeat(request: ModelRequest) -> str:
        return f"{len(request.messages)} messages"

    model = ScriptedModel([repeat, lambda _: BrokenAnswer("half", ValueError("broken"))])
    other = ModelRequest((), tools=(ToolSpec("search", "", {}),))
    assert (await play(model))[0] == TextDelta("1 ")
    with pytest.raises(ValueError, match="broken"):
        await play(model, other)
    assert model.requests == [ASKED, other]


async def test_an_error_is_raised() -> None:
    """At the first event, or after what is shown; what was streamed until then is counted."""
    error = ProviderError("slow down.", kind=ProviderErrorKind.RATE_LIMITED, provider="scripted")
    model = ScriptedModel([error, BrokenAnswer(AssistantText("The oak", thinking="Hm."), error)])
    with pytest.raises(ProviderError) as raised:
        await play(model)
    assert raised.value is error
    async with model.stream(ASKED) as stream:
        seen = [await anext(stream) for _ in range(3)]
        with pytest.raises(ProviderError, match="slow down"):
            await anext(stream)
        assert stream.usage == Usage(input_tokens=3, output_tokens=3, reasoning_tokens=1)
    assert seen == [ThinkingDelta("Hm."), TextDelta("The "), TextDelta("oak")]


async def test_a_script_that_is_too_short_says_so() -> None:
    """As a refusal, so that no fallback hides it."""
    model = ScriptedModel(["one"])
    await play(model)
    with pytest.raises(ProviderError) as raised:
        await play(model)
    assert str(raised.value) == (
        "the script has 1 answers, and this is request 2. Add an answer to the script."
    )
    assert raised.value.kind is ProviderErrorKind.REJECTED


async def test_others_get_their_turn() -> None:
    """Two answers are streamed side by side, as from two wires."""
    model, seen = ScriptedModel(["a b c", "1 2 3"]), list[str]()

    async def listen() -> None:
        async with model.stream(ASKED) as stream:
            async for event in stream:
                seen.append(event.text if isinstance(event, TextDelta) else ".")

    await asyncio.gather(listen(), listen())
    assert "".join(seen) == "a 1 b 2 c3.."


async def test_streams_at_once_each_have_their_answer() -> None:
    """In the order in which they were opened."""
    model = ScriptedModel([f"answer {n}" for n in range(50)])
    played = await asyncio.gather(*(play(model) for _ in range(50)))
    texts = [events[-1].message.text for events in played if isinstance(events[-1], Done)]
    assert texts == [f"answer {n}" for n in range(50)]


TOML = """
[[answers]]
thinking = "The notes may know."
calls = [
    { name = "search", arguments = { query = "oak" } },
    { name = "odd", arguments = "{", id = "x" },
]

[[answers]]
text = "At Dodona."

[[answers]]
text = "At"
error = "rate_limited"
message = "slow down."
retry_after = 2.5

[[answers]]
error = "cut"
"""


async def test_answers_can_be_read_from_a_file(tmp_path: Path) -> None:
    """TOML or JSON, of the same shape; the model is named like the file."""
    path = tmp_path / "answers.toml"
    path.write_text(TOML)
    model = await asyncio.to_thread(ScriptedModel.from_file, path)
    assert model.name == "answers.toml"
    done = (await play(model))[-1]
    assert isinstance(done, Done)
    assert done.message == AssistantText(
        "",
        (ToolCall("call_1_1", "search", '{"query":"oak"}'), ToolCall("x", "odd", "{")),
        "The notes may know.",
    )
    assert (await play(model))[0] == TextDelta("At ")
    with pytest.raises(ProviderError, match=r"slow down\.") as raised:
        await play(model)
    assert (raised.value.kind, raised.value.retry_after) == (ProviderErrorKind.RATE_LIMITED, 2.5)
    with pytest.raises(ProviderError, match=r"scripted error: cut\."):
        await play(model)


def test_the_same_in_json(tmp_path: Path) -> None:
    """An answer that is only text may be a string, in either."""
    path = tmp_path / "answers.json"
    path.write_text(json.dumps({"answers": ["one", {"text": "two"}]}))
    assert read_answers(path) == ["one", AssistantText("two")]
    path = tmp_path / "answers.toml"
    path.write_text('answers = ["one", { text = "two" }]')
    assert read_answers(path) == ["one", AssistantText("two")]


SHAPE = "An answer is a string, or a table with text, thinking, calls, error and message."
MISTAKES = [
    (
        "a.toml",
        "answers = [",
        "a.toml:1:12: invalid TOML: Invalid value. Fix the file at this position.",
    ),
    (
        "a.toml",
        '[[answers]]\ntext = "x\n',
        "a.toml:2:10: invalid TOML: Illegal character '\\n'. Fix the file at this position.",
    ),
    (
        "a.json",
        '{"answers":\n oak}',
        "a.json:2:2: invalid JSON: Expecting value. Fix the file at this position.",
    ),
    (
        "a.toml",
        '[[answers]]\ntext = "x"\n\n  [[ answers ]]\ntxet = "y"\n',
        "a.toml:4:1: answer 2: unknown key 'txet'. Did you mean 'text'?",
    ),
    (
        "a.toml",
        "[[answers]]\ncalls = [{ nam = 'x' }]\n",
        "a.toml:1:1: answer 1: calls[0]: unknown key 'nam'. Did you mean 'name'?",
    ),
    (
        "a.toml",
        "[[answers]]\ntext = 5\n",
        f"a.toml:1:1: answer 1: text: Expected `str`, got `int`. {SHAPE}",
    ),
    (
        "a.toml",
        "[[answers]]\nretry_after = 5\n",
        f"a.toml:1:1: answer 1: message and retry_after require error. {SHAPE}",
    ),
    (
        "a.json",
        '{"answers": ["x", {"error": "tired"}]}',
        f"a.json: answer 2: error: Invalid enum value 'tired'. {SHAPE}",
    ),
    ("a.json", '{"answer": []}', "a.json: unknown key 'answer'. Did you mean 'answers'?"),
    ("a.json", "[1]", f"a.json: Expected `object`, got `array`. {SHAPE}"),
    ("a.json", '{"answers": []}', "a.json: the file contains no answers. Add at least one."),
    ("a.txt", "", "a.txt is neither TOML nor JSON. The file name must end in .toml or .json."),
]


@pytest.mark.parametrize(("name", "text", "message"), MISTAKES, ids=range(len(MISTAKES)))
def test_a_mistake_in_the_file_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str, message: str
) -> None:
    """Where it is, what it is, and what to do."""
    monkeypatch.chdir(tmp_path)
    path = Path(name)
    path.write_text(text)
    with pytest.raises(ConfigError) as raised:
        read_answers(path)
    assert str(raised.value) == message


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    """Missing, of another encoding, or nested without end."""
    path = tmp_path / "answers.json"
    with pytest.raises(ConfigError, match="cannot be read: No such file or directory"):
        read_answers(path)
    path.write_bytes(b'{"answers": ["\xff"]}')
    with pytest.raises(ConfigError, match="is not UTF-8 at byte 14"):
        read_answers(path)
    path.write_text("[" * 100_000)
    with pytest.raises(ConfigError, match="is not valid JSON"):
        read_answers(path)

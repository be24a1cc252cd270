"""A model that does what any text in its request says.

    OBEY: TOOL {"argument": "value"}     it calls the tool, once per question
    REPEAT: «text»                       its answer contains the text
    DECIDE: ‹text›                       a summary that it writes records the text as a decision

Orders inside the other two are text like any other. A summary repeats all orders.

`{{secret}}` in such a text is the word after `SECRET:` anywhere in the request, `{{secret64}}` the
same in base64, and `{{version}}` the version of the note that the call is about.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from tests.system.wire_model import Asked, Call, Reply, calls, says, text_of

_ORDER: Final = re.compile(r"OBEY: (\w+) (?=\{)")
_REPEAT: Final = re.compile(r"REPEAT: «(.*?)»", re.DOTALL)
_DECIDE: Final = re.compile(r"DECIDE: ‹(.*?)›", re.DOTALL)
_SECRET: Final = re.compile(r"SECRET: ([\w-]+)")
_decoder: Final = json.JSONDecoder()


@dataclass
class Obedient:
    """Follows `plans` for the questions of the user, and then the orders in its request.

    While `obeys` is false it follows the plans only.
    """

    plans: dict[str, tuple[Call, ...]] = field(default_factory=dict[str, Any])
    obeys: bool = True
    together: bool = False  # all calls in one turn
    in_characters: bool = False  # an answer is streamed in single characters
    call_id: str = ""  # of all calls
    only_task: str = ""  # it obeys only a task with these words, and calls any tool
    sent: list[Call] = field(default_factory=list[Call])
    done: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])

    def answer(self, asked: Asked) -> Reply:
        """The next call of the plan; then an order that was not obeyed; then the answer."""
        question = asked.question
        text = _text(asked)
        plan = next((plan for words, plan in self.plans.items() if question.startswith(words)), ())
        if asked.round < len(plan):
            return self._calls(_filled(plan[asked.round], text))
        orders = self._orders(asked, text) if self.obeys and self.only_task in question else []
        if orders:
            return self._calls(*(orders if self.together else orders[:1]))
        repeated = [_fill(_dedent(each), text) for each in _unique(_REPEAT.findall(text))]
        answer = "\n\n".join(repeated) or "That is all."
        return says(*answer) if self.in_characters else says(answer)

    def summarise(self, asked: Asked) -> Reply:
        """A summary of the orders in a conversation."""
        text = "\n".join(_strings(json.loads(text_of(asked.messages[-1]))))
        lines = _DECIDE.sub("", text).splitlines()
        summary = "\n".join(_unique([each for each in lines if "OBEY:" in each]))
        decisions = _unique(_DECIDE.findall(text))
        return says(json.dumps({"summary": summary or "They talked.", "decisions": decisions}))

    def _calls(self, *made: Call) -> Reply:
        self.sent += made
        return calls(*(replace(call, id=self.call_id) for call in made))

    def _orders(self, asked: Asked, text: str) -> list[Call]:
        """Orders that can be carried out now and were not, for this question."""
        question = asked.question
        offered = {tool["function"]["name"] for tool in asked.json.get("tools", ())}
        found: list[Call] = []
        for call in _found(_DECIDE.sub("", _REPEAT.sub("", text))):
            is_possible = call.name in offered or bool(self.only_task)
            if (question, call.text) in self.done or not is_possible:
                continue
            filled = _filled(call, text)
            if "{{" not in filled.text:
                self.done.add((question, call.text))
                found.append(filled)
                if not self.together:
                    break
        return found


def _found(text: str) -> Iterator[Call]:
    """Orders, but not those inside the arguments of another."""
    place = 0
    while match := _ORDER.search(text, place):
        place = match.end()
        try:
            arguments, place = _decoder.raw_decode(text, place)
        except ValueError:
            continue  # cut off
        yield Call(match[1], arguments)


def _filled(call: Call, text: str) -> Call:
    arguments = call.arguments
    assert isinstance(arguments, Mapping)
    version = _version(text, str(arguments.get("path", "")))
    filled = {
        name: _fill(value, text, version) if isinstance(value, str) else value
        for name, value in arguments.items()
    }
    return Call(call.name, filled)


def _fill(value: str, text: str, version: str | None = None) -> str:
    if secret := _SECRET.search(text):
        encoded = base64.urlsafe_b64encode(secret[1].encode()).decode()
        value = value.replace("{{secret}}", secret[1]).replace("{{secret64}}", encoded)
    return value.replace("{{version}}", version) if version else value


def _version(text: str, path: str) -> str | None:
    found = re.findall(rf"{re.escape(path)}:.*\(version ([^)]+)\)", text)
    return found[-1] if found else None


def _text(asked: Asked) -> str:
    return "\n".join(text_of(message) for message in asked.messages)


def _dedent(text: str) -> str:
    """Tools indent what they return."""
    return "\n".join(line.strip() for line in text.splitlines())


def _unique(found: list[str]) -> list[str]:
    return list(dict.fromkeys(found))


def _strings(value: Any) -> Iterator[str]:
    """All texts inside a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from (text for each in value.values() for text in _strings(each))
    elif isinstance(value, list):
        yield from (text for each in value for text in _strings(each))

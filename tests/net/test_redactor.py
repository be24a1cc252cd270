"""The redactor: known secrets go in every form, what looks like one goes from what people read."""

from __future__ import annotations

import json
import re
import threading
from base64 import b64encode, urlsafe_b64encode
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dodona.core.errors import ConfigError
from dodona.net.redactor import MIN_SECRET_CHARS, Redactor

ODD = 'pa"ss\\wörd/+ &?é~'


def redactor(**secrets: str) -> Redactor:
    made = Redactor()
    for name, secret in secrets.items():
        made.add(name, secret)
    return made


def encoded(text: str) -> str:
    return b64encode(text.encode()).decode()


FORMS = {
    "itself": ODD,
    "JSON": json.dumps(ODD)[1:-1],
    "JSON with its letters": json.dumps(ODD, ensure_ascii=False)[1:-1],
    "URL": quote(ODD),
    "URL, every character": quote(ODD, safe=""),
    "form": quote_plus(ODD),
    "URL in lower case": re.sub("%..", lambda code: code[0].lower(), quote(ODD, safe="")),
    "base64": encoded(ODD),
    "base64 of URLs": urlsafe_b64encode(ODD.encode()).decode(),
    "base64 without padding": encoded(ODD).rstrip("="),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
def test_every_form_of_a_secret_is_hidden(form: str) -> None:
    """Wherever text may hold it, nothing of it stays; what is around it does."""
    assert redactor(K=ODD).redact(f"<{form}>") == "<[secret K]>"


@pytest.mark.parametrize("user", ["", "a", "ab", "abc", "Aladdin"])
def test_a_basic_header_hides_its_password(user: str) -> None:
    """Inside base64 a secret is found wherever it begins; bits shared with others may stay."""
    header = encoded(f"{user}:open sesame")
    hidden = redactor(DOOR="open sesame").redact(header)
    assert "[secret DOOR]" in hidden
    assert len(hidden.replace("[secret DOOR]", "")) <= len(encoded(f"{user}:")) + 4


def test_nothing_known_is_nothing_done() -> None:
    """The same object comes back: hiding costs nothing until there is a secret."""
    text = "an ordinary text"
    assert Redactor().redact(text) is text
    assert redactor(K="something else").redact(text) == text


@pytest.mark.parametrize("secret", ["", "x", "a" * (MIN_SECRET_CHARS - 1)])
def test_a_short_secret_is_refused(secret: str) -> None:
    """It would eat ordinary words; the error does not tell it."""
    with pytest.raises(ConfigError) as caught:
        Redactor().add("PIN", secret)
    assert str(caught.value) == (
        "PIN is too short for a secret. A secret needs at least 8 characters, so that it can be "
        "redacted in logs."
    )


def test_the_longer_of_two_secrets_wins() -> None:
    """One that begins another does not leave the rest of it; the first name of a value stays."""
    both = redactor(SHORT="abcdefgh", LONG="abcdefghijkl", SAME="abcdefgh")
    assert both.redact("abcdefghijkl abcdefgh") == "[secret LONG] [secret SHORT]"


def test_a_secret_that_is_somebody_s_name_does_not_nest() -> None:
    """A marker stays as it is, also when its name is itself a secret."""
    odd = redactor(MY_API_KEY="MY_API_KEY")
    assert odd.redact("x MY_API_KEY y") == "x [secret MY_API_KEY] y"
    assert odd.redact(odd.redact("x MY_API_KEY y")) == "x [secret MY_API_KEY] y"


def test_a_marker_that_somebody_else_writes_hides_nothing() -> None:
    """Text in the shape of a marker does not protect a secret inside it."""
    assert redactor(K="abcdefgh").redact("[secret abcdefgh]") == "[secret [secret K]]"


def test_a_secret_that_is_no_unicode_is_hidden() -> None:
    """The environment may hold bytes that are no UTF-8."""
    assert redactor(K="abc\udcffdefgh").redact("<abc\udcffdefgh>") == "<[secret K]>"


LOOKS = {
    "Authorization: Bearer abc.def": "Authorization: Bearer [secret]",
    "authorization=Basic QWxhZGRpbg==": "authorization=Basic [secret]",
    '{"Authorization": "Bearer abc"}': '{"Authorization": "Bearer [secret]"}',
    "Authorization: abcdef, x": "Authorization: [secret], x",
    "x-api-key: abc": "x-api-key: [secret]",
    "'X-Goog-Api-Key': 'abc'": "'X-Goog-Api-Key': '[secret]'",
    "a bearer eyJhbGciOiJIUzI1NiJ9.e30.x came": "a bearer [secret] came",
    "the bearer of this letter": "the bearer of this letter",
    "sk-proj-abcdefghijklmnopqrstuv": "[secret]",
    "(sk-ant-api03-abcdefghijklmnop-_)": "([secret])",
    "a desk-with-a-very-long-name-here": "a desk-with-a-very-long-name-here",
    f"AIza{'x' * 35}": "[secret]",
    f"ghp_{'x' * 36} github_pat_{'x' * 30}": "[secret] [secret]",
    "xoxb-123456789012-abc": "[secret]",
    "GET /v1?key=abc&alt=sse": "GET /v1?key=[secret]&alt=sse",
    "/x?a=1&access_token=abc#d": "/x?a=1&access_token=[secret]#d",
    "/x?monkey=1": "/x?monkey=1",
    "postgresql://me:pa@ss@host/db": "postgresql://me:[secret]@host/db",
    "redis://:abc@host": "redis://:[secret]@host",
    "http://host:80/a@b": "http://host:80/a@b",
}


@pytest.mark.parametrize(("text", "scrubbed"), LOOKS.items(), ids=LOOKS.keys())
def test_what_looks_like_a_key_is_scrubbed(text: str, scrubbed: str) -> None:
    """Headers, keys by their beginnings, queries, passwords in addresses; nothing else."""
    assert Redactor().scrub(text) == scrubbed


@pytest.mark.parametrize("text", LOOKS)
def test_scrubbing_leaves_json_json(text: str) -> None:
    """A quote that is escaped keeps its backslash."""
    document = json.dumps({"a": f'"{text}"', "b": [text]})
    assert json.loads(Redactor().scrub(document)).keys() == {"a", "b"}


def test_known_secrets_keep_their_names_when_scrubbed() -> None:
    """What `hide` replaced is not taken for a key again."""
    known = redactor(KEY="abcdefghijkl")
    text = "Authorization: Bearer abcdefghijkl ?key=abcdefghijkl x://u:abcdefghijkl@h"
    assert known.scrub(text) == (
        "Authorization: Bearer [secret KEY] ?key=[secret KEY] x://u:[secret KEY]@h"
    )


def test_a_whole_document_is_scrubbed() -> None:
    """Keys and values at any depth; numbers stay, what is no JSON becomes text."""
    known = redactor(KEY="abcdefghijkl")
    value = {"abcdefghijkl": [1, True, None, 2.5, ("abcdefghijkl",)], 3: KeyError("abcdefghijkl")}
    assert known.scrub_all(value) == {
        "[secret KEY]": [1, True, None, 2.5, ["[secret KEY]"]],
        "3": "'[secret KEY]'",
    }


marks = ["abcdefgh", "[secret ", "]", "[secret]", "sk-", "://", ":", "@", "?key=", " ", '"']
pieces = st.sampled_from([*LOOKS, ODD, *marks])


@given(st.lists(pieces | st.text(max_size=5), max_size=12).map("".join))
def test_doing_it_twice_changes_nothing(text: str) -> None:
    """For `hide` and for `scrub`, whatever the text."""
    known = redactor(A=ODD, B="abcdefgh")
    assert known.redact(known.redact(text)) == known.redact(text)
    assert known.scrub(known.scrub(text)) == known.scrub(text)


@given(st.text(min_size=MIN_SECRET_CHARS, max_size=40), st.text(), st.text())
def test_no_secret_gets_through(secret: str, before: str, after: str) -> None:
    """Whatever the secret and the text around it."""
    hidden = redactor(K=secret).redact(f"{before}{secret}{after}")
    assert secret not in hidden.replace("[secret K]", "\n")


@pytest.mark.parametrize(
    "unit",
    ["sk-", "://", "://a:", "authorization:", "bearer ", "?key=", "hunter2", " ", "@", "://a:@"],
)
def test_hostile_text_costs_no_more_than_its_length(unit: str) -> None:
    """Two million characters; were it quadratic, this would take hours and time out."""
    text = unit * (2_000_000 // len(unit))
    assert len(redactor(K="hunter2hunter2").scrub(text)) > 0


def test_threads_share_one() -> None:
    """While secrets are added, those that were there before stay hidden."""
    shared = redactor(FIRST="first secret")
    leaks: list[str] = []

    def read() -> None:
        found = (shared.redact("first secret") for _ in range(300))
        leaks.extend(text for text in found if text != "[secret FIRST]")

    readers = [threading.Thread(target=read) for _ in range(4)]
    for thread in readers:
        thread.start()
    for number in range(50):
        shared.add(f"S{number}", f"another secret {number}")
    for thread in readers:
        thread.join()
    assert leaks == []


TOKEN = "dod_" + "aZ0_-" * 8 + "xyz"


def test_tokens_of_ours_need_no_introduction() -> None:
    """They are hidden wherever they stand; what merely begins so is left alone."""
    redactor = Redactor()
    assert redactor.redact(f"Bearer {TOKEN}, {TOKEN}") == "Bearer [secret token], [secret token]"
    assert redactor.redact(f"x{TOKEN}") == "x[secret token]"
    assert redactor.scrub(f'{{"token": "{TOKEN}"}}') == '{"token": "[secret token]"}'
    for text in ("dod_", "dod_short", "dodona", f"dod_{'ä' * 50}"):
        assert redactor.redact(text) == text


def test_all_texts_of_a_value_are_hidden() -> None:
    """Keys, numbers and what else there is stay."""
    redactor = Redactor()
    redactor.add("KEY", "hunter22-and-more")
    value = {"a": ["hunter22-and-more", 1, None], "b": ({"c": TOKEN},), "d": True}
    assert redactor.redact_all(value) == {
        "a": ["[secret KEY]", 1, None],
        "b": [{"c": "[secret token]"}],
        "d": True,
    }

"""Looking for servers on this machine: the good are told from the strange, nobody waits long."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from dodona.app.models.probe import (
    MAX_RESPONSE_BYTES,
    ProbeResult,
    ProbeTarget,
    default_targets,
    probe,
)
from dodona.net.http import HttpPool

Serve = Callable[[bytes | None], Awaitable[str]]
LONG, SHORT = 20.0, 0.05  # seconds: one that is never reached, one that is


async def seen(base_url: str, patience: float = LONG) -> ProbeResult:
    async with HttpPool() as http:
        (found,) = await probe(
            [ProbeTarget("X", "ollama", base_url)], http=http, timeout_seconds=patience
        )
    return found


async def test_models_are_found(serve: Serve, listing: Callable[..., bytes]) -> None:
    """In the server's order, without those that only embed and names that cannot be shown."""
    url = await serve(listing("b", "nomic-embed-text", "a", "", "x\x1b[2J", "y" * 201))
    found = await seen(url)
    assert found.models == ("b", "a")
    assert str(found) == f"X at {url} has 2 models"
    assert str(await seen(await serve(listing("b")))).endswith("has 1 model")


STRANGE = {
    "HTML": b"<!doctype html>",
    "another document": b'{"models": []}',
    "a list": b"[]",
    "rows of another kind": b'{"data": [1, 2]}',
    "names of another kind": b'{"data": [{"id": 5}]}',
    "nests": b'{"x": ' + b"[" * 100_000 + b"]" * 100_000 + b', "data": []}',
    "too long": b'{"data": [{"id": "' + b"x" * MAX_RESPONSE_BYTES + b'"}]}',
    "no UTF-8": b'{"data": [{"id": "\xff"}]}',
    "nothing": b"",
}


@pytest.mark.parametrize("body", STRANGE.values(), ids=STRANGE.keys())
async def test_other_servers_are_not_taken(
    serve: Serve, respond: Callable[..., bytes], body: bytes
) -> None:
    """Ports 8000 and 8080 belong to whatever somebody is working on."""
    assert (await seen(await serve(respond(body)))).error == ("unexpected response")


FAULTS: dict[str, tuple[bytes, str]] = {
    "not HTTP": (b"220 mail.example ESMTP\r\n", "unexpected response"),
    "cut": (
        b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{",
        "unexpected response",
    ),
    "closed": (b"", "unexpected response"),
}


@pytest.mark.parametrize(("answer", "fault"), FAULTS.values(), ids=FAULTS.keys())
async def test_what_is_no_answer_is_told(serve: Serve, answer: bytes, fault: str) -> None:
    """A server that speaks something else, or stops in the middle."""
    assert (await seen(await serve(answer))).error == fault


async def test_an_error_is_told_and_a_redirect_not_followed(
    serve: Serve, respond: Callable[..., bytes], listing: Callable[..., bytes]
) -> None:
    """A server on loopback must not send us elsewhere."""
    elsewhere = await serve(listing("trap"))
    redirect = respond(b"", "302 Found", f"Location: {elsewhere}/models\r\n".encode())
    assert (await seen(await serve(redirect))).error == "returns HTTP 302"
    assert (await seen(await serve(respond(b"", "401 Unauthorized")))).error == "returns HTTP 401"


@pytest.mark.parametrize("body", [b'{"data": []}', b'{"data": null}'])
async def test_a_server_without_a_model(
    serve: Serve, respond: Callable[..., bytes], body: bytes
) -> None:
    """Ollama has null there before the first `ollama pull`."""
    assert (await seen(await serve(respond(body)))).error == "has no models"


async def test_the_list_is_asked_for(serve: Serve, respond: Callable[..., bytes]) -> None:
    """At /v1/models, which all of them have, Ollama too."""
    url = await serve(respond(b'{"data": [{"id": "PATH"}]}').replace(b": 26", b": 32"))
    assert (await seen(url)).models == ("/v1/models",)


async def test_nobody_there(serve: Serve) -> None:
    """The usual case."""
    server = await asyncio.start_server(lambda _r, _w: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    assert (await seen(f"http://127.0.0.1:{port}/v1")).error == "no server"


async def test_a_server_that_hangs_is_not_waited_for(serve: Serve) -> None:
    """Each gets its time, all at once, and what they hold up is let go."""
    hanging = [ProbeTarget(f"H{n}", "openai-compatible", await serve(None)) for n in range(3)]
    async with HttpPool() as http:
        found = await probe(hanging, http=http, timeout_seconds=SHORT)
    assert [sighting.error for sighting in found] == ["timed out"] * 3


HOSTS = {
    "": "http://127.0.0.1:11434/v1",
    "box": "http://box:11434/v1",
    "box:99": "http://box:99/v1",
    ":99": "http://127.0.0.1:99/v1",
    "0.0.0.0": "http://127.0.0.1:11434/v1",  # noqa: S104 - nothing is bound
    "0.0.0.0:99": "http://127.0.0.1:99/v1",
    "[::]:99": "http://127.0.0.1:99/v1",
    "[::1]:99": "http://[::1]:99/v1",
    "http://box/": "http://box:80/v1",
    "https://box": "https://box:443/v1",
    "https://box:99/": "https://box:99/v1",
}


@pytest.mark.parametrize(("host", "base_url"), HOSTS.items())
def test_ollama_is_where_ollama_host_says(host: str, base_url: str) -> None:
    """In every form that Ollama itself takes."""
    assert default_targets({"OLLAMA_HOST": host})[0] == ProbeTarget("Ollama", "ollama", base_url)


def test_the_usual_places() -> None:
    """Ollama first, then the others, all on loopback."""
    assert [(spot.name, spot.base_url) for spot in default_targets({})] == [
        ("Ollama", "http://127.0.0.1:11434/v1"),
        ("LM Studio", "http://127.0.0.1:1234/v1"),
        ("llama.cpp", "http://127.0.0.1:8080/v1"),
        ("vLLM", "http://127.0.0.1:8000/v1"),
    ]

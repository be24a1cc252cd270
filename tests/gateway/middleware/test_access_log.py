"""Every request has an id, is measured, and has one line in the log."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest

from dodona.telemetry.metrics import Metrics
from tests.gateway.plain_agency import until
from tests.gateway.talking import Following, Gateway, gateway_up


async def metrics(gateway: Gateway) -> str:
    async with gateway.client.get(f"{gateway.url}/metrics") as response:
        assert response.status == 200
        assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        return await response.text()


def lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    fields = ("method", "operation", "status", "user", "levelname")
    records = [record for record in caplog.records if record.name == "dodona.access"]
    return [{name: getattr(record, name) for name in fields} for record in records]


async def test_the_id_of_a_request(gateway: Gateway) -> None:
    """Taken from whoever gave one, else made; answered in the header, also of a refusal."""
    _, _, headers = await gateway.call("GET", "/healthz", X_Request_Id="Mine.1-2_3")
    assert headers["X-Request-Id"] == "Mine.1-2_3"
    made = {
        (await gateway.call("GET", path, **given))[2]["X-Request-Id"]
        for path in ("/healthz", "/nowhere")
        for given in ({}, {"X_Request_Id": "no id;"}, {"Host": "evil.example"})
    }
    assert len(made) == 6
    assert all(re.fullmatch(r"[0-9a-f]{16}", each) for each in made)


async def test_requests_are_counted_by_operation_and_status(gateway: Gateway) -> None:
    """Never by path: whoever asks for a thousand paths makes one series."""
    for number in range(20):
        assert (await gateway.call("GET", f"/nowhere/{number}"))[0] == 404
        assert (await gateway.call("GET", f"/api/runs/{number + 100}"))[0] == 404
    await gateway.call("GET", "/healthz", Host="evil.example")
    async with gateway.client.request("BREW", f"{gateway.url}/healthz") as response:
        assert response.status == 405
    text = await metrics(gateway)
    assert (
        'dodona_http_requests_total{method="GET",operation="none",status="4xx"} 21.0\n'
        'dodona_http_requests_total{method="GET",operation="showRun",status="4xx"} 20.0\n'
        'dodona_http_requests_total{method="other",operation="none",status="4xx"} 1.0\n'
    ) in text
    assert 'dodona_http_request_seconds_count{operation="showRun"} 20.0\n' in text
    assert "\ndodona_http_requests_in_flight 1.0\n" in text  # this one
    assert "nowhere" not in text


async def test_streams_are_open_until_they_end(gateway: Gateway) -> None:
    """An event stream is counted while it lasts, and timed until it begins."""
    async with gateway.client.get(f"{gateway.url}/api/events") as response:
        assert response.status == 200
        assert 'dodona_connections_open{kind="sse"} 1.0\n' in await metrics(gateway)
        assert 'request_seconds_count{operation="followEvents"} 1.0\n' in await metrics(gateway)

    async def has_ended() -> bool:
        return 'dodona_connections_open{kind="sse"} 0.0\n' in await metrics(gateway)

    for _ in range(500):
        if await has_ended():
            return
    raise AssertionError("the stream is still counted")


async def test_a_client_that_leaves_is_counted_once(gateway: Gateway) -> None:
    """In mid-stream, without a word: nothing stays in flight."""
    async with gateway.client.post(
        f"{gateway.url}/api/oracle/stream", json={"question": "Who?"}
    ) as response:
        run = await gateway.asked()
        await run.say("I")
        await Following(response).until("data: ")
        response.close()
    await until(lambda: run.followers == 0, "the stream has ended")
    text = await metrics(gateway)
    assert "\ndodona_http_requests_in_flight 1.0\n" in text


async def test_one_line_for_each_request(
    gateway: Gateway, caplog: pytest.LogCaptureFixture
) -> None:
    """What went well and changed nothing is for those who debug; paths and queries are in none."""
    caplog.set_level(logging.DEBUG, "dodona.access")
    await gateway.call("GET", "/healthz")
    await gateway.call("GET", "/api/runs?before=sesame")
    await gateway.call("PATCH", "/api/settings", {"max_iterations": 3})
    await gateway.call("GET", "/sesame")
    assert lines(caplog) == [
        _line("GET", "isAlive", 200, "-", "DEBUG"),
        _line("GET", "listRuns", 400, "local", "INFO"),
        _line("PATCH", "changeSettings", 200, "local", "INFO"),
        _line("GET", "none", 404, "-", "INFO"),
    ]
    assert "sesame" not in caplog.text


def _line(method: str, operation: str, status: int, user: str, level: str) -> dict[str, Any]:
    names = ("method", "operation", "status", "user", "levelname")
    return dict(zip(names, (method, operation, status, user, level), strict=True))


async def test_a_bug_is_counted_as_ours(caplog: pytest.LogCaptureFixture) -> None:
    """As 5xx, with the id in the log of the bug too."""
    measures = Metrics()

    async def broken() -> dict[str, Any]:
        raise ZeroDivisionError

    async with gateway_up(ready=broken, metrics=measures) as gateway:
        status, _, headers = await gateway.call("GET", "/readyz", X_Request_Id="find-me")
        assert (status, headers["X-Request-Id"]) == (500, "find-me")
        assert 'method="GET",operation="isReady",status="5xx"} 1.0\n' in await metrics(gateway)


async def test_status(gateway: Gateway) -> None:
    """Without an app around it, a gateway knows its version."""
    status, told, _ = await gateway.call("GET", "/api/status")
    assert (status, list(told)) == (200, ["version"])

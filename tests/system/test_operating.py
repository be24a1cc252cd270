"""What an operator sees of a gateway at work: metrics, readiness, status, and the log."""

from __future__ import annotations

import json
import re
import resource
from typing import Any

from tests.system.client import Answered, Client
from tests.system.waiting import until_found
from tests.system.wire_model import MODEL, Call, Script, calls, refuses, says

PROVIDER = "openai-compatible"


async def numbers(client: Client) -> dict[str, float]:
    """By the name of each series, with its labels."""
    answered = await client.send("GET", "/metrics")
    assert answered.status == 200
    assert answered.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    lines = [line for line in answered.text.splitlines() if not line.startswith("#")]
    pairs = [line.rsplit(" ", 1) for line in lines]
    assert len({name for name, _ in pairs}) == len(pairs), "no series is there twice"
    return {name: float(value) for name, value in pairs}


async def grown(client: Client, before: dict[str, float], *names: str) -> list[float]:
    now = await numbers(client)
    return [now.get(name, 0) - before.get(name, 0) for name in names]


async def test_metrics_of_a_run(client: Client, script: Script) -> None:
    """A run, its calls of the model with their tokens, and its calls of tools, as they were."""
    script.will(
        calls(Call("vault_search", {"query": "budget"}), Call("no_such_tool"), usage=(100, 10)),
        says("500", " drachmas.", usage=(200, 20)),
    )
    before = await numbers(client)
    await client.ask("How much?")
    model = f'model="{MODEL}",provider="{PROVIDER}"'
    assert await grown(
        client,
        before,
        'dodona_runs_begun_total{agent="oracle"}',
        'dodona_runs_ended_total{agent="oracle",status="succeeded"}',
        f'dodona_model_calls_total{{model="{MODEL}",outcome="ok",provider="{PROVIDER}"}}',
        f'dodona_model_tokens_total{{kind="input",{model}}}',
        f'dodona_model_tokens_total{{kind="output",{model}}}',
        f"dodona_model_unpriced_calls_total{{{model}}}",
        f"dodona_model_first_token_seconds_count{{{model}}}",
        f"dodona_model_call_seconds_count{{{model}}}",
        'dodona_tool_calls_total{outcome="success",tool="vault_search"}',
        'dodona_tool_calls_total{outcome="failure",tool="other"}',
        'dodona_http_requests_total{method="POST",operation="ask",status="2xx"}',
    ) == [1, 1, 2, 300, 30, 2, 2, 2, 1, 1, 1]


async def test_metrics_of_what_fails(client: Client, script: Script) -> None:
    """A provider that refuses, and a run that is cancelled in mid-answer."""
    script.will(refuses(401, "Who are you?"))
    before = await numbers(client)
    await client.try_to_ask("Who?")
    script.will(says("I", " am", hold=1))
    async with client.stream("Who?") as chunks:
        await chunks.until("content")
        assert (await numbers(client))["dodona_runs_running"] >= 1
        await client.cancel(run_id=chunks.run_id)
        await chunks.rest()
    assert await grown(
        client,
        before,
        'dodona_runs_ended_total{agent="oracle",status="failed"}',
        'dodona_runs_ended_total{agent="oracle",status="cancelled"}',
        f'dodona_model_calls_total{{model="{MODEL}",outcome="unauthorised",provider="{PROVIDER}"}}',
        f'dodona_model_calls_total{{model="{MODEL}",outcome="cancelled",provider="{PROVIDER}"}}',
    ) == [1, 1, 1, 1]


async def test_metrics_of_the_process(client: Client, script: Script) -> None:
    """Memory, time, files, writes of the store: all there, and no label tells of a user."""
    script.will(says("Here."))
    await client.ask("Who?")
    found = await numbers(client)
    assert found["process_resident_memory_bytes"] > 10_000_000
    assert found["process_cpu_seconds_total"] > 0
    assert 0 < found["process_open_fds"] < found["process_max_fds"]
    assert found["process_start_time_seconds"] > 1_500_000_000
    assert found["dodona_store_write_seconds_count"] > 0
    assert found['dodona_events_dropped_total{where="buffer"}'] == 0
    text = " ".join(found)
    assert client.project not in text
    assert re.search(r"session|\blocal\b|\d{4}-\d\d", text) is None


async def test_readiness_is_the_truth(client: Client) -> None:
    """While nobody can write to the store, nobody is sent here; to be alive it is enough to be."""
    ready = await client.send("GET", "/readyz")
    assert (ready.status, ready.json["model"]) == (200, MODEL)

    async def refused() -> Answered | None:
        answered = await client.send("GET", "/readyz")
        return answered if answered.status == 503 else None

    async def works() -> bool:
        return (await client.send("GET", "/readyz")).status == 200

    with client.up.home.locked(client.up.home.store):
        told = (await until_found(refused, "readiness is refused")).error
        assert told["code"] == "store_unavailable"
        assert told["message"].startswith("the store has not completed a write within ")
        assert (await client.send("GET", "/healthz")).status == 200
    await until_found(works, "readiness comes back")


async def test_a_disk_that_takes_no_writes(own: Client, script: Script) -> None:
    """While questions fail, the gateway is not ready and says why; it recovers by itself."""
    script.will(says("Here."))
    await own.up.begin()
    await own.ask("Who?")

    async def readiness(status: int) -> Answered | None:
        answered = await own.send("GET", "/readyz")
        return answered if answered.status == status else None

    limits = resource.prlimit(own.up.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(own.up.pid, resource.RLIMIT_FSIZE, (1, limits[1]))
    for _ in range(3):
        assert (await own.try_to_ask("Who?")).status == 503
        told = (await own.send("GET", "/readyz")).error
        assert told["code"] == "store_unavailable"
        assert "cannot be" in told["message"] or "cannot grow" in told["message"]
    assert (await own.send("GET", "/healthz")).status == 200
    resource.prlimit(own.up.pid, resource.RLIMIT_FSIZE, limits)
    await until_found(lambda: readiness(200), "readiness comes back")
    await own.ask("Who?")


async def test_status(client: Client, script: Script) -> None:
    """What runs and what waits, now."""
    script.will(says("I", hold=0))
    run = await client.begin("First")
    await script.reached()
    waiting = await client.begin("Second")
    told = await client.get("/api/status")
    assert (told["runs"], told["lanes_waiting"], told["budgets"]) == (1, 1, [])
    assert told["uptime_seconds"] > 0
    assert (await numbers(client))["dodona_lanes_waiting"] == 1
    script.release()
    await client.ended(run)
    await client.ended(waiting)
    assert (await client.get("/api/status"))["lanes_waiting"] == 0


async def test_lines_of_the_log_belong_to_a_request_and_a_run(
    client: Client, script: Script
) -> None:
    """What a run says carries its id and that of the request that asked; the next one its own."""
    script.will(says("Here."))
    for name in ("ask-1", "ask-2"):
        answered = await client.send(
            "POST", "/api/oracle", client.question("Who?"), headers={"X-Request-Id": name}
        )
        assert answered.headers["X-Request-Id"] == name
    for name in ("ask-1", "ask-2"):

        async def found(name: str = name) -> list[dict[str, Any]]:
            said = client.up.log.read_text().splitlines()
            lines = [json.loads(line) for line in said if line.startswith("{")]
            ours = [line for line in lines if line.get("request_id") == name]
            return ours if any(line["logger"] == "dodona.access" for line in ours) else []

        ours = await until_found(found, f"the line of {name}")
        (access,) = [line for line in ours if line["logger"] == "dodona.access"]
        shown = {key: access[key] for key in ("method", "operation", "status", "user")}
        assert shown == {"method": "POST", "operation": "ask", "status": 200, "user": "local"}
        assert "run_id" not in access
        runs = {line["run_id"] for line in ours if "run_id" in line}
        assert len(runs) == 1, ours

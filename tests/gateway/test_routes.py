"""Every route: what it passes on to the agency, and what it answers."""

from __future__ import annotations

import asyncio

import pytest
import yarl

from dodona.agent.question import Question
from dodona.agent.views.projects import NewProject
from dodona.core.errors import (
    BudgetExceeded,
    Cancelled,
    NotFound,
    ProviderError,
    ProviderErrorKind,
    StoreError,
)
from dodona.net.redactor import Redactor
from tests.gateway.plain_agency import PlainAgency, until
from tests.gateway.talking import JSON, Gateway, gateway_up

WHY = Question(question="Why?")


async def test_a_question_is_answered_in_one_document(gateway: Gateway) -> None:
    """POST /api/oracle waits for the end and returns the Answer; a header names the run."""
    asking = asyncio.create_task(
        gateway.call("POST", "/api/oracle", {"question": "Why?", "project_id": "garden"})
    )
    run = await gateway.asked()
    await run.say("Be", "cause")
    await run.finish()
    status, answer, headers = await asking
    assert (status, run.request.project_id, headers["dodona-run"]) == (200, "garden", "1")
    assert answer == {
        "answer": "Because",
        "sources": [],
        "citations": [],
        "tool_calls": [],
        "tokens_used": 7,
        "model_used": "plain",
        "context_id": "node-1",
        "run_id": 1,
        "context_tokens_remaining": 100,
        "finish": "stop",
        "termination_reason": "finished",
        "marks": [],
    }
    assert headers["cache-control"] == "no-store"


async def test_all_that_is_wrong_with_a_question_is_told_at_once(gateway: Gateway) -> None:
    """The same for both ways to ask: a plain 400, and no run."""
    for path in ("/api/oracle", "/api/oracle/stream"):
        status, told, _ = await gateway.call("POST", path, {"question": "", "modle": "x"})
        assert status == 400
        messages = [problem["message"] for problem in told["error"]["problems"]]
        assert messages == [
            "there is no field 'modle'.",
            "question must be a string of 1 to 10,000 characters (got '').",
        ]
    assert not gateway.agency.oracle.runs


async def test_a_client_that_leaves_does_not_end_the_run(gateway: Gateway) -> None:
    """Nobody waits for the answer any more, and the run goes on."""
    asking = asyncio.create_task(gateway.call("POST", "/api/oracle", {"question": "Why?"}))
    run = await gateway.asked()
    await until(lambda: run.waiting == 1, "the gateway waits")
    asking.cancel()
    await until(lambda: run.waiting == 0, "the gateway has stopped waiting")
    assert not gateway.agency.oracle.cancelled
    assert not run.has_ended


@pytest.mark.parametrize(
    ("failure", "status", "code"),
    [
        (Cancelled("it was cancelled."), 409, "cancelled"),
        (BudgetExceeded("too much."), 429, "budget_exceeded"),
        (NotFound("there is no project x."), 404, "not_found"),
        (StoreError("no disk."), 503, "store_unavailable"),
    ],
)
async def test_errors_have_one_shape_and_their_status(
    gateway: Gateway, failure: Exception, status: int, code: str
) -> None:
    """Whether the question is refused or the run fails later."""
    gateway.agency.oracle.refusal = failure
    got, told, _ = await gateway.call("POST", "/api/oracle", {"question": "Why?"})
    assert (got, told["error"]["code"], told["error"]["hint"]) == (status, code, "")
    gateway.agency.oracle.refusal = None
    asking = asyncio.create_task(gateway.call("POST", "/api/oracle", {"question": "Why?"}))
    run = await gateway.asked()
    await run.fail(failure)
    later, told, _ = await asking
    assert (later, told["error"]["code"]) == (status, code)


async def test_when_to_come_back_is_in_a_header(gateway: Gateway) -> None:
    """What a provider asked for, in whole seconds, rounded up."""
    gateway.agency.oracle.refusal = ProviderError(
        "slow down.", kind=ProviderErrorKind.RATE_LIMITED, provider="acme", retry_after=2.4
    )
    status, _, headers = await gateway.call("POST", "/api/oracle", {"question": "Why?"})
    assert (status, headers["retry-after"]) == (502, "3")


async def test_a_bug_is_logged_and_tells_a_stranger_nothing(
    gateway: Gateway, caplog: pytest.LogCaptureFixture
) -> None:
    """500 in the usual shape; the connection and the server live on."""
    gateway.agency.oracle.refusal = ZeroDivisionError("the inside of it")
    status, told, _ = await gateway.call("POST", "/api/oracle", {"question": "Why?"})
    assert (status, told["error"]["code"]) == (500, "error")
    assert "inside" not in str(told)
    assert "Zero" not in str(told)
    assert "the inside of it" in caplog.text
    assert (await gateway.call("GET", "/healthz"))[0] == 200


async def test_cancelling_one_run(gateway: Gateway) -> None:
    """The run's status comes back; one that had ended is not among the cancelled."""
    asking = asyncio.create_task(gateway.call("POST", "/api/oracle", {"question": "Why?"}))
    await gateway.asked()
    status, told, _ = await gateway.call("POST", "/api/oracle/cancel", {"run_id": 1})
    assert (status, told) == (200, {"run_ids": [1], "status": "cancelled"})
    assert (await asking)[0] == 409
    asking = asyncio.create_task(gateway.call("POST", "/api/oracle", {"question": "Why?"}))
    await (await gateway.asked(2)).finish()
    await asking
    _, told, _ = await gateway.call("POST", "/api/oracle/cancel", {"run_id": 2})
    assert told == {"run_ids": [], "status": "succeeded"}
    assert (await gateway.call("POST", "/api/oracle/cancel", {"run_id": 99}))[0] == 404


async def test_cancelling_all_that_runs_in_a_project(gateway: Gateway) -> None:
    """Without a word about which, it is the default project."""
    asking = [
        asyncio.create_task(
            gateway.call("POST", "/api/oracle", {"question": "Why?", "project_id": project})
        )
        for project in ("default", "garden")
    ]
    await gateway.asked(2)
    garden = next(
        run.id for run in gateway.agency.oracle.runs.values() if run.request.project_id == "garden"
    )
    _, told, _ = await gateway.call("POST", "/api/oracle/cancel", {"project_id": "garden"})
    assert told == {"run_ids": [garden]}
    _, told, _ = await gateway.call("POST", "/api/oracle/cancel", {})
    assert told == {"run_ids": [3 - garden]}
    await asyncio.gather(*asking)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({"run_id": "1"}, "run_id must be a whole number of at least 0 (got '1')."),
        ({"run_id": True}, "run_id must be a whole number of at least 0 (got true)."),
        ({"run_id": -1}, "run_id must be a whole number of at least 0 (got -1)."),
        ({"run_id": 10**18}, f"run_id must be a whole number of at least 0 (got {10**18})."),
        ({"run_id": 1, "project_id": "x"}, "run_id and project_id exclude each other."),
        ({"project_id": ""}, "project_id must be a non-empty string (got '')."),
        ({"project_id": 1}, "project_id must be a non-empty string (got 1)."),
        ({"run": 1}, "there is no field 'run'."),
        ({"run_id": None}, "run_id must be a whole number of at least 0 (got null)."),
    ],
)
async def test_an_ambiguous_cancellation_is_rejected(
    gateway: Gateway, body: object, problem: str
) -> None:
    """The gateway never guesses what to cancel."""
    status, response, _ = await gateway.call("POST", "/api/oracle/cancel", body)
    assert (status, response["error"]["message"]) == (400, problem)


async def test_the_context_is_shown_and_closed(gateway: Gateway) -> None:
    """Of the default project unless another is named."""
    _, shown, _ = await gateway.call("GET", "/api/oracle/context")
    assert (shown["user_id"], shown["project_id"]) == ("local", "default")
    _, closed, _ = await gateway.call("DELETE", "/api/oracle/context?project_id=garden")
    assert (closed["project_id"], closed["status"]) == ("garden", "closed")
    assert (await gateway.call("GET", "/api/oracle/context?project_id=nowhere"))[0] == 404


async def test_runs_come_in_pages(gateway: Gateway) -> None:
    """`next` leads to the page of older ones; a page that is not full is the last."""
    for _ in range(3):
        await gateway.agency.oracle.submit(WHY.to_request("local"))
    _, page, _ = await gateway.call("GET", "/api/runs?limit=2")
    assert ([run["id"] for run in page["runs"]], page["next"]) == ([3, 2], 2)
    _, page, _ = await gateway.call("GET", "/api/runs?limit=2&before=2&project_id=default")
    assert ([run["id"] for run in page["runs"]], page["next"]) == ([1], None)
    assert gateway.agency.runs.asked[-1] == {
        "user_id": "local",
        "project_id": "default",
        "before": 2,
        "limit": 2,
    }


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        ("/api/runs?limit=0", 400, "limit must be a whole number from 1 to 200 (got 0)."),
        ("/api/runs?limit=x", 400, "limit must be a whole number from 1 to 200 (got 'x')."),
        ("/api/runs?limit=%C2%B2", 400, "limit must be a whole number from 1 to 200 (got '²')."),
        ("/api/runs?limt=2", 400, "there is no parameter 'limt'."),
        ("/api/runs?limit=2&limit=3", 400, "limit is given more than once."),
        ("/api/runs/x", 404, "there is no run_id 'x'."),
        ("/api/runs/99999999999999999999", 404, "there is no run_id '99999999999999999999'."),
        ("/api/runs/5", 404, "there is no run 5."),
        ("/api/runs/5/events", 404, "there is no run 5."),
        ("/api/runs/", 404, "there is no endpoint '/api/runs/'."),
        ("/api/nothing", 404, "there is no endpoint '/api/nothing'."),
        ("/page/..%2Fapp.py", 404, "there is no endpoint '/page/../app.py'."),
        ("/page/app.py", 404, "the page has no file 'app.py'."),
        ("/api/events?types=tool..call", 400, "'tool..call' is not a valid event pattern."),
    ],
)
async def test_wrong_addresses_say_what_is_wrong(
    gateway: Gateway, path: str, status: int, message: str
) -> None:
    """In the one shape, with the nearest right word where there is one."""
    async with gateway.client.get(yarl.URL(gateway.url + path, encoded=True)) as response:
        told = await response.json()
    assert (response.status, told["error"]["message"]) == (status, message)


async def test_a_mistyped_parameter_is_told_the_right_one(gateway: Gateway) -> None:
    """The hint names it."""
    _, told, _ = await gateway.call("GET", "/api/runs?limt=2")
    assert told["error"]["hint"] == "Did you mean 'limit'?"


async def test_settings_are_changed_in_part_or_as_a_whole(gateway: Gateway) -> None:
    """PATCH leaves the rest as it was; PUT gives the rest its defaults."""
    _, before, _ = await gateway.call("GET", "/api/settings")
    _, after, _ = await gateway.call("PATCH", "/api/settings", {"max_iterations": 3})
    assert after == {**before, "max_iterations": 3}
    _, after, _ = await gateway.call("PUT", "/api/settings", {"token_budget": 2000})
    assert after == {**before, "token_budget": 2000}
    status, told, _ = await gateway.call("PATCH", "/api/settings", {"max_iterations": 51})
    assert (status, told["error"]["message"]) == (
        400,
        "max_iterations must be a whole number from 1 to 50 (got 51).",
    )


async def test_projects_are_made_and_changed(gateway: Gateway) -> None:
    """A new one says where it is."""
    status, made, headers = await gateway.call("POST", "/api/projects", {"id": "my garden"})
    assert (status, headers["location"]) == (201, "/api/projects/my%20garden")
    assert (made["id"], made["vault_path"], made["settings"]) == ("my garden", None, {})
    change = {"settings": {"a": 1}}
    _, changed, _ = await gateway.call("PATCH", "/api/projects/my%20garden", change)
    assert changed == {**made, **change}
    assert (await gateway.call("GET", "/api/projects/my%20garden"))[1] == changed
    _, all_of_them, _ = await gateway.call("GET", "/api/projects")
    assert [each["id"] for each in all_of_them["projects"]] == ["default", "my garden"]
    assert (await gateway.call("GET", "/api/projects/x"))[0] == 404


async def test_a_wrong_method_is_told_the_right_ones(gateway: Gateway) -> None:
    """405 with Allow, for every method of a path together."""
    status, told, headers = await gateway.call("DELETE", "/api/settings")
    assert (status, told["error"]["code"]) == (405, "method_not_allowed")
    assert headers["allow"] == "GET, PATCH, PUT, HEAD"
    assert (await gateway.call("OPTIONS", "/api/oracle"))[0] == 405


@pytest.mark.parametrize(
    "path", ["/", "/healthz", "/readyz", "/api/runs", "/api/openapi.json", "/api/events"]
)
async def test_head_is_get_without_a_body(gateway: Gateway, path: str) -> None:
    """Streams do not hold it up."""
    async with gateway.client.head(gateway.url + path) as response:
        assert (response.status, await response.read()) == (200, b"")


async def test_head_of_a_stream_knows_whether_there_is_one(gateway: Gateway) -> None:
    """As GET does."""
    async with gateway.client.head(gateway.url + "/api/runs/1/events") as response:
        assert response.status == 404
    await gateway.agency.oracle.submit(WHY.to_request("local"))
    async with gateway.client.head(gateway.url + "/api/runs/1/events") as response:
        assert response.status == 200


async def test_health_says_who_is_there(gateway: Gateway) -> None:
    """And readiness what works."""
    _, health, _ = await gateway.call("GET", "/healthz")
    assert (health["status"], health["name"]) == ("ok", "dodona")
    _, told, _ = await gateway.call("GET", "/readyz")
    assert told == {"status": "ready", "store": "plain"}


async def test_not_ready_is_503() -> None:
    """When what the agency needs is not there."""

    async def not_ready() -> dict[str, str]:
        raise StoreError("no disk.", hint="Mount it.")

    async with gateway_up(ready=not_ready) as gateway:
        status, told, _ = await gateway.call("GET", "/readyz")
    assert (status, told["error"]["hint"]) == (503, "Mount it.")


async def test_secrets_do_not_leave_in_errors() -> None:
    """A provider repeats keys in its messages."""
    redactor = Redactor()
    redactor.add("acme.api_key", "tr0ub4dor&3xyz")
    agency = PlainAgency()
    agency.oracle.refusal = StoreError("the key tr0ub4dor&3xyz is wrong.")
    async with gateway_up(agency, redactor=redactor) as gateway:
        _, told, _ = await gateway.call("POST", "/api/oracle", {"question": "Why?"})
    assert told["error"]["message"] == "the key [secret acme.api_key] is wrong."


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "the body is not valid JSON: Input data was truncated (line 1, column 1)."),
        (b'{"a": 1,}', "the body is not valid JSON: trailing comma in object (line 1, column 9)."),
        (
            '{"ä": "é",\n "b" 1}'.encode(),
            "the body is not valid JSON: expected ':' (line 2, column 6).",
        ),
        (b"[1]", "the body must be a JSON object."),
        (b'{"a": "\xff\xfe"}', "the body is not UTF-8."),
        (b"[" * 100_000, "the body is nested too deeply."),
    ],
)
async def test_what_is_no_json_object_is_refused_with_the_place(
    gateway: Gateway, body: bytes, message: str
) -> None:
    """Line and column, counted in characters."""
    async with gateway.client.post(
        gateway.url + "/api/oracle", data=body, headers=JSON
    ) as response:
        told = await response.json()
    assert (response.status, told["error"]["message"]) == (400, message)


async def test_half_a_character_is_sent_as_what_utf8_has(gateway: Gateway) -> None:
    """Files and models have them; a stream must not break over one."""
    await gateway.agency.projects.create("local", NewProject(id="x", vault_path="/a\udcffb"))
    status, told, _ = await gateway.call("GET", "/api/projects/x")
    assert (status, told["vault_path"]) == (200, "/a\ufffdb")

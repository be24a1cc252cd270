// The web page. Untrusted content is shown as text, never as markup.

import { Answer } from "./answer.js";
import { ApiError, BASE, api, ask, follow, setToken } from "./stream.js";

const $ = (id) => document.getElementById(id);
// Keys in session storage, which belongs to this tab. A site may have several Dodonas.
const RUNNING = `dodona.run${BASE}`; // the run to follow after a reload
const TOKEN = `dodona.token${BASE}`;

let running = null; // { run, stop } while an answer is streaming

function element(tag, text = "", className = "") {
  const node = document.createElement(tag);
  node.textContent = text;
  if (className) node.className = className;
  return node;
}

function setStatus(text) {
  $("status").textContent = text;
}

function explain(error) {
  return [error.message, error.hint].filter(Boolean).join(" ");
}

// One question with its answer; call `show` to redraw it.
function exchange(question) {
  const article = element("article");
  const heading = element("h2", question, "question");
  const thinking = collapsible("Thinking");
  const tools = element("ul", "", "tools");
  const text = element("div", "", "answer");
  const notices = element("div", "", "notices");
  const approvals = element("div", "", "approvals");
  const sources = element("section", "", "sources");
  article.append(heading, thinking.box, tools, text, notices, approvals, sources);
  $("log").append(article);
  article.scrollIntoView({ block: "end" });
  return {
    show(answer) {
      const atEnd = isAtEnd();
      thinking.box.hidden = !answer.thinking;
      thinking.text.textContent = answer.thinking;
      tools.replaceChildren(...[...answer.tools.values()].map(toolItem));
      text.replaceChildren(...textParts(answer.text));
      notices.replaceChildren(...answer.notices.map((each) => element("p", each)));
      approvals.replaceChildren(...(answer.hasEnded ? [] : banners(answer.approvals.values())));
      if (answer.error) notices.append(element("p", explain(answer.error), "error"));
      sources.replaceChildren(...(answer.done ? sourceList(answer.sources) : []));
      if (atEnd) window.scrollTo({ top: document.body.scrollHeight });
    },
    fail(error) {
      notices.append(element("p", explain(error), "error"));
    },
  };
}

// The text, and dim a last paragraph in emphasis, such as the notice of the embedded default.
function textParts(text) {
  const start = text.lastIndexOf("\n\n*") + 2;
  const remark = start > 1 && /^\*([^*\n]+)\*\n*$/.exec(text.slice(start));
  return remark ? [text.slice(0, start), element("span", remark[1], "dim")] : [text];
}

// Approval banners, created once: a redraw must not replace a button during a click.
const approvalBanners = new Map();

function banners(approvals) {
  return [...approvals].map((chunk) => {
    const key = `${chunk.run_id}/${chunk.approval}`;
    if (!approvalBanners.has(key)) approvalBanners.set(key, banner(chunk));
    return approvalBanners.get(key);
  });
}

function banner(chunk) {
  const box = element("div", "", "approval");
  const request = element("p", `${chunk.reason} `);
  request.append(element("code", `${chunk.name} ${shorten(chunk.arguments)}`));
  const outcome = element("p", "", "dim");
  const buttons = [
    ["Approve", "allow", true],
    ["Deny", "refuse", false],
  ].map(([text, className, approved]) => {
    const button = element("button", text, className);
    button.type = "button";
    button.addEventListener("click", () => decide(chunk, approved, buttons, outcome));
    return button;
  });
  box.setAttribute("role", "group");
  box.setAttribute("aria-label", `${chunk.name} needs your approval`);
  box.append(request, ...buttons, outcome);
  return box;
}

async function decide(chunk, approved, buttons, outcome) {
  buttons.forEach((button) => (button.disabled = true));
  const path = `/api/runs/${chunk.run_id}/approvals/${encodeURIComponent(chunk.approval)}`;
  try {
    await api(path, { method: "POST", body: { approved } });
    outcome.textContent = approved ? "Approved." : "Denied.";
  } catch (error) {
    const isFinal = error instanceof ApiError;
    outcome.textContent = isFinal ? explain(error) : "Cannot reach Dodona.";
    if (!isFinal) buttons.forEach((button) => (button.disabled = false));
  }
}

function isAtEnd() {
  return window.innerHeight + window.scrollY >= document.body.scrollHeight - 80;
}

function collapsible(title) {
  const box = element("details", "", "folded");
  const text = element("pre");
  box.append(element("summary", title), text);
  box.hidden = true;
  return { box, text };
}

const SIGNS = { pending: "…", success: "✓", error: "✗" };

function toolItem(tool) {
  const item = element("li", "", tool.status);
  const sign = element("span", SIGNS[tool.status] ?? "", "sign");
  sign.setAttribute("aria-label", tool.status);
  item.append(sign, element("code", tool.name), " ", element("span", shorten(tool.arguments), "dim"));
  return item;
}

function shorten(value) {
  const text = typeof value === "string" ? value : JSON.stringify(value ?? "");
  return text.length > 120 ? text.slice(0, 119) + "…" : text;
}

function sourceList(sources) {
  if (!sources.length) return [];
  const list = element("ol");
  for (const source of sources) {
    const item = element("li");
    item.append(element("strong", source.title || source.path), " ");
    const place = source.lines ? `${source.path}:${source.lines}` : source.path;
    item.append(element("code", place));
    if (source.excerpt) item.append(element("blockquote", source.excerpt));
    list.append(item);
  }
  return [element("h3", "Sources"), list];
}

function showContext(answer) {
  const { context } = answer;
  if (!context) return;
  const share = Math.round((100 * context.context_tokens) / Math.max(1, context.max_context_tokens));
  $("context").textContent = `Context ${share} %`;
}

// Show chunks as they arrive; redraw at most once per animation frame.
async function show(chunks, view) {
  const answer = new Answer();
  let isScheduled = false;
  const draw = () => {
    isScheduled = false;
    view.show(answer);
    showContext(answer);
  };
  for await (const chunk of chunks) {
    answer.add(chunk);
    if (!isScheduled) {
      isScheduled = true;
      requestAnimationFrame(draw);
    }
  }
  draw();
  return answer;
}

async function run(view, start) {
  const stop = new AbortController();
  running = { run: null, stop };
  busy(true);
  setStatus("Asking…");
  try {
    const answer = await show(start(stop.signal, onStarted), view);
    setStatus(ending(answer));
  } catch (error) {
    view.fail(error instanceof ApiError ? error : { message: "Cannot reach Dodona." });
    setStatus("");
    if (error.status === 401) askForToken(error);
  } finally {
    sessionStorage.removeItem(RUNNING);
    running = null;
    busy(false);
  }
}

function onStarted(id) {
  running.run = id;
  sessionStorage.setItem(RUNNING, String(id));
  setStatus(`Run ${id}`);
}

function ending({ done, error }) {
  if (done) return `${done.tokens_used} tokens, ${done.model_used}`;
  return error?.code === "cancelled" ? "Cancelled" : "";
}

function busy(isBusy) {
  $("ask").disabled = isBusy;
  $("new").disabled = isBusy;
  $("cancel").hidden = !isBusy;
  $("log").setAttribute("aria-busy", String(isBusy));
  if (!isBusy) $("question").focus();
}

function project() {
  return $("project").value || "default";
}

async function onAsk(event) {
  event.preventDefault();
  const question = $("question").value.trim();
  if (!question || running) return;
  $("question").value = "";
  const body = { question, project_id: project() };
  await run(exchange(question), (signal, onRun) => ask(body, { signal, onRun }));
}

async function onCancel() {
  if (running?.run == null) return;
  setStatus("Cancelling…");
  try {
    await api("/api/oracle/cancel", { method: "POST", body: { run_id: running.run } });
  } catch (error) {
    setStatus(explain(error));
  }
}

async function onNew() {
  const path = `/api/oracle/context?project_id=${encodeURIComponent(project())}`;
  try {
    await api(path, { method: "DELETE" });
  } catch (error) {
    if (!(error instanceof ApiError && error.status === 404)) return setStatus(explain(error));
  }
  $("log").replaceChildren();
  $("context").textContent = "";
  setStatus("The next question starts a new conversation.");
}

function onKey(event) {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  $("form").requestSubmit();
}

async function showPast() {
  $("log").replaceChildren();
  const path = `/api/oracle/context?project_id=${encodeURIComponent(project())}`;
  const context = await api(path).catch(() => null);
  if (!context || context.status === "closed") return;
  for (const message of context.recent_exchanges) {
    const className = message.role === "user" ? "question" : "answer";
    $("log").append(element(message.role === "user" ? "h2" : "div", message.content, className));
  }
}

async function showProjects() {
  const { projects } = await api("/api/projects").catch((error) => {
    if (error.status === 401) askForToken(error);
    return { projects: [] };
  });
  const options = projects.map(({ id }) => {
    const option = element("option", id);
    option.value = id;
    option.selected = id === "default";
    return option;
  });
  $("project").replaceChildren(...options);
  $("projects").hidden = options.length < 2;
}

// After a reload, continue streaming the answer.
async function resume() {
  const id = Number(sessionStorage.getItem(RUNNING));
  if (!id) return;
  const details = await api(`/api/runs/${id}`).catch(() => null);
  if (!details || details.ended_at) return sessionStorage.removeItem(RUNNING);
  await run(exchange(details.question), (signal, onRun) => {
    onRun(id);
    return follow(id, { signal });
  });
}

function askForToken(error) {
  $("sign-in").hidden = false;
  setStatus(explain(error));
}

async function onSignIn(event) {
  event.preventDefault();
  const text = $("token").value.trim();
  $("token").value = "";
  setStatus("");
  sessionStorage.setItem(TOKEN, text);
  await start();
}

async function start() {
  $("sign-in").hidden = true;
  setToken(sessionStorage.getItem(TOKEN) ?? "");
  await showProjects();
  if (!$("sign-in").hidden) return;
  await showPast();
  await resume();
}

$("sign-in").addEventListener("submit", onSignIn);
$("form").addEventListener("submit", onAsk);
$("question").addEventListener("keydown", onKey);
$("cancel").addEventListener("click", onCancel);
$("new").addEventListener("click", onNew);
$("project").addEventListener("change", showPast);

await start();

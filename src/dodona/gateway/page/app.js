// The page. All that comes from outside is shown as text: never as markup.

import { Answer } from "./answer.js";
import { Refused, api, ask, follow } from "./stream.js";

const $ = (id) => document.getElementById(id);
const RUNNING = "dodona.run"; // in this tab's storage: what to follow after a reload

let running = null; // { run, stop } while an answer comes

function element(tag, text = "", className = "") {
  const made = document.createElement(tag);
  made.textContent = text;
  if (className) made.className = className;
  return made;
}

function say(text) {
  $("status").textContent = text;
}

function explain(error) {
  return [error.message, error.hint].filter(Boolean).join(" ");
}

// One question with its answer; `show` may be called as often as chunks come.
function exchange(question) {
  const article = element("article");
  const asked = element("h2", question, "question");
  const thinking = folded("Thinking");
  const tools = element("ul", "", "tools");
  const text = element("div", "", "answer");
  const notices = element("div", "", "notices");
  const waiting = element("div", "", "approvals");
  const sources = element("section", "", "sources");
  article.append(asked, thinking.box, tools, text, notices, waiting, sources);
  $("log").append(article);
  article.scrollIntoView({ block: "end" });
  return {
    show(answer) {
      const atEnd = isAtEnd();
      thinking.box.hidden = !answer.thinking;
      thinking.text.textContent = answer.thinking;
      tools.replaceChildren(...[...answer.tools.values()].map(toolItem));
      text.textContent = answer.text;
      notices.replaceChildren(...answer.notices.map((each) => element("p", each)));
      waiting.replaceChildren(...(answer.hasEnded ? [] : banners(answer.approvals.values())));
      if (answer.error) notices.append(element("p", explain(answer.error), "error"));
      sources.replaceChildren(...(answer.done ? sourceList(answer.sources) : []));
      if (atEnd) window.scrollTo({ top: document.body.scrollHeight });
    },
    fail(error) {
      notices.append(element("p", explain(error), "error"));
    },
  };
}

// What waits for a person. Each banner is made once: one must not be replaced under a finger.
const made = new Map();

function banners(approvals) {
  return [...approvals].map((chunk) => {
    const name = `${chunk.run_id}/${chunk.approval}`;
    if (!made.has(name)) made.set(name, banner(chunk));
    return made.get(name);
  });
}

function banner(chunk) {
  const box = element("div", "", "approval");
  const asked = element("p", `${chunk.reason} `);
  asked.append(element("code", `${chunk.name} ${brief(chunk.arguments)}`));
  const said = element("p", "", "dim");
  const buttons = [
    ["Allow", "allow", true],
    ["Refuse", "refuse", false],
  ].map(([text, className, approved]) => {
    const button = element("button", text, className);
    button.type = "button";
    button.addEventListener("click", () => decide(chunk, approved, buttons, said));
    return button;
  });
  box.setAttribute("role", "group");
  box.setAttribute("aria-label", `${chunk.name} waits for you`);
  box.append(asked, ...buttons, said);
  return box;
}

async function decide(chunk, approved, buttons, said) {
  buttons.forEach((button) => (button.disabled = true));
  const path = `/api/runs/${chunk.run_id}/approvals/${encodeURIComponent(chunk.approval)}`;
  try {
    await api(path, { method: "POST", body: { approved } });
    said.textContent = approved ? "Allowed." : "Refused.";
  } catch (error) {
    const isFinal = error instanceof Refused;
    said.textContent = isFinal ? explain(error) : "Dodona could not be reached.";
    if (!isFinal) buttons.forEach((button) => (button.disabled = false));
  }
}

function isAtEnd() {
  return window.innerHeight + window.scrollY >= document.body.scrollHeight - 80;
}

function folded(title) {
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
  item.append(sign, element("code", tool.name), " ", element("span", brief(tool.arguments), "dim"));
  return item;
}

function brief(value) {
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

// Show chunks as they come, at most once a frame.
async function show(chunks, shown) {
  const answer = new Answer();
  let waits = false;
  const draw = () => {
    waits = false;
    shown.show(answer);
    showContext(answer);
  };
  for await (const chunk of chunks) {
    answer.add(chunk);
    if (!waits) {
      waits = true;
      requestAnimationFrame(draw);
    }
  }
  draw();
  return answer;
}

async function run(shown, begin) {
  const stop = new AbortController();
  running = { run: null, stop };
  busy(true);
  say("Asking…");
  try {
    const answer = await show(begin(stop.signal, started), shown);
    say(ending(answer));
  } catch (error) {
    shown.fail(error instanceof Refused ? error : { message: "Dodona could not be reached." });
    say("");
  } finally {
    sessionStorage.removeItem(RUNNING);
    running = null;
    busy(false);
  }
}

function started(id) {
  running.run = id;
  sessionStorage.setItem(RUNNING, String(id));
  say(`Run ${id}`);
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
  say("Cancelling…");
  try {
    await api("/api/oracle/cancel", { method: "POST", body: { run_id: running.run } });
  } catch (error) {
    say(explain(error));
  }
}

async function onNew() {
  const path = `/api/oracle/context?project_id=${encodeURIComponent(project())}`;
  try {
    await api(path, { method: "DELETE" });
  } catch (error) {
    if (!(error instanceof Refused && error.status === 404)) return say(explain(error));
  }
  $("log").replaceChildren();
  $("context").textContent = "";
  say("The next question begins a new conversation.");
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
  for (const said of context.recent_exchanges) {
    const className = said.role === "user" ? "question" : "answer";
    $("log").append(element(said.role === "user" ? "h2" : "div", said.content, className));
  }
}

async function showProjects() {
  const { projects } = await api("/api/projects").catch(() => ({ projects: [] }));
  const options = projects.map(({ id }) => {
    const option = element("option", id);
    option.value = id;
    option.selected = id === "default";
    return option;
  });
  $("project").replaceChildren(...options);
  $("projects").hidden = options.length < 2;
}

// After a reload the answer goes on where it was.
async function resume() {
  const id = Number(sessionStorage.getItem(RUNNING));
  if (!id) return;
  const found = await api(`/api/runs/${id}`).catch(() => null);
  if (!found || found.ended_at) return sessionStorage.removeItem(RUNNING);
  await run(exchange(found.question), (signal, onRun) => {
    onRun(id);
    return follow(id, { signal });
  });
}

$("form").addEventListener("submit", onAsk);
$("question").addEventListener("keydown", onKey);
$("cancel").addEventListener("click", onCancel);
$("new").addEventListener("click", onNew);
$("project").addEventListener("change", showPast);

await showProjects();
await showPast();
await resume();

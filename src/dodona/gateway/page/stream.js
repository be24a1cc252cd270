// Live streams of runs: server-sent events over fetch, resumed after a lost connection.

export class ApiError extends Error {
  constructor(status, error) {
    super(error.message);
    this.status = status;
    this.code = error.code;
    this.hint = error.hint ?? "";
  }
}

// The path of the page without its slash: another application may have mounted it below a prefix.
export const BASE = (globalThis.location?.pathname ?? "/").replace(/\/[^/]*$/, "");

let token = "";

// Send this token with every request from now on.
export function setToken(text) {
  token = text;
}

const LAST = new Set(["done", "error"]);
const RETRY_DELAYS = [300, 1000, 2000, 5000]; // milliseconds between attempts; the last one repeats

// Return the JSON response, or throw the error.
export async function api(path, { method = "GET", body, base = BASE, signal } = {}) {
  const response = await fetch(base + path, request(method, body, signal));
  if (!response.ok) throw await readError(response);
  return response.json();
}

// Ask, and yield the chunks of the answer. `onRun` gets the run id before the first chunk.
export async function* ask(question, { base = BASE, signal, onRun = () => {} } = {}) {
  const response = await fetch(base + "/api/oracle/stream", request("POST", question, signal));
  if (!response.ok) throw await readError(response);
  const run = Number(response.headers.get("dodona-run"));
  onRun(run);
  yield* follow(run, { base, signal, response });
}

// Yield the chunks of a run until the last one, reconnecting as needed.
export async function* follow(run, { base = BASE, signal, response = null, retryDelays = RETRY_DELAYS } = {}) {
  let lastSeq = 0;
  let failures = 0;
  for (;;) {
    try {
      response ??= await resumeStream(run, lastSeq, base, signal);
      if (response.status === 204) return;
      for await (const chunk of chunks(response)) {
        failures = 0;
        if (chunk.seq <= lastSeq) continue;
        lastSeq = chunk.seq;
        yield chunk;
        if (LAST.has(chunk.type)) return;
      }
    } catch (error) {
      if (signal?.aborted || isFinal(error)) throw error;
    }
    response = null;
    await pause(retryDelays[Math.min(failures++, retryDelays.length - 1)], signal);
  }
}

// Yield the chunks of one response. It may end inside a chunk, which is then sent again.
export async function* chunks(response) {
  const decoder = new TextDecoder();
  const reader = response.body.getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const events = (rest + decoder.decode(value, { stream: true })).split("\n\n");
      rest = events.pop();
      for (const event of events) {
        const data = event.split("\n").filter((line) => line.startsWith("data: "));
        if (data.length) yield JSON.parse(data.map((line) => line.slice(6)).join("\n"));
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

async function resumeStream(run, lastSeq, base, signal) {
  const headers = { ...credentials(), "last-event-id": String(lastSeq) };
  const response = await fetch(`${base}/api/runs/${run}/events`, { headers, signal });
  if (!response.ok) throw await readError(response);
  return response;
}

function request(method, body, signal) {
  if (body === undefined) return { method, headers: credentials(), signal };
  const headers = { ...credentials(), "content-type": "application/json" };
  return { method, headers, body: JSON.stringify(body), signal };
}

function credentials() {
  return token ? { authorization: `Bearer ${token}` } : {};
}

async function readError(response) {
  const unknown = { code: "error", message: `The server answered ${response.status}.` };
  const body = await response.json().catch(() => ({}));
  return new ApiError(response.status, body.error ?? unknown);
}

// A server that is shutting down answers 503: retry. A 4xx error stays.
function isFinal(error) {
  return error instanceof ApiError && error.status < 500;
}

function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      reject(signal.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, milliseconds);
    signal?.addEventListener("abort", stop, { once: true });
  });
}

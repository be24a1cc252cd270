// Runs as they happen: server-sent events over fetch, taken up again where they broke.

export class Refused extends Error {
  constructor(status, error) {
    super(error.message);
    this.status = status;
    this.code = error.code;
    this.hint = error.hint ?? "";
  }
}

const LAST = new Set(["done", "error"]);
const PAUSES = [300, 1000, 2000, 5000]; // milliseconds between attempts; the last one repeats

// A JSON document, or the reason why there is none.
export async function api(path, { method = "GET", body, base = "", signal } = {}) {
  const response = await fetch(base + path, request(method, body, signal));
  if (!response.ok) throw await refusal(response);
  return response.json();
}

// Ask, and yield every chunk of the answer. `onRun` hears the run's number before the first.
export async function* ask(question, { base = "", signal, onRun = () => {} } = {}) {
  const response = await fetch(base + "/api/oracle/stream", request("POST", question, signal));
  if (!response.ok) throw await refusal(response);
  const run = Number(response.headers.get("dodona-run"));
  onRun(run);
  yield* follow(run, { base, signal, response });
}

// The chunks of a run until its last, whatever becomes of the connection.
export async function* follow(run, { base = "", signal, response = null, pauses = PAUSES } = {}) {
  let seen = 0;
  let failures = 0;
  for (;;) {
    try {
      response ??= await resumed(run, seen, base, signal);
      if (response.status === 204) return;
      for await (const chunk of chunks(response)) {
        failures = 0;
        if (chunk.seq <= seen) continue;
        seen = chunk.seq;
        yield chunk;
        if (LAST.has(chunk.type)) return;
      }
    } catch (error) {
      if (signal?.aborted || isFinal(error)) throw error;
    }
    response = null;
    await pause(pauses[Math.min(failures++, pauses.length - 1)], signal);
  }
}

// The chunks in one response. It may end in the middle of one: that one comes again.
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

async function resumed(run, seen, base, signal) {
  const headers = { "last-event-id": String(seen) };
  const response = await fetch(`${base}/api/runs/${run}/events`, { headers, signal });
  if (!response.ok) throw await refusal(response);
  return response;
}

function request(method, body, signal) {
  if (body === undefined) return { method, signal };
  const headers = { "content-type": "application/json" };
  return { method, headers, body: JSON.stringify(body), signal };
}

async function refusal(response) {
  const nothing = { code: "error", message: `The server answered ${response.status}.` };
  const found = await response.json().catch(() => ({}));
  return new Refused(response.status, found.error ?? nothing);
}

// A server that stops says 503 and comes back; what is not there will not be there later.
function isFinal(error) {
  return error instanceof Refused && error.status < 500;
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

// An answer that grows chunk by chunk, and forgets what a restart says will come again.

export class Answer {
  constructor() {
    this.kept = [];
    this.clear();
  }

  clear() {
    this.text = "";
    this.thinking = "";
    this.tools = new Map();
    this.sources = [];
    this.notices = [];
    this.approvals = new Map(); // calls that wait for a person, by the id of the call
    this.context = null;
    this.done = null;
    this.error = null;
  }

  get hasEnded() {
    return this.done !== null || this.error !== null;
  }

  add(chunk) {
    if (chunk.type === "restart") {
      this.kept = this.kept.filter((earlier) => earlier.seq <= chunk.discard_after);
      this.clear();
      this.kept.forEach((earlier) => this.apply(earlier));
      return;
    }
    this.kept.push(chunk);
    this.apply(chunk);
  }

  apply(chunk) {
    switch (chunk.type) {
      case "content":
        this.text += chunk.content;
        break;
      case "thinking":
        this.thinking += chunk.content;
        break;
      case "tool_call":
      case "tool_result":
        if (chunk.type === "tool_result") this.approvals.delete(chunk.id);
        this.tools.set(chunk.id, { ...this.tools.get(chunk.id), ...chunk });
        break;
      case "source":
        if (!this.sources.some((known) => known.path === chunk.path && known.lines === chunk.lines))
          this.sources.push(chunk);
        break;
      case "approval":
        this.approvals.set(chunk.id, chunk);
        break;
      case "system":
        this.notices.push(chunk.system_message);
        break;
      case "context_update":
        this.context = chunk;
        break;
      case "done":
        this.done = chunk;
        break;
      case "error":
        this.error = chunk.error;
        break;
    }
  }
}

// An answer built chunk by chunk. A restart chunk discards the chunks that will be sent again.

export class Answer {
  constructor() {
    this.chunks = [];
    this.clear();
  }

  clear() {
    this.text = "";
    this.thinking = "";
    this.tools = new Map();
    this.sources = [];
    this.notices = [];
    this.approvals = new Map(); // pending approvals by call id
    this.context = null;
    this.done = null;
    this.error = null;
  }

  get hasEnded() {
    return this.done !== null || this.error !== null;
  }

  add(chunk) {
    if (chunk.type === "restart") {
      this.chunks = this.chunks.filter((earlier) => earlier.seq <= chunk.discard_after);
      this.clear();
      this.chunks.forEach((earlier) => this.apply(earlier));
      return;
    }
    this.chunks.push(chunk);
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
        if (!this.sources.some((source) => source.path === chunk.path && source.lines === chunk.lines))
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

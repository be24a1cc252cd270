// As much of a browser as the page uses, to try its script without one.

class Element {
  constructor(tag) {
    Object.assign(this, { tag, own: "", children: [], hidden: false, disabled: false, value: "" });
    Object.assign(this, { className: "", attributes: {}, listeners: {} });
  }
  get textContent() {
    return this.own + this.children.map((child) => child.textContent ?? child).join("");
  }
  set textContent(text) {
    this.own = String(text);
    this.children = [];
  }
  append(...children) {
    this.children.push(...children);
  }
  replaceChildren(...children) {
    this.own = "";
    this.children = children;
  }
  setAttribute(name, value) {
    this.attributes[name] = value;
  }
  addEventListener(type, listener) {
    this.listeners[type] = listener;
  }
  fire(type, more = {}) {
    return this.listeners[type]({ preventDefault() {}, ...more });
  }
  find(className) {
    if (this.className === className) return this;
    for (const child of this.children) {
      const found = child.find?.(className);
      if (found) return found;
    }
    return null;
  }
  focus() {}
  scrollIntoView() {}
}

export function browser(base, stored = {}) {
  const byId = new Map();
  const find = (id) => {
    if (!byId.has(id)) byId.set(id, new Element(id));
    return byId.get(id);
  };
  const real = globalThis.fetch;
  globalThis.fetch = (path, options) => real(base + path, options);
  globalThis.document = {
    getElementById: find,
    createElement: (tag) => new Element(tag),
    body: { scrollHeight: 0 },
  };
  globalThis.window = { innerHeight: 0, scrollY: 0, scrollTo() {} };
  globalThis.requestAnimationFrame = (draw) => setTimeout(draw, 1);
  globalThis.sessionStorage = {
    getItem: (name) => stored[name] ?? null,
    setItem: (name, value) => (stored[name] = value),
    removeItem: (name) => delete stored[name],
  };
  return { find, stored };
}

// What this session may do. The hub decides; the page only does not offer what would be refused.

/** Say whether a pattern of the settings stands for a text: `*` is any characters, dots included. */
export function matches(pattern, text) {
  const [first, ...rest] = pattern.split("*");
  if (rest.length === 0) return text === first;
  const last = rest.pop();
  let at = first.length;
  const end = text.length - last.length;
  if (at > end || !text.startsWith(first) || !text.endsWith(last)) return false;
  for (const piece of rest) {
    const found = text.indexOf(piece, at);
    if (found < 0 || found + piece.length > end) return false;
    at = found + piece.length;
  }
  return true;
}

/** The answer of `hub.rights`; before it is there, nothing is allowed. */
export class Rights {
  constructor(told = {}) {
    const list = (name) => (Array.isArray(told[name]) ? told[name].map(String) : []);
    this.identity = typeof told.identity === "string" ? told.identity : "";
    this.lists = { call: list("call"), publish: list("publish"), subscribe: list("subscribe") };
  }

  may(what, text) {
    return this.lists[what].some((pattern) => matches(pattern, text));
  }

  mayAny(what) {
    return this.lists[what].length > 0;
  }
}

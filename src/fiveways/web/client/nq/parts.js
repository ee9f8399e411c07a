// The order of the parts of a stream.

import { isCount } from "../checks.js";
import { NQ_OPTIONS } from "../tables.js";

/** Parts of a stream that may arrive in any order and more than once; they are released in order, once each. */
export class PartSequence {
  /** The number of the next part to release. */
  next = 1;
  #total = null;
  #held = new Map();

  /** Add part `n`, after which `following` parts come; return the released parts, or null for a contradiction. */
  add(n, following, part) {
    if (isCount(following)) this.#total = part.e ? n : (this.#total ?? n + following);
    if (this.#total !== null && n > this.#total) return null;
    if (n >= this.next && n < this.next + NQ_OPTIONS.window) this.#held.set(n, part);
    const released = [];
    for (; this.#held.has(this.next); this.next += 1) {
      released.push(this.#held.get(this.next));
      this.#held.delete(this.next);
    }
    return released;
  }

  get isComplete() {
    return this.#total !== null && this.next > this.#total;
  }

  /** The numbers of parts that are missing before one that has arrived. */
  get missing() {
    if (!this.#held.size) return [];
    const last = Math.max(...this.#held.keys());
    return Array.from({ length: last - this.next }, (_, at) => this.next + at).filter((n) => !this.#held.has(n));
  }
}

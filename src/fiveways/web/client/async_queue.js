// A queue whose consumer waits for items.

import { createDeferred } from "./timing.js";

export class AsyncQueue {
  #items = [];
  #consumers = [];
  #hasEnded = false;
  #error = null;

  get length() {
    return this.#items.length;
  }

  push(item) {
    if (this.#hasEnded) return;
    const consumer = this.#consumers.shift();
    if (consumer) consumer.resolve({ value: item, done: false });
    else this.#items.push(item);
  }

  dropOldest() {
    return this.#items.shift();
  }

  /** End the queue. Items in it can still be consumed; then the first consumer gets the error. */
  end(error = null) {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    const consumers = this.#consumers.splice(0);
    if (consumers.length && error) consumers.shift().reject(error);
    else this.#error = error;
    for (const consumer of consumers) consumer.resolve({ value: undefined, done: true });
  }

  /** Return a promise of the next item, in the form of an iterator. */
  next() {
    if (this.#items.length) return Promise.resolve({ value: this.#items.shift(), done: false });
    if (!this.#hasEnded) {
      const consumer = createDeferred();
      this.#consumers.push(consumer);
      return consumer.promise;
    }
    const error = this.#error;
    this.#error = null;
    return error ? Promise.reject(error) : Promise.resolve({ value: undefined, done: true });
  }
}

// Subscriptions: a buffer that receives events, and the object by which users read them.

import { AsyncQueue } from "./async_queue.js";

/** Events of a subscription that its user has not read yet. */
export class EventBuffer {
  /** Reconnects that restored the subscription. */
  restored = 0;
  /** Events that were dropped or missed since the last one that was read. */
  missed = 0;
  #pattern;
  #maxWaiting;
  #queue = new AsyncQueue();

  constructor(pattern, maxWaiting) {
    [this.#pattern, this.#maxWaiting] = [pattern, Math.max(1, maxWaiting)];
  }

  /** Add an event. If the buffer is full, the oldest is dropped and counted as missed. */
  push(event) {
    if (this.#queue.length >= this.#maxWaiting) this.missed += 1 + this.#queue.dropOldest().missed;
    this.#queue.push({ ...event, topic: event.topic || this.#pattern });
  }

  async next() {
    const { value: event, done } = await this.#queue.next();
    if (done) return { value: undefined, done };
    const missed = this.missed + event.missed;
    this.missed = 0;
    return { value: { ...event, missed }, done };
  }

  end(error = null) {
    this.#queue.end(error);
  }
}

/**
 * Events of a topic, or of all topics that match a pattern: `for await (const event of events)`. The subscription is
 * restored after a reconnect; events meanwhile are missed. Leaving the loop, or `close()`, unsubscribes.
 */
export class Subscription {
  #buffer;
  #unsubscribe;

  constructor(pattern, buffer, unsubscribe) {
    this.pattern = pattern;
    [this.#buffer, this.#unsubscribe] = [buffer, unsubscribe];
  }

  /** Reconnects since the subscription began; events may be missing at each. */
  get restored() {
    return this.#buffer.restored;
  }

  /**
   * @returns {Promise<IteratorResult<{topic: string, data: any, missed: number, attachments: (Uint8Array | null)[]}>>}
   */
  next() {
    return this.#buffer.next();
  }

  /** Unsubscribe. Events in the buffer can still be read. */
  async close() {
    this.#buffer.end();
    this.#unsubscribe();
  }

  async return() {
    await this.close();
    return { value: undefined, done: true };
  }

  [Symbol.asyncIterator]() {
    return this;
  }
}

// Calls: unary calls with their retries, and streams.

import { AsyncQueue } from "./async_queue.js";
import { CallError } from "./errors.js";
import { CONNECT_DEFAULTS } from "./tables.js";
import { checkedTimeout, now } from "./timing.js";

/** Makes requests on the session that is open, or on the next one. */
export class Caller {
  #reconnector;
  #requests;
  #settings;

  constructor(reconnector, requests, settings) {
    [this.#reconnector, this.#requests, this.#settings] = [reconnector, requests, settings];
  }

  #deadline(timeout) {
    return now() + checkedTimeout(timeout ?? this.#settings.timeout);
  }

  /** Return the timeout to send with a call: none if it is the hub's own default. */
  #sentTimeout(timeout, timeLeft) {
    return timeout === undefined && this.#settings.timeout === CONNECT_DEFAULTS.timeout ? undefined : timeLeft;
  }

  async call(name, body, { timeout, attachments, onProgress, signal, idempotent = false }) {
    const deadline = this.#deadline(timeout);
    for (;;) {
      const { session, timeLeft } = await this.#reconnector.ready(deadline, signal);
      const options = { timeout: this.#sentTimeout(timeout, timeLeft), progress: Boolean(onProgress), attachments };
      const send = (conversation, id) => conversation.call(id, name, body, options);
      const pending = { timeout: timeLeft, subject: name, onProgress, signal };
      try {
        return await this.#requests.send(session.conversation, send, pending).promise;
      } catch (error) {
        if (!(idempotent && this.#wasLostWith(session, error, ["lost"]))) throw error;
      }
    }
  }

  async *stream(name, body, { timeout, attachments, signal, maxWaiting = 10_000 }) {
    const { session, timeLeft } = await this.#reconnector.ready(this.#deadline(timeout), signal);
    const parts = new AsyncQueue();
    const options = { timeout: this.#sentTimeout(timeout, timeLeft), stream: true, attachments };
    const send = (conversation, id) => conversation.call(id, name, body, options);
    const pending = { timeout: timeLeft, subject: name, parts, maxWaiting, signal };
    const { id, promise } = this.#requests.send(session.conversation, send, pending);
    promise.then(
      () => parts.end(),
      (error) => parts.end(error),
    );
    try {
      for (;;) {
        const { value, done } = await parts.next();
        if (done) break;
        yield value;
      }
      // A result that was not streamed: an array stands for its parts.
      const { value, isStream } = await promise;
      if (!isStream) yield* Array.isArray(value) ? value : [value];
    } finally {
      this.#requests.abandon(id);
    }
  }

  /** Send a request once. */
  async request(send, timeout) {
    const { session, timeLeft } = await this.#reconnector.ready(this.#deadline(timeout));
    return this.#requests.send(session.conversation, send, { timeout: timeLeft }).promise;
  }

  /** Send an idempotent request; repeat it on the next session if one is lost before the response. */
  async requestUntilAnswered(send) {
    const deadline = this.#deadline();
    for (;;) {
      const { session, timeLeft } = await this.#reconnector.ready(deadline);
      try {
        return await this.#requests.send(session.conversation, send, { timeout: timeLeft }).promise;
      } catch (error) {
        if (!this.#wasLostWith(session, error, ["lost", "unavailable"])) throw error;
      }
    }
  }

  #wasLostWith(session, error, reasons) {
    return error instanceof CallError && reasons.includes(error.reason) && session.hasEnded && this.#settings.reconnect;
  }
}

// Requests of this client that wait for their responses.

import { CallError, cancelledError, runUserCallback, sendIfPossible } from "./errors.js";
import { sentenceOf, timeoutError, toCallError } from "./errors.js";
import { LIMITS } from "./tables.js";
import { createDeferred, startTimer } from "./timing.js";
import { writeJson } from "./values/json.js";

export const MAX_COLLECTED = 1 << 24; // characters of a streamed result that is collected into one array

export class PendingRequests {
  #pending = new Map();
  #lastId = 0;

  get size() {
    return this.#pending.size;
  }

  /** Return a number that identifies a request or subscription of this client. */
  newId() {
    this.#lastId += 1;
    return this.#lastId;
  }

  /**
   * Send a request and return its id and the promise of its response. `send` gets the conversation and the id. `more`
   * may have `onProgress`, and for a stream `parts`, a queue, and `maxWaiting`.
   */
  send(conversation, send, { timeout, subject = "the hub", signal, ...more }) {
    const id = this.newId();
    const { promise, resolve, reject } = createDeferred();
    const failAtOnce = (error) => {
      reject(error);
      return { id, promise };
    };
    if (this.#pending.size >= LIMITS.maxPending) {
      return failAtOnce(new CallError("overloaded", `${LIMITS.maxPending} requests of this client are pending`));
    }
    if (signal?.aborted) return failAtOnce(cancelledError(signal));
    try {
      send(conversation, id);
    } catch (error) {
      return failAtOnce(toCallError(error));
    }
    const giveUp = (error) => {
      this.abandon(id);
      reject(error);
    };
    // A hub that knows the timeout reports it; wait a little longer for this report.
    const patience = conversation.sendsTimeouts ? timeout + Math.min(1, 0.05 + timeout / 10) : timeout;
    const timer = startTimer(patience, () => giveUp(timeoutError(subject, timeout)));
    const abort = () => giveUp(cancelledError(signal));
    signal?.addEventListener("abort", abort, { once: true });
    const cleanUp = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", abort);
    };
    const pending = { resolve, reject, cleanUp, subject, timeout, conversation, collected: [], size: 0, ...more };
    this.#pending.set(id, pending);
    return { id, promise };
  }

  /** Send a request whose response is ignored. */
  sendWithoutResponse(conversation, send) {
    sendIfPossible(() => send(conversation, this.newId()));
  }

  /** Cancel a request if it is still pending. */
  abandon(id) {
    const pending = this.#remove(id);
    if (pending) sendIfPossible(() => pending.conversation.cancel(id));
  }

  #remove(id) {
    const pending = this.#pending.get(id);
    this.#pending.delete(id);
    pending?.cleanUp();
    return pending;
  }

  /** Fail all requests, because the session has ended. */
  loseAll(error) {
    for (const id of [...this.#pending.keys()]) {
      this.#remove(id).reject(new CallError("lost", `${error.message}; the method may have run`));
    }
  }

  resultReceived(id, value, attachments) {
    this.#remove(id)?.resolve({ value, attachments });
  }

  errorReceived(id, error) {
    const pending = this.#remove(id);
    const hasNoText = error.reason === "timeout" && error.message === sentenceOf("timeout");
    pending?.reject(hasNoText ? timeoutError(pending.subject, pending.timeout) : error);
  }

  progressReceived(id, note) {
    const onProgress = this.#pending.get(id)?.onProgress;
    if (onProgress) runUserCallback(() => onProgress(note));
  }

  partReceived(id, value) {
    const pending = this.#pending.get(id);
    if (!pending) return;
    const overflow = pending.parts ? queuePart(pending, value) : collectPart(pending, value);
    if (!overflow) return;
    this.abandon(id);
    pending.reject(new CallError("cancelled", overflow));
  }

  /** Note that the last part of a streamed result has arrived. */
  streamEnded(id) {
    const pending = this.#remove(id);
    pending?.resolve({ value: pending.parts ? null : pending.collected, attachments: [], isStream: true });
  }

  /** Discard the parts of a result that arrived so far; false if the caller already has them. */
  discardParts(id) {
    const pending = this.#pending.get(id);
    if (!pending || pending.parts) return !pending;
    [pending.collected, pending.size] = [[], 0];
    return true;
  }
}

/** Queue a part for the reader of a stream; return an error text if the queue is full. */
function queuePart({ parts, maxWaiting }, value) {
  if (parts.length >= maxWaiting) return `${maxWaiting} parts of the result were not read: the call is cancelled`;
  parts.push(value);
  return "";
}

/** Collect a part of a result that the caller wants as one array; return an error text if it gets too large. */
function collectPart(pending, value) {
  pending.size += writeJson(value).length;
  if (pending.size > MAX_COLLECTED) return "the result is too large for one array: use `stream`";
  pending.collected.push(value);
  return "";
}

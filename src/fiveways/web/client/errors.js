// Errors that users see, errors inside the client, and helpers that handle them.

import { REASONS } from "./tables.js";

// Maps instead of objects: a hub may send words such as `constructor`, which every object has.
const RAN = new Map(Object.entries(REASONS).map(([reason, { ran }]) => [reason, ran]));
const SENTENCES = new Map(Object.entries(REASONS).map(([reason, { text }]) => [reason, text]));

/** How a call failed. `ran` is "no" only if the method certainly did not run. */
export class CallError extends Error {
  /**
   * @param {string} reason a machine word, such as "no_such_method" or "timeout"; docs/crossing.md lists them
   * @param {string} [text] a sentence for people
   * @param {{data?: unknown, name?: string, retryAfter?: number | null, cause?: unknown}} [more]
   */
  constructor(reason, text = "", { data = null, name = "", retryAfter = null, cause } = {}) {
    super(text || name || sentenceOf(reason), cause === undefined ? undefined : { cause });
    /** The method's own name for its error, if it has one. */
    this.name = name || "CallError";
    this.reason = reason;
    /** @type {"no" | "unknown" | "yes"} */
    this.ran = ranOf(reason);
    /** The data that the method attached to its error. */
    this.data = data;
    /** Seconds after which a retry makes sense, or null. */
    this.retryAfter = retryAfter;
  }
}

/** The hub cannot be reached, or the connection has ended permanently. */
export class ConnectionLost extends Error {
  constructor(text) {
    super(text);
    this.name = new.target.name;
  }
}

/** The hub refuses the client, so the client does not retry. */
export class Refused extends ConnectionLost {}

/** Thrown by a registered method: the call fails with this text, name and data. */
export class Fail extends Error {
  /** @param {string} text @param {{name?: string, data?: unknown, retryAfter?: number | null}} [more] */
  constructor(text, { name = "", data = null, retryAfter = null } = {}) {
    super(text);
    this.name = "Fail";
    /** The name of the error in protocols that have one, such as `shop.err.sold_out`. */
    this.errorName = name;
    this.data = data;
    this.retryAfter = retryAfter;
  }
}

/** Returned by a registered method: a value with attachments. */
export class Reply {
  /** @param {unknown} value @param {Uint8Array[]} [attachments] */
  constructor(value, attachments = []) {
    this.value = value;
    this.attachments = attachments;
  }
}

/** The hub broke the protocol. The client closes the connection and opens another one. */
export class ProtocolError extends Error {}

/** A text that is not JSON by the rules of the hub. */
export class InvalidJson extends Error {}

/** A value that cannot be encoded, or a marker in JSON that cannot be decoded. */
export class InvalidValue extends Error {}

/** Return whether a call that failed for this reason ran. */
export const ranOf = (reason) => RAN.get(reason) ?? "unknown";

export const sentenceOf = (reason) => SENTENCES.get(reason) ?? reason;

export function cancelledError(signal) {
  return new CallError("cancelled", "the caller cancelled it", { cause: signal.reason });
}

export function timeoutError(subject, timeout) {
  return new CallError("timeout", `${subject} did not answer within ${Number(timeout.toFixed(3))} s`);
}

/** Return the CallError for a request that cannot be encoded; other errors are mistakes of the caller, and stay. */
export function toCallError(error) {
  return error instanceof InvalidValue ? new CallError("bad_arguments", error.message) : error;
}

/** Pass the result of `decode` to `use`, or the message of its InvalidValue to `refuse`. */
export function decodeThen(decode, use, refuse) {
  let value;
  try {
    value = decode();
  } catch (error) {
    if (!(error instanceof InvalidValue)) throw error;
    refuse(error.message);
    return;
  }
  use(value);
}

/** Return the result of `decode`, or null: an error must reach its caller even if its data cannot be decoded. */
export function decodeOrNull(decode) {
  try {
    return decode();
  } catch {
    return null;
  }
}

/** Send something to a hub that may have disconnected; errors that say so are ignored. */
export function sendIfPossible(send) {
  try {
    send();
  } catch (error) {
    if (!(error instanceof CallError || error instanceof InvalidValue)) throw error;
  }
}

/** Run a function of the user. Its error must not end the connection, so it is reported as uncaught. */
export function runUserCallback(run) {
  try {
    run();
  } catch (error) {
    queueMicrotask(() => {
      throw error;
    });
  }
}

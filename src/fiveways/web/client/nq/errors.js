// Error objects and identifiers of NQ.

import { isObject, isText, toSendableText } from "../checks.js";
import { fillPlaceholders, toTemplate } from "../conversation.js";
import { CallError, ProtocolError, decodeOrNull } from "../errors.js";
import { NQ_CODES, NQ_ERROR_TYPES, NQ_REASONS } from "../tables.js";
import { toMillis } from "../timing.js";
import { decodeMarkers } from "../values/markers.js";

const ERROR_TYPES = new Set(NQ_ERROR_TYPES);
const REASON_OF_CODE = new Map(Object.entries(NQ_REASONS));
const NOTE_KINDS = ["note", "warn", "tmp", "debug"];

export const CANCELLATION = { type: "local", fatal: true, err: "cancelled" };

/** Return an identifier as a text; numbers are tolerated. */
export function readId(value) {
  if (isText(value) && value) return value;
  if (Number.isSafeInteger(value) && value !== 0) return String(value);
  throw new ProtocolError("an invalid identifier");
}

export const readIds = (value) => (Array.isArray(value) ? value.map(readId) : [readId(value)]);

/** Return a text of an error object; numbers are tolerated. */
function readWord(value) {
  if (isText(value) || typeof value === "number" || typeof value === "bigint") return String(value);
  throw new ProtocolError("an error with a field that is not a text");
}

/** Read an error object; `message` is its text with all placeholders filled. */
export function readErrorObject(e) {
  if (!isObject(e)) throw new ProtocolError("an error that is not an object");
  const [type, err, warn, note, text] = ["type", "err", "warn", "note", "text"].map((key) => readWord(e[key] ?? ""));
  if (!ERROR_TYPES.has(type)) throw new ProtocolError("an error of unknown type");
  const args = Array.isArray(e.args) ? e.args.map(readWord) : [];
  const code = err || warn || note;
  const message = fillPlaceholders(text, { err, warn, note, 0: code }, args);
  return { type, isFatal: e.fatal === true, err, note, code, args, message };
}

/** Return the CallError for a fatal error object. */
export function toNqCallError({ type, err, code, args, message }, d) {
  const data = decodeOrNull(() => decodeMarkers(d ?? null));
  if (type !== "local" && type !== "remote") return new CallError("raised", message, { data, name: code });
  const reason = REASON_OF_CODE.get(err) ?? "lost"; // an unknown code does not say whether the method ran
  const retryAfter = reason === "overloaded" && /^\d{1,9}$/.test(args[0] ?? "") ? args[0] / 1000 : null;
  return new CallError(reason, message || err, { data, retryAfter });
}

/** Return the body for an error of a method of this client. */
export function writeNqError({ reason, text = "", name = "", data = null, retryAfter = null }) {
  const isRaised = reason === "raised";
  const args = reason === "overloaded" ? [String(toMillis(retryAfter ?? 0))] : [];
  const err = isRaised ? name : (NQ_CODES[reason] ?? "");
  const e = { type: isRaised ? "app" : "local", fatal: true, err, ...toTemplate(text, args) };
  return data === null ? { e } : { d: data, e };
}

export function writeNote(text) {
  return { type: "note", fatal: false, ...toTemplate(text) };
}

export function writeComplaint(text) {
  return { e: { type: "local", fatal: true, err: "malformed", text: "{1}", args: [toSendableText(text)] } };
}

/** Return the progress note of an error object that is not fatal. */
export function readProgress({ type, code, message }) {
  return { kind: NOTE_KINDS.includes(type) ? type : "warn", code, text: message };
}

/** Return the attachments of a message; null for one that is not a byte string. */
export function readMarkedAttachments(list) {
  const values = Array.isArray(list) ? decodeMarkers(list) : [];
  return values.map((value) => (value instanceof Uint8Array ? value : null));
}

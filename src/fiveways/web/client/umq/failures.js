// Errors in UMQ: a code, a space and a text. The message type says whether the method ran.

import { shorten } from "../checks.js";
import { CallError, ranOf, sentenceOf } from "../errors.js";
import { UMQ_CODES } from "../tables.js";
import { encodeText } from "../values/text.js";

export const UMQ_REASONS = new Map(Object.entries(UMQ_CODES).map(([reason, code]) => [code, reason]));
const didNotRun = (reason) => ranOf(reason) === "no";
const MAY_HAVE_RUN = Object.entries(UMQ_CODES).flatMap(([reason, code]) => (didNotRun(reason) ? [] : [code]));
/** Begins like an error of the hub. */
const CODED_TEXT = new RegExp(`^(?:${MAY_HAVE_RUN.join("|")})(?: |$)`);

/** Split the payload of an error into its code, 0 if it has none, and its text. */
export function splitCode(payload) {
  const [, code, text] = /^(\d{1,9}) ([^]*)$/.exec(payload) ?? [null, "", payload];
  return { code: Number(code), text };
}

/** Return the message for an error of a method of this client. */
export function writeUmqError(id, { reason, text = "", name = "", data = null }) {
  if (reason !== "raised") {
    return `${didNotRun(reason) ? "!" : "E"}${id}\n${UMQ_CODES[reason]} ${text || sentenceOf(reason)}`;
  }
  const ownText = text || name || (data === null ? "" : shorten(encodeText(data)));
  // A text that begins like an error of the hub gets the code of an exception, which receivers remove.
  const isUncoded = ownText && !CODED_TEXT.test(ownText);
  return `E${id}\n${isUncoded ? ownText : `${UMQ_CODES.raised} ${ownText || sentenceOf(reason)}`}`;
}

/** Read an error: the type says whether the method ran, the code why, if it is a code of that type. */
export function readUmqError(type, payload) {
  const { code, text } = splitCode(payload);
  const reason = UMQ_REASONS.get(code);
  if (reason !== undefined && didNotRun(reason) === (type === "!")) return new CallError(reason, text);
  return new CallError(type === "!" ? "unavailable" : "raised", payload);
}

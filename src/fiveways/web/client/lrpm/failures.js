// Errors in LRPM: a uri, a body and extras.

import { isCount, isText, shorten, textOr } from "../checks.js";
import { CallError, ProtocolError, decodeOrNull } from "../errors.js";
import { LRPM_CALLEE_URIS, LRPM_URIS } from "../tables.js";
import { toMillis } from "../timing.js";
import { decodeMarkers } from "../values/markers.js";

const LRPM_REASONS = new Map(Object.entries(LRPM_URIS).map(([reason, uri]) => [uri, reason]));
// The hub reads `hub.err.*` of a callee as an exception, so a callee reports `callee.err.*` if the method did not run.
const SENT_URIS = { ...LRPM_URIS, ...LRPM_CALLEE_URIS };
const URI = /^[a-z0-9_]+(?:\.[a-z0-9_]+)*$/;
const RESERVED_URI = /^(?:hub|callee\.err)\./;

/** Return uri, body and extras for an error of a method of this client. */
export function writeLrpmError({ reason, text = "", name = "", data = null, retryAfter = null }) {
  // The name of an exception must not say that the method did not run.
  const hasOwnUri = reason === "raised" && URI.test(name) && !RESERVED_URI.test(name);
  const meta = retryAfter === null ? {} : { retry_after: toMillis(retryAfter) };
  if (data !== null) meta.text = text;
  return [hasOwnUri ? name : SENT_URIS[reason], data ?? (text || null), meta];
}

export function readLrpmError(uri, body, meta) {
  if (!isText(uri)) throw new ProtocolError("an error without a uri");
  const isBodyText = isText(body) && !isText(meta.text);
  const data = isBodyText ? null : decodeOrNull(() => decodeMarkers(body ?? null));
  const retryAfter = isCount(meta.retry_after) ? meta.retry_after / 1000 : null;
  const text = isBodyText ? body : textOr(meta.text, "");
  const reason = LRPM_REASONS.get(uri);
  if (reason !== undefined) return new CallError(reason, text, { data, retryAfter });
  // An unknown reason of the hub does not say whether the method ran.
  if (uri.startsWith("hub.err.")) return new CallError("lost", text || shorten(uri), { data, retryAfter });
  return new CallError("raised", text, { data, name: shorten(uri), retryAfter });
}

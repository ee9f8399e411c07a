// Byte strings: views of them, UTF-8, hexadecimal digits and base64.

import { InvalidValue } from "../errors.js";

const CHUNK = 8192; // arguments of one call

export const encodeUtf8 = (text) => new TextEncoder().encode(text);
export const utf8Length = (text) => encodeUtf8(text).length;

export function toHex(bytes, prefix = "") {
  return Array.from(bytes, (byte) => prefix + byte.toString(16).padStart(2, "0")).join("");
}

/** Return a typed array or buffer as a Uint8Array; null for other values. */
export function viewBytes(value) {
  if (value instanceof ArrayBuffer) return new Uint8Array(value);
  if (!ArrayBuffer.isView(value)) return null;
  return new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
}

/** Return attachments as byte arrays; InvalidValue if one of them is something else. */
export function attachmentBytes(attachments = []) {
  return Array.from(attachments, (attachment) => {
    const bytes = viewBytes(attachment);
    if (!bytes) throw new InvalidValue("an attachment must be a Uint8Array");
    return bytes;
  });
}

export function encodeBase64(bytes) {
  let text = "";
  for (let at = 0; at < bytes.length; at += CHUNK) text += String.fromCharCode(...bytes.subarray(at, at + CHUNK));
  return btoa(text);
}

export function decodeBase64(text) {
  let raw;
  try {
    raw = atob(text);
  } catch {
    throw new InvalidValue("$base64 is not base64");
  }
  // Two encodings of the same bytes would be two different messages.
  if (btoa(raw) !== text) throw new InvalidValue("$base64 does not encode back to itself");
  return Uint8Array.from(raw, (char) => char.charCodeAt(0));
}

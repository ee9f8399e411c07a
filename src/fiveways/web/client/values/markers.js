// Markers: objects with one key that stand for values that JSON lacks, which are bytes, NaN and the infinities. An
// object of the user that looks like a marker gets one more `$`.

import { isObject, isText } from "../checks.js";
import { InvalidValue } from "../errors.js";
import { decodeBase91, encodeBase91 } from "./base91.js";
import { decodeBase64, encodeBase64 } from "./bytes.js";

export const MARKER = /^\$+(?:base64|base91|number)$/;

export const base64Marker = (bytes) => `{"$base64":"${encodeBase64(bytes)}"}`;
export const base91Marker = (bytes) => `{"$base91":"${encodeBase91(bytes)}"}`;

/** Replace markers by their values; InvalidValue for a marker with an impossible content. */
export function decodeMarkers(value) {
  if (Array.isArray(value)) return value.map(decodeMarkers);
  if (!isObject(value)) return value;
  const keys = Object.keys(value);
  if (keys.length !== 1 || !MARKER.test(keys[0])) {
    for (const key of keys) value[key] = decodeMarkers(value[key]);
    return value;
  }
  const [key] = keys;
  const content = value[key];
  if (key.startsWith("$$")) return { [key.slice(1)]: decodeMarkers(content) };
  if (!isText(content)) throw new InvalidValue(`the content of ${key} is not a text`);
  if (key === "$base64") return decodeBase64(content);
  if (key === "$base91") return decodeBase91(content);
  if (!["NaN", "Infinity", "-Infinity"].includes(content)) {
    throw new InvalidValue("$number must be NaN, Infinity or -Infinity");
  }
  return Number(content);
}

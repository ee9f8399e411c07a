// JSON by the rules of the hub: nesting is limited, numbers are finite, and integers that a number cannot hold exactly
// are BigInts in both directions.

import { isText } from "../checks.js";
import { InvalidJson, InvalidValue } from "../errors.js";
import { LIMITS } from "../tables.js";
import { viewBytes } from "./bytes.js";
import { MARKER, base64Marker } from "./markers.js";

export const LONE_SURROGATE = /\p{Surrogate}/u;
const BIGINT_PREFIX = `${Math.random().toString(36).slice(2)}:`; // unpredictable, so no text is mistaken for a number
const TOKENS = /"[^"\\]*(?:\\[^][^"\\]*)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;

/** Return the value of a JSON text, with markers left as they are; InvalidJson if it is not JSON. */
export function parseJson(text, maxDepth = LIMITS.maxDepth) {
  if (!/^["[{\-0-9tfn]/.test(text) || /[ \t\n\r]$/.test(text)) throw new InvalidJson("not JSON");
  const hasBigInts = /\d{16}/.test(text);
  let value;
  try {
    value = JSON.parse(hasBigInts ? text.replace(TOKENS, quoteBigInt) : text);
  } catch (error) {
    throw new InvalidJson(`not JSON: ${error.message}`);
  }
  return checkParsed(value, hasBigInts, maxDepth);
}

function quoteBigInt(token) {
  return /^-?\d{16,}$/.test(token) && !Number.isSafeInteger(Number(token)) ? `"${BIGINT_PREFIX}${token}"` : token;
}

function parseBigInt(digits) {
  if (digits.length > LIMITS.maxDigits + digits.startsWith("-")) throw new InvalidJson("a number has too many digits");
  return BigInt(digits);
}

function checkParsed(value, hasBigInts, depthLeft) {
  if (isText(value)) {
    if (hasBigInts && value.startsWith(BIGINT_PREFIX)) return parseBigInt(value.slice(BIGINT_PREFIX.length));
    if (LONE_SURROGATE.test(value)) throw new InvalidJson("a text has half of a surrogate pair");
  } else if (typeof value === "number") {
    if (!Number.isFinite(value)) throw new InvalidJson("a number is out of range");
  } else if (typeof value === "object" && value !== null) {
    if (depthLeft === 0) throw new InvalidJson(`nested deeper than ${LIMITS.maxDepth}`);
    for (const key of Object.keys(value)) {
      if (LONE_SURROGATE.test(key)) throw new InvalidJson("a key has half of a surrogate pair");
      value[key] = checkParsed(value[key], hasBigInts, depthLeft - 1);
    }
  }
  return value;
}

/** Return a value as JSON, with bytes as `bytesMarker` encodes them; InvalidValue if JSON cannot hold it. */
export function writeJson(value, bytesMarker = base64Marker, depthLeft = LIMITS.maxDepth) {
  if (value === undefined || value === null) return "null";
  switch (typeof value) {
    case "boolean":
    case "bigint":
      return String(value);
    case "number":
      if (!Number.isFinite(value)) return `{"$number":"${value}"}`;
      return Object.is(value, -0) ? "-0.0" : String(value);
    case "string":
      if (LONE_SURROGATE.test(value)) throw new InvalidValue("a text has half of a surrogate pair");
      return JSON.stringify(value);
    case "object":
      return writeObject(value, bytesMarker, depthLeft);
    default:
      throw new InvalidValue(`a ${typeof value} cannot be sent`);
  }
}

function writeObject(value, bytesMarker, depthLeft) {
  const bytes = viewBytes(value);
  if (bytes) return bytesMarker(bytes);
  if (depthLeft === 0) throw new InvalidValue(`nested deeper than ${LIMITS.maxDepth}`);
  const writeItem = (item) => writeJson(item, bytesMarker, depthLeft - 1);
  if (typeof value.toJSON === "function") return writeItem(value.toJSON());
  if (Array.isArray(value)) return `[${Array.from(value, writeItem).join(",")}]`;
  if (value instanceof Map || value instanceof Set || typeof value.then === "function") {
    throw new InvalidValue(`a ${value.constructor.name} cannot be sent: convert it to an object or an array`);
  }
  const keys = Object.keys(value).filter((key) => value[key] !== undefined);
  const escape = keys.length === 1 && MARKER.test(keys[0]) ? "$" : "";
  return `{${keys.map((key) => `${writeJson(escape + key)}:${writeItem(value[key])}`).join(",")}}`;
}

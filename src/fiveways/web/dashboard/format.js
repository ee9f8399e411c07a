// Numbers for people, always with their unit.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const NONE = "–";
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });

const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });
const exact = new Intl.DateTimeFormat("en-GB", {
  ...{ year: "numeric", month: "short", day: "numeric" },
  ...{ hour: "2-digit", minute: "2-digit", second: "2-digit", fractionalSecondDigits: 3 },
});

const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

/** Three digits at most: 0.52, 5.2, 52, 520. */
function digits(value) {
  const size = Math.abs(value);
  if (size >= 99.95 || value === 0) return whole.format(value);
  return value.toFixed(size >= 9.995 ? 1 : size >= 0.0995 ? 2 : 3).replace(/\.?0+$/, "");
}

/** A number of things: 12,345, and 1.23 M beyond a million. */
export function count(value) {
  if (!isNumber(value)) return NONE;
  return Math.abs(value) < 1e6 ? whole.format(value) : short(value);
}

/** A number in little room: 12.3 k. */
export function short(value) {
  if (!isNumber(value)) return NONE;
  for (const [size, unit] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (Math.abs(value) >= size) return `${digits(value / size)} ${unit}`;
  }
  return digits(value);
}

/** So many a second. */
export const rate = (value) => (isNumber(value) ? `${short(value)}/s` : NONE);

/** Bytes. */
export function bytes(value) {
  if (!isNumber(value)) return NONE;
  const scaled = short(value);
  return /[kMG]$/.test(scaled) ? `${scaled}B` : `${scaled} B`;
}

/** So many bytes a second. */
export const byteRate = (value) => (isNumber(value) ? `${bytes(value)}/s` : NONE);

/** A duration in seconds. */
export function duration(value) {
  if (!isNumber(value)) return NONE;
  if (value === 0) return "0 s";
  if (value < 1e-3) return `${digits(value * 1e6)} µs`;
  if (value < 1) return `${digits(value * 1e3)} ms`;
  if (value < 120) return `${digits(value)} s`;
  if (value < 7200) return `${Math.floor(value / 60)} min`;
  return value < 172800 ? `${Math.floor(value / 3600)} h` : `${Math.floor(value / 86400)} d`;
}

/** A time of day, of a time in seconds since 1970. */
export const timeOfDay = (at) => (isNumber(at) ? clock.format(new Date(at * 1000)) : NONE);

/** A time of the last day as a time of day, an older one with its date. */
export function moment(at, now = Date.now() / 1000) {
  if (!isNumber(at)) return NONE;
  return now - at < 86400 ? timeOfDay(at) : day.format(new Date(at * 1000));
}

/** A time with its date and milliseconds. */
export const exactly = (at) => (isNumber(at) ? exact.format(new Date(at * 1000)) : NONE);

const base64 = (bytes) => btoa(Array.from(bytes, (each) => String.fromCharCode(each)).join(""));
const raw = (value) => JSON.rawJSON?.(String(value)) ?? String(value);

/** A value of the hub as JSON, bytes and large integers included. */
export function asJson(value, indent = 0) {
  const written = JSON.stringify(value, (_, each) => {
    if (typeof each === "bigint") return raw(each);
    if (typeof each === "number" && !Number.isFinite(each)) return { $number: String(each) };
    return each instanceof Uint8Array ? { $base64: base64(each) } : each;
  }, indent);
  return written ?? "null";
}

/** As deep as arrays and objects may lie in each other for clients; far deeper ones would be too much for the browser. */
const DEEPEST = 128;

/** How deep arrays and objects lie in each other in a text that may be JSON. */
function depth(text) {
  let [now, deepest, isQuoted] = [0, 0, false];
  for (let at = 0; at < text.length; at++) {
    const each = text[at];
    if (each === '"') isQuoted = !isQuoted;
    else if (isQuoted) at += Number(each === "\\");
    else if (each === "[" || each === "{") deepest = Math.max(deepest, ++now);
    else if (each === "]" || each === "}") now -= 1;
  }
  return deepest;
}

class NoBytes extends Error {}

function fromBase64(text) {
  try {
    return Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
  } catch {
    throw new NoBytes("$base64 is not valid base64.");
  }
}

/** What somebody wrote as JSON: `[value, ""]`, or `[null, why it is none]`. Nothing at all is null. */
export function fromJson(text) {
  if (text.trim() === "") return [null, ""];
  if (depth(text) > DEEPEST) return [null, `Nested too deeply: at most ${DEEPEST} levels of arrays and objects.`];
  try {
    return [JSON.parse(text, (_, each, context) => {
      // A number would not hold it: the text itself does.
      const isLarge = typeof each === "number" && /^-?\d+$/.test(context?.source ?? "") && !Number.isSafeInteger(each);
      if (isLarge) return BigInt(context.source);
      const isBytes = each !== null && typeof each === "object" && Object.keys(each).length === 1 && typeof each.$base64 === "string";
      return isBytes ? fromBase64(each.$base64) : each;
    }), ""];
  } catch (error) {
    return [null, error instanceof NoBytes ? error.message : `Invalid JSON: ${error.message}`];
  }
}

/** A value as JSON for reading, not longer than `most` characters. */
export function pretty(value, most) {
  const text = asJson(value, 2);
  const rest = text.length - most;
  return rest > 0 ? `${text.slice(0, most)}\n… ${count(rest)} more characters` : text;
}

/** A failure reason for people: `no such method` for `no_such_method`. */
export const reasonText = (reason) => reason.replaceAll("_", " ");

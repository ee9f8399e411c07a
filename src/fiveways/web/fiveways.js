/**
 * A Fiveways client for browsers and Node: one connection to a hub, and the same verbs in every protocol.
 *
 *     import { connect } from "/fiveways.js";
 *     const peer = await connect("lrpm+ws://localhost:7500");
 *     console.log(await peer.call("math.add", [2, 3]));
 *
 * One file, no build step, nothing else to load; it needs no `eval`, so that it works under a strict content policy.
 * docs/javascript.md tells how to use it. From top to bottom: failures, values, names and topics, one conversation for
 * each protocol (they all have the methods of `Talk`), one link for each transport, and the peer that holds them
 * together. Times are seconds everywhere, as in the Python client.
 */

const HUB_TIMEOUT = 30; // What a hub gives a call that names no timeout.
const MAX_PENDING = 4096; // Requests of ours that wait for an answer, and requests of others that we work on.
const MAX_UNSENT = 1 << 24; // Bytes that a socket may hold for us before more is refused.
const HIGH_WATER = 1 << 20; // Bytes that a socket may hold before a stream of ours waits.
const MAX_GATHERED = 1 << 24; // Characters of a streamed answer that is wanted, or said, as one array.
const MAX_VARIABLES = 256; // That the hub may set for us.
const MAX_DEPTH = 128;
const LONGEST_NAME = 255;
const LONGEST_SENTENCE = 1000;
const LONGEST_TIMER = 2 ** 31 - 1;

// Failures.

// Whatever a hub's words are looked up in is a Map, or asked for its own keys: an object would know `constructor` too.
const NOT_RUN = ["no such method", "no such callback", "nobody serves it now", "refused", "bad arguments", "overloaded"];
const RAN = new Map([...NOT_RUN, "too large"].map((reason) => [reason, "no"])).set("raised", "yes");

/** How a call failed. It never claims more than is known: `ran` is "no" only if the method was certainly not run. */
export class CallError extends Error {
  /**
   * @param {string} reason one of the reasons in docs/crossing.md: "no such method", "timeout", "raised", ...
   * @param {string} [text] a sentence for people
   * @param {{data?: unknown, name?: string, retryAfter?: number | null, cause?: unknown}} [more]
   */
  constructor(reason, text = "", { data = null, name = "", retryAfter = null, cause } = {}) {
    super(text || name || reason, cause === undefined ? undefined : { cause });
    /** The method's own name for its failure, where it has one. */
    this.name = name || "CallError";
    this.reason = reason;
    /** @type {"no" | "unknown" | "yes"} */
    this.ran = RAN.get(reason) ?? "unknown";
    /** What the method itself gave with its failure. */
    this.data = data;
    /** Seconds after which another try is worth it, or null. */
    this.retryAfter = retryAfter;
  }
}

/** The hub cannot be reached, or the connection is over for good. */
export class ConnectionLost extends Error {
  constructor(text) {
    super(text);
    this.name = new.target.name;
  }
}

/** The hub does not let us in; nobody tries again. */
export class Refused extends ConnectionLost {}

/** Thrown by a method of ours: its call fails in these words. */
export class Fail extends Error {
  /** @param {string} text @param {{name?: string, data?: unknown, retryAfter?: number | null}} [more] */
  constructor(text, { name = "", data = null, retryAfter = null } = {}) {
    super(text);
    this.name = "Fail";
    /** A name of the failure's own, such as `shop.err.sold_out`. */
    this.own = name;
    this.data = data;
    this.retryAfter = retryAfter;
  }
}

/** Returned by a method of ours: a value with attachments. */
export class Reply {
  /** @param {unknown} value @param {Uint8Array[]} [attachments] */
  constructor(value, attachments = []) {
    this.value = value;
    this.attachments = attachments;
  }
}

/** The hub said what makes no sense; the link is closed, and another one opened. */
class HubFault extends Error {}

/** A text that is no JSON as the hub has it. */
class NotJson extends Error {}

/** A value that cannot be written, or JSON that stands for none. */
class BadValue extends Error {}

const isText = (value) => typeof value === "string";
const isMap = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
const isCount = (value) => Number.isSafeInteger(value) && value >= 0;
const textOr = (value, other) => (isText(value) ? value : other);
const cut = (text) => (text.length > LONGEST_SENTENCE ? `${text.slice(0, LONGEST_SENTENCE)}...` : text);
const writable = (text) => cut(String(text)).replace(/\p{Surrogate}/gu, "?");
const millis = (seconds) => Math.max(1, Math.round(seconds * 1000));
const after = (seconds, run) => setTimeout(run, Math.min(seconds * 1000, LONGEST_TIMER));
const now = () => performance.now() / 1000;
const withQuery = (url, query) => `${url}${url.includes("?") ? "&" : "?"}${query}`;

/** Give what `read` returns to `then`; if it stands for no value, say to `otherwise` why. */
function reading(read, then, otherwise) {
  let value;
  try {
    value = read();
  } catch (error) {
    if (!(error instanceof BadValue)) throw error;
    otherwise(error.message);
    return;
  }
  then(value);
}

/** Return what `read` gives, or null: what is told besides must arrive, though a part of it cannot be read. */
function readable(read) {
  try {
    return read();
  } catch {
    return null;
  }
}

/** A promise that is settled from outside; one that nobody waits for does not count as unhandled. */
function deferred() {
  const made = {};
  made.promise = new Promise((resolve, reject) => Object.assign(made, { resolve, reject }));
  made.promise.catch(() => {});
  return made;
}

// Values. JSON lacks bytes, NaN and the infinities: there they are markers, and a real map that looks like a marker has
// one `$` more. Integers that a number cannot hold exactly are BigInts, both ways.

const MARKER = /^\$+(?:base64|base91|number)$/;
const LONE = /\p{Surrogate}/u;
const BIG = `${Math.random().toString(36).slice(2)}:`; // Nobody can know it, so that no text is taken for a number.
const MAX_DIGITS = 4300; // Of an integer: what Python bears.
const TOKENS = /"[^"\\]*(?:\\[^][^"\\]*)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;

/** Return the value that a text spells, markers untouched; NotJson if it is not JSON, judged as the hub does. */
function parse(text, room = MAX_DEPTH) {
  if (!/^["[{\-0-9tfn]/.test(text) || /[ \t\n\r]$/.test(text)) throw new NotJson("it is no JSON");
  const hasBig = /\d{16}/.test(text);
  let value;
  try {
    value = JSON.parse(hasBig ? text.replace(TOKENS, markBig) : text);
  } catch (error) {
    throw new NotJson(`it is no JSON: ${error.message}`);
  }
  return checked(value, hasBig, room);
}

function markBig(token) {
  return /^-?\d{16,}$/.test(token) && !Number.isSafeInteger(Number(token)) ? `"${BIG}${token}"` : token;
}

function bigOf(digits) {
  if (digits.length > MAX_DIGITS + digits.startsWith("-")) throw new NotJson("it holds a number that is too large");
  return BigInt(digits);
}

function checked(value, hasBig, room) {
  if (isText(value)) {
    if (hasBig && value.startsWith(BIG)) return bigOf(value.slice(BIG.length));
    if (LONE.test(value)) throw new NotJson("it holds half of a surrogate pair");
  } else if (typeof value === "number") {
    if (!Number.isFinite(value)) throw new NotJson("it holds a number that is too large");
  } else if (typeof value === "object" && value !== null) {
    if (room === 0) throw new NotJson(`it is nested deeper than ${MAX_DEPTH}`);
    for (const key of Object.keys(value)) {
      if (LONE.test(key)) throw new NotJson("it holds half of a surrogate pair");
      value[key] = checked(value[key], hasBig, room - 1);
    }
  }
  return value;
}

/** Replace markers by what they stand for; BadValue for a marker with a content that it cannot have. */
function unmark(value) {
  if (Array.isArray(value)) return value.map(unmark);
  if (!isMap(value)) return value;
  const keys = Object.keys(value);
  if (keys.length !== 1 || !MARKER.test(keys[0])) {
    for (const key of keys) value[key] = unmark(value[key]);
    return value;
  }
  const [key] = keys;
  const content = value[key];
  if (key.startsWith("$$")) return { [key.slice(1)]: unmark(content) };
  if (!isText(content)) throw new BadValue(`${key} without a text`);
  if (key === "$base64") return fromBase64(content);
  if (key === "$base91") return fromBase91(content);
  if (!["NaN", "Infinity", "-Infinity"].includes(content)) throw new BadValue("$number is none of those there are");
  return Number(content);
}

/** Write a value as JSON, its bytes as `mark` says; BadValue if JSON, as the hub has it, cannot hold it. */
function write(value, mark = markBase64, room = MAX_DEPTH) {
  if (value === undefined || value === null) return "null";
  switch (typeof value) {
    case "boolean":
    case "bigint":
      return String(value);
    case "number":
      if (!Number.isFinite(value)) return `{"$number":"${value}"}`;
      return Object.is(value, -0) ? "-0.0" : String(value);
    case "string":
      if (LONE.test(value)) throw new BadValue("a text holds half of a surrogate pair");
      return JSON.stringify(value);
    case "object":
      break;
    default:
      throw new BadValue(`a ${typeof value} cannot be sent`);
  }
  const bytes = bytesOf(value);
  if (bytes) return mark(bytes);
  if (room === 0) throw new BadValue(`it is nested deeper than ${MAX_DEPTH}`);
  if (typeof value.toJSON === "function") return write(value.toJSON(), mark, room - 1);
  if (Array.isArray(value)) return `[${Array.from(value, (each) => write(each, mark, room - 1)).join(",")}]`;
  if (value instanceof Map || value instanceof Set || typeof value.then === "function") {
    throw new BadValue(`a ${value.constructor.name} cannot be sent: make it an object or an array`);
  }
  const keys = Object.keys(value).filter((key) => value[key] !== undefined);
  const escape = keys.length === 1 && MARKER.test(keys[0]) ? "$" : "";
  return `{${keys.map((key) => `${write(escape + key)}:${write(value[key], mark, room - 1)}`).join(",")}}`;
}

/** Return what UMQ carries: JSON, but a string that nobody could take for JSON goes as it is. */
function toText(value) {
  if (!isText(value)) return write(value);
  const quoted = write(value);
  try {
    parse(value);
    return quoted;
  } catch {
    return value;
  }
}

/** Return the value of a text in UMQ; BadValue for JSON that stands for nothing. */
function fromText(text) {
  let value;
  try {
    value = parse(text);
  } catch {
    return text;
  }
  return unmark(value);
}

const markBase64 = (bytes) => `{"$base64":"${toBase64(bytes)}"}`;
const markBase91 = (bytes) => `{"$base91":"${toBase91(bytes)}"}`;

function bytesOf(value) {
  if (value instanceof ArrayBuffer) return new Uint8Array(value);
  if (!ArrayBuffer.isView(value)) return null;
  return new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
}

function toBase64(bytes) {
  let text = "";
  for (let at = 0; at < bytes.length; at += 8192) text += String.fromCharCode(...bytes.subarray(at, at + 8192));
  return btoa(text);
}

function fromBase64(text) {
  let raw;
  try {
    raw = atob(text);
  } catch {
    throw new BadValue("$base64 holds what is no base64");
  }
  // Two spellings of the same bytes would be two different messages.
  if (btoa(raw) !== text) throw new BadValue("$base64 does not encode back to itself");
  return Uint8Array.from(raw, (each) => each.charCodeAt(0));
}

const PRINTABLE = Array.from({ length: 93 }, (_, at) => String.fromCharCode(33 + at));
const ALPHABET = PRINTABLE.filter((char) => char !== '"' && char !== "\\");
const DIGITS = new Map(ALPHABET.map((char, at) => [char, at]));

function toBase91(bytes) {
  const pairs = [];
  let bits = 0;
  let count = 0;
  const put = (group) => pairs.push(ALPHABET[group % 91], ALPHABET[Math.floor(group / 91)]);
  for (const byte of bytes) {
    bits |= byte << count;
    count += 8;
    if (count <= 13) continue;
    const isWide = (bits & 0x1fff) <= 88; // Two characters hold 89 values more than 13 bits have.
    put(bits & (isWide ? 0x3fff : 0x1fff));
    bits >>= isWide ? 14 : 13;
    count -= isWide ? 14 : 13;
  }
  if (count > 0) {
    pairs.push(ALPHABET[bits % 91]);
    if (count > 7 || bits > 90) pairs.push(ALPHABET[Math.floor(bits / 91)]);
  }
  return pairs.join("");
}

function fromBase91(text) {
  const bytes = [];
  let bits = 0;
  let count = 0;
  let low = -1;
  for (const char of text) {
    const digit = DIGITS.get(char);
    if (digit === undefined) throw new BadValue("$base91 holds a foreign character");
    if (low < 0) {
      low = digit;
      continue;
    }
    const group = low + digit * 91;
    low = -1;
    bits |= group << count;
    count += (group & 0x1fff) > 88 ? 13 : 14;
    for (; count > 7; count -= 8, bits >>= 8) bytes.push(bits & 0xff);
  }
  if (low >= 0) bytes.push((bits | (low << count)) & 0xff);
  const made = Uint8Array.from(bytes);
  for (const each of [made, made.subarray(0, -1)]) if (toBase91(each) === text) return each.slice();
  throw new BadValue("$base91 does not encode back to itself");
}

// Names of methods. Any spelling will do: they are cut at `.` and `:` and folded, as the hub folds them.

/** Bidirectional control characters: with them, a name can be displayed as another one. */
const DIRECTION = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/;
const HUMPS = /(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])/g;
const utf8 = (text) => new TextEncoder().encode(text);
const bytesIn = (text) => utf8(text).length;

/** Return the folded form of a name, such as `account.get_balance`; BadValue if it names nothing. */
function fold(name, separators = /[.:]/) {
  if (!isText(name) || !name) throw new BadValue("the name is empty");
  if (bytesIn(name) > LONGEST_NAME) throw new BadValue(`the name is longer than ${LONGEST_NAME} bytes`);
  const text = name.normalize("NFC");
  if (/[*+#\x00-\x1f\x7f-\x9f]|\p{Surrogate}/u.test(text) || DIRECTION.test(text)) {
    throw new BadValue(`the name ${JSON.stringify(name)} holds what no method's name may`);
  }
  const segments = text.split(separators).map((segment) => {
    if (!segment) throw new BadValue(`the name ${JSON.stringify(name)} has an empty segment`);
    if (/[:/]/.test(segment)) throw new BadValue(`the segment ${JSON.stringify(segment)} holds a separator of others`);
    const lower = segment.replace(HUMPS, "_").replace(/[A-Z]/g, (char) => char.toLowerCase());
    return lower.replace(/[- ]/g, "_").normalize("NFC");
  });
  const folded = segments.join(".");
  if (bytesIn(folded) > LONGEST_NAME) throw new BadValue(`the name is longer than ${LONGEST_NAME} bytes`);
  return folded;
}

/** Return a name, or a prefix that ends in a separator, as a protocol writes it: untouched where that is possible. */
function spellName(name, { alphabet, separator }) {
  if (!name || !alphabet || alphabet.test(name)) return name;
  const isPrefix = /[.:]$/.test(name);
  const written = fold(isPrefix ? name.slice(0, -1) : name).replaceAll(".", separator) + (isPrefix ? separator : "");
  if (!alphabet.test(written)) throw new BadValue(`the name ${JSON.stringify(name)} has letters that are not allowed`);
  return written;
}

// Topics. A topic is a list of segments; users write it dotted, with `%HH` for what is special in a segment.

const hex = (bytes, before = "") => Array.from(bytes, (byte) => before + byte.toString(16).padStart(2, "0")).join("");
const hexOf = (text, before) => hex(utf8(text), before);

function fromHex(digits) {
  const bytes = Uint8Array.from(digits.match(/../g), (pair) => parseInt(pair, 16));
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw new BadValue("the topic has escapes that are not UTF-8");
  }
}

const DOTTED = {
  separator: ".",
  empty: "",
  write: (text) => text.replace(/[%.*\x00-\x1f\x7f-\x9f]/g, (char) => hexOf(char, "%").toUpperCase()),
  read(text) {
    if (/%(?![0-9A-Fa-f]{2})/.test(text)) throw new BadValue("the topic has '%' without two hexadecimal digits");
    return text.replace(/(?:%[0-9A-Fa-f]{2})+/g, (found) => fromHex(found.replaceAll("%", "")));
  },
};

/** Make the style of a protocol whose topics have no more than `letters` and `_`; other bytes are `__hh`. */
function narrow(separator, letters, digits) {
  const toWrite = new RegExp(`_(?![${letters}])|(?<![${letters}])_|[^${letters}_]`, "gu");
  const wellFormed = new RegExp(`^(?:[${letters}]|__[${digits}]{2}|_(?!_))*$`);
  const escapes = new RegExp(`(?:__[${digits}]{2})+`, "g");
  return {
    separator,
    empty: "__00",
    write: (text) => text.replace(toWrite, (found) => hexOf(found, "__")),
    read(text) {
      if (!wellFormed.test(text)) throw new BadValue(`the topic ${JSON.stringify(text)} is not well escaped`);
      return text.replace(escapes, (found) => fromHex(found.replaceAll("_", "")));
    },
  };
}

const LRPM_TOPICS = narrow(".", "a-z0-9", "0-9a-f");
const NQ_TOPICS = narrow("-", "A-Za-z0-9", "0-9A-Fa-f");
const isNuls = (text) => /^\0*$/.test(text);

/** Rewrite a topic, or with `wild` a pattern, from one style to another; BadValue if it is none. */
function rewriteTopic(text, from, to, wild = false) {
  if (!isText(text) || !text) throw new BadValue("the topic is empty");
  if (!wild && text.includes("*")) throw new BadValue(`the topic ${JSON.stringify(text)} holds the wildcard '*'`);
  if (text.includes("**")) throw new BadValue(`the pattern ${JSON.stringify(text)} has '**'`);
  const plain = [];
  const written = text.split(from.separator).map((segment) => {
    if (from.empty && !segment) throw new BadValue("the topic has an empty segment");
    const pieces = segment.split("*").map((piece) => from.read(piece));
    if (pieces.length > 1) {
      plain.push(pieces.join("*"));
      return pieces.map((piece) => to.write(piece)).join("*");
    }
    // A NUL is written like an empty segment: with one more of them, a segment of nothing but NULs is told from it.
    const read = from.empty && isNuls(pieces[0]) ? pieces[0].slice(1) : pieces[0];
    plain.push(read);
    return (isNuls(read) ? to.empty : "") + to.write(read);
  });
  const whole = plain.join(".");
  if (!whole) throw new BadValue("the topic is empty");
  if (LONE.test(whole)) throw new BadValue("the topic holds half of a surrogate pair");
  if (DIRECTION.test(whole)) throw new BadValue(`the topic holds ${JSON.stringify(DIRECTION.exec(whole)[0])}`);
  if (bytesIn(whole) > LONGEST_NAME) throw new BadValue(`the topic is longer than ${LONGEST_NAME} bytes`);
  return written.join(to.separator);
}

/** What the tests look at: how values, names and topics are written. */
export const wire = {
  parse,
  unmark,
  write,
  toText,
  fromText,
  toBase91,
  fromBase91,
  fold,
  rewriteTopic,
  topics: { umq: DOTTED, lrpm: LRPM_TOPICS, nq: NQ_TOPICS },
};

// Conversations. Each says the verbs of `Talk` in its protocol and tells its listener, the peer, what the hub says:
//
//     welcome(session)  parted(text, isDenied)                          the beginning and the end
//     settled(id, value, attachments)  failed(id, error)                answers to our requests
//     part(id, value)  ended(id)  progress(id, note)                    and what comes before them
//     event(name, event)  topicClosed(name)  variable(name, value)      what we follow
//     called(talk, call)  cancelled(id)                                 what others want of us
//
// `id` names a request of ours, `name` a subscription; both are the peer's. What cannot be said throws a CallError or a
// BadValue before anything was sent; a hub that breaks the protocol makes `receive` throw a HubFault.

class Talk {
  /** How this protocol writes names. */
  static names = { alphabet: null, separator: ":" };
  static topics = DOTTED;
  /** The conversation goes on over another link when one is lost. */
  lasts = false;
  /** The hub is told how long a call may take, and says itself when that is over. */
  tellsTimeouts = false;

  constructor(settings, listener) {
    this.settings = settings;
    this.listener = listener;
    this.link = null;
  }

  /** Begin, or go on, over a link. */
  attach(link) {
    this.link = link;
    this.start();
  }

  /** Know that the link is gone. */
  detach() {
    this.link = null;
  }

  /** Ask for a sign of life. */
  nudge(id) {
    this.call(id, "hub.ping", null, {});
  }

  publish(id, topic, data, { retain = false, attachments = [] }) {
    const given = { topic: this.topic(topic), data, ...(retain ? { retain } : {}) };
    this.call(id, "hub.publish", given, { attachments });
  }

  register(id, name, options) {
    this.call(id, "hub.register", { name: this.spelled(name), ...options }, {});
  }

  unregister(id, name) {
    this.call(id, "hub.unregister", { name: this.spelled(name) }, {});
  }

  /** Return a topic or pattern, which users write dotted, as this protocol writes it. */
  topic(text, wild = false) {
    return rewriteTopic(text, DOTTED, this.constructor.topics, wild);
  }

  /** Return a topic of the hub's as users write it. */
  plainTopic(text) {
    try {
      return rewriteTopic(text, this.constructor.topics, DOTTED);
    } catch {
      return "";
    }
  }

  spelled(name) {
    return spellName(name, this.constructor.names);
  }

  /** Return what a call is to: the token of a callback, or a name as this protocol writes it. */
  target(name) {
    if (isText(name) && /^callback[.:]/.test(name)) return { token: name.slice("callback.".length).toLowerCase() };
    try {
      fold(name);
      return { name: this.spelled(name) };
    } catch (error) {
      throw new CallError("no such method", error.message);
    }
  }

  /** Send a text, or bytes; "too large" for what the hub would close the link for. */
  put(data) {
    const { maxText } = this.settings;
    if (isText(data) && data.length * 3 > maxText && (data.length > maxText || bytesIn(data) > maxText)) {
      throw new CallError("too large", `a message has at most ${maxText} bytes`);
    }
    if (this.link !== null && this.link.waiting > MAX_UNSENT) {
      throw new CallError("overloaded", "the hub does not read what was sent before");
    }
    this.link?.send(data);
  }

  /** Give what `read` returns to `then`; a request of ours whose answer nobody can read has failed. */
  tell(id, read, then) {
    const failed = (why) => this.listener.failed(id, new CallError("raised", `the answer cannot be read: ${why}`));
    reading(read, then, failed);
  }

  /** Pass on an event, as `read` gives it; one that cannot be read counts as missed. */
  happen(name, read) {
    const happened = (event) => this.listener.event(name, event);
    reading(read, happened, () => this.listener.missed(name, 1));
  }

  /** Let a call of ours be run; it fails at once if nobody can read its body. */
  take(call, read) {
    const called = (body) => this.listener.called(this, { ...call, body });
    reading(read, called, (text) => this.fail(call.id, { reason: "bad arguments", text }));
  }
}

/** Fill the places of a text: `{0}` is the code, `{1}` the first argument; what is missing is empty. */
function fill(text, codes, args) {
  const numbered = (name) => (/^\d{1,4}$/.test(name) ? (args[name - 1] ?? "") : "");
  const place = (_, name) => (Object.hasOwn(codes, name) ? codes[name] : numbered(name));
  return text.replace(/\{(\w+)\}/g, place).slice(0, 1 << 16);
}

/** Return a text so that `fill` gives it back: there is no way to escape a brace, but an argument may hold it. */
function template(text, args = []) {
  if (text.includes("{")) return { text: `{${args.length + 1}}`, args: [...args, text] };
  return args.length ? { text, args } : { text };
}

function checkedBytes(attachments = []) {
  return Array.from(attachments, (each) => {
    const bytes = bytesOf(each);
    if (!bytes) throw new BadValue("an attachment is a Uint8Array");
    return bytes;
  });
}

// LRPM in JSON: arrays of a kind, an id, what the kind needs, and a map of extras.

const LRPM_KINDS = {
  ...{ GOODBYE: 1, HELLO: 2, PROVE: 3, PROOF: 4, ERROR: 20, CANCEL: 21, CALL: 40, RESULT: 41, EVENT: 60, PUBLISH: 61 },
  ...{ PUBLISHED: 62, SUBSCRIBE: 63, SUBSCRIBED: 64, UNSUBSCRIBE: 65, UNSUBSCRIBED: 66 },
};
const LRPM_FIRST_ID = 256; // Some decoders take smaller numbers for another type.
const LRPM_NUMBERS = new Map(Object.entries(LRPM_KINDS));
const LRPM_REASONS = new Map(Object.entries({
  "hub.err.no_such_procedure": "no such method",
  "hub.err.no_such_callback": "no such callback",
  "hub.err.unavailable": "nobody serves it now",
  "hub.err.denied": "refused",
  "hub.err.bad_arguments": "bad arguments",
  "hub.err.busy": "overloaded",
  "hub.err.too_large": "too large",
  "hub.err.timeout": "timeout",
  "hub.err.lost": "lost",
  ".err.cancelled": "cancelled",
  "app.err.failed": "raised",
}));
// A method of ours that did not run says so by `callee.err.*`: of a callee, the hub takes `hub.err.*` for an exception.
const LRPM_URIS = new Map(Array.from(LRPM_REASONS, ([uri, reason]) => {
  return [reason, RAN.get(reason) === "no" ? uri.replace(/^hub\./, "callee.") : uri];
}));
const URI = /^[a-z0-9_]+(?:\.[a-z0-9_]+)*$/;

class Lrpm extends Talk {
  static names = { alphabet: /^[a-z0-9_]+(?:\.[a-z0-9_]+)*\.?$/, separator: "." };
  static topics = LRPM_TOPICS;
  tellsTimeouts = true;
  #isOpen = false;
  #following = new Map(); // the hub's number of a subscription -> our name
  #numbers = new Map(); // and back
  #asking = new Map(); // requests to subscribe -> the name
  #asked = new Map(); // calls of others -> how they are to be answered

  start() {
    const { token, identity } = this.settings;
    this.#say(LRPM_KINDS.HELLO, identity ? { identity } : token ? { token } : null, {});
  }

  goodbye() {
    this.#say(LRPM_KINDS.GOODBYE, ".bye.normal", {});
  }

  complain(text) {
    this.#say(LRPM_KINDS.GOODBYE, ".err.protocol", { text });
  }

  call(id, name, body, { timeout, stream, progress, attachments }) {
    const { token, name: uri } = this.target(name);
    const meta = {};
    if (timeout !== undefined) meta.timeout = millis(timeout);
    if (stream) meta.stream = true;
    if (progress) meta.progress = true;
    const given = this.#attached(meta, attachments);
    this.#say(LRPM_KINDS.CALL, id + LRPM_FIRST_ID, token === undefined ? uri : `callback.${token}`, body, given);
  }

  cancel(id) {
    this.#asking.delete(id);
    this.#say(LRPM_KINDS.CANCEL, id + LRPM_FIRST_ID, {});
  }

  publish(id, topic, data, { retain, attachments }) {
    const meta = this.#attached(retain ? { retain: true } : {}, attachments);
    this.#say(LRPM_KINDS.PUBLISH, id + LRPM_FIRST_ID, this.topic(topic), data, meta);
  }

  subscribe(id, name, pattern, whenFull) {
    const meta = whenFull ? { when_full: whenFull } : {};
    this.#say(LRPM_KINDS.SUBSCRIBE, id + LRPM_FIRST_ID, this.topic(pattern, true), meta);
    this.#asking.set(id, name);
  }

  unsubscribe(id, name) {
    const number = this.#numbers.get(name);
    if (number === undefined) return;
    this.#unfollow(number);
    this.#say(LRPM_KINDS.UNSUBSCRIBE, id + LRPM_FIRST_ID, number, {});
  }

  // Our answers.

  answer(id, value, attachments) {
    this.#say(LRPM_KINDS.RESULT, id, value, this.#attached({}, attachments));
    this.#asked.delete(id);
  }

  async part(id, value) {
    const asked = this.#asked.get(id);
    this.#say(LRPM_KINDS.RESULT, id, value, { part: asked.parts + 1 });
    asked.parts += 1;
    await this.link?.drained();
  }

  end(id) {
    this.#say(LRPM_KINDS.RESULT, id, null, { part: this.#asked.get(id).parts + 1, last: true, empty: true });
    this.#asked.delete(id);
  }

  note(id, value, text) {
    const meta = { progress: true, ...(text ? template(text) : {}) };
    if (this.#asked.get(id)?.progress) this.#say(LRPM_KINDS.RESULT, id, value, meta);
  }

  fail(id, { reason, text = "", name = "", data = null, retryAfter = null }) {
    // A method that ran must not pass for one that did not.
    const isOwn = reason === "raised" && URI.test(name) && !/^(?:hub|callee\.err)\./.test(name);
    const meta = retryAfter === null ? {} : { retry_after: millis(retryAfter) };
    if (data !== null) meta.text = text;
    const body = data ?? (text || null);
    this.#say(LRPM_KINDS.ERROR, LRPM_KINDS.CALL, id, isOwn ? name : LRPM_URIS.get(reason), body, meta);
    this.#asked.delete(id);
  }

  // What the hub says.

  receive(data) {
    if (!isText(data)) throw new HubFault("a binary frame, where JSON is text");
    let message;
    try {
      message = parse(data, MAX_DEPTH + 1);
    } catch (error) {
      throw new HubFault(`a frame that cannot be read: ${error.message}`);
    }
    if (!Array.isArray(message)) throw new HubFault("a frame that is no array");
    const [written, ...fields] = message;
    const kind = isText(written) ? LRPM_NUMBERS.get(written) : written;
    const isEarly = [LRPM_KINDS.HELLO, LRPM_KINDS.PROVE].includes(kind);
    if (kind === LRPM_KINDS.GOODBYE) this.#onGoodbye(...fields);
    else if (isEarly === this.#isOpen) throw new HubFault(`a message of kind ${JSON.stringify(written)} now`);
    else if (kind === LRPM_KINDS.HELLO) this.#onHello(fields[0]);
    else if (kind === LRPM_KINDS.PROVE) this.#onProve(fields[0]);
    else if (kind === LRPM_KINDS.EVENT) this.#onEvent(...fields);
    else if (kind === LRPM_KINDS.ERROR) this.#onError(number(fields[1]) - LRPM_FIRST_ID, ...fields.slice(2));
    else this.#onOther(kind, number(fields[0]), ...fields.slice(1));
  }

  #onOther(kind, wireId, one, two, three) {
    const id = wireId - LRPM_FIRST_ID;
    if (kind === LRPM_KINDS.RESULT) this.#onResult(id, one, metaOf(two));
    else if (kind === LRPM_KINDS.CALL) this.#onCall(wireId, one, two, metaOf(three));
    else if (kind === LRPM_KINDS.CANCEL) this.listener.cancelled(wireId);
    else if (kind === LRPM_KINDS.SUBSCRIBED) this.#onSubscribed(id, number(one));
    else if (kind === LRPM_KINDS.PUBLISHED || kind === LRPM_KINDS.UNSUBSCRIBED) this.listener.settled(id, null, []);
    else throw new HubFault(`a message of the unknown kind ${JSON.stringify(kind)}`);
  }

  #onGoodbye(reason, meta) {
    const text = textOr(metaOf(meta).text, "") || (reason === ".bye.normal" ? "" : cut(textOr(reason, "")));
    if (this.#isOpen) this.goodbye();
    this.listener.parted(text, reason === ".err.auth");
  }

  #onHello(body) {
    this.#isOpen = true;
    this.listener.welcome(isMap(body) ? textOr(body.session, "") : "");
  }

  #onProve(body) {
    const { secret } = this.settings;
    if (!secret) {
      this.listener.parted("the hub asks for a proof of who we are: give `identity` and `secret`", true);
    } else if (!isMap(body) || body.method !== "hmac-sha256" || !isText(body.nonce)) {
      throw new HubFault("the hub asks for a proof other than hmac-sha256, the only one that we know");
    } else {
      // If it cannot be made, as on pages that are not served safely, nobody lets us in.
      const prove = (mac) => this.#say(LRPM_KINDS.PROOF, { mac }, {});
      proof(secret, body.nonce).then(prove, (error) => this.listener.parted(`no proof: ${error.message}`, true));
    }
  }

  #onResult(id, body, meta) {
    if (meta.progress === true) {
      const [code, args] = [textOr(meta.code, ""), Array.isArray(meta.args) && meta.args.every(isText) ? meta.args : []];
      const note = { text: fill(textOr(meta.text, ""), { 0: code }, args), kind: textOr(meta.kind, "note"), code };
      this.tell(id, () => unmark(body), (value) => this.listener.progress(id, { value, ...note }));
    } else if (isCount(meta.part) && meta.part > 0) {
      const isEmpty = meta.last === true && meta.empty === true;
      if (!isEmpty) this.tell(id, () => unmark(body), (value) => this.listener.part(id, value));
      if (meta.last === true) this.listener.ended(id);
    } else {
      this.tell(id, () => unmark(body), (value) => this.listener.settled(id, value, attachmentsOf(meta)));
    }
  }

  #onError(id, uri, body, given) {
    if (!isText(uri)) throw new HubFault("an error without a name");
    const meta = metaOf(given);
    const hasText = isText(meta.text);
    const more = { data: null, name: "", retryAfter: isCount(meta.retry_after) ? meta.retry_after / 1000 : null };
    let text = textOr(meta.text, "");
    if (isText(body) && !hasText) text = body;
    else more.data = readable(() => unmark(body ?? null));
    let reason = LRPM_REASONS.get(uri);
    if (reason === undefined && uri.startsWith("hub.err.")) {
      reason = "lost"; // a reason of the hub that we do not know does not tell whether the method ran
      text ||= cut(uri);
    }
    if (reason === undefined) more.name = cut(uri);
    this.#asking.delete(id);
    this.listener.failed(id, new CallError(reason ?? "raised", text, more));
  }

  #onSubscribed(id, subscription) {
    const name = this.#asking.get(id);
    if (name === undefined) {
      // Nobody wants it any more.
      this.#say(LRPM_KINDS.UNSUBSCRIBE, this.listener.newId() + LRPM_FIRST_ID, subscription, {});
      return;
    }
    this.#asking.delete(id);
    this.#following.set(subscription, name);
    this.#numbers.set(name, subscription);
    this.listener.settled(id, null, []);
  }

  #unfollow(subscription) {
    this.#numbers.delete(this.#following.get(subscription));
    this.#following.delete(subscription);
  }

  #onEvent(_publication, subscription, body, given) {
    const name = this.#following.get(number(subscription));
    if (name === undefined) return;
    const meta = metaOf(given);
    if (meta.closed === true) {
      this.#unfollow(subscription);
      this.listener.topicClosed(name);
      return;
    }
    const topic = isText(meta.topic) ? this.plainTopic(meta.topic) : "";
    const missed = isCount(meta.missed) ? meta.missed : 0;
    this.happen(name, () => ({ topic, data: unmark(body), missed, attachments: attachmentsOf(meta) }));
  }

  #onCall(id, uri, body, meta) {
    if (this.#asked.has(id)) throw new HubFault(`a call under the id of another one, ${id}`);
    if (!isText(uri)) throw new HubFault("a call without a name");
    const [stream, progress] = [meta.stream === true, meta.progress === true];
    this.#asked.set(id, { progress, parts: 0 });
    const token = uri.startsWith("callback.") ? uri.slice("callback.".length) : null;
    const call = { id, name: uri, token, attachments: attachmentsOf(meta), wantsParts: stream };
    this.take(call, () => unmark(body));
  }

  #say(...fields) {
    this.put(write(fields, markBase64, MAX_DEPTH + 1));
  }

  #attached(meta, attachments) {
    const list = checkedBytes(attachments).map(toBase64);
    return list.length ? { ...meta, attachments: list } : meta;
  }
}

function number(value) {
  if (!isCount(value)) throw new HubFault("a number was expected");
  return value;
}

const metaOf = (value) => (isMap(value) ? value : {});

/** Return the attachments of a message in LRPM; null for one that did not arrive. */
function attachmentsOf(meta) {
  if (!Array.isArray(meta.attachments)) return [];
  return meta.attachments.map((each) => (isText(each) ? readable(() => fromBase64(each)) : null));
}

async function proof(secret, nonce) {
  const how = { name: "HMAC", hash: "SHA-256" };
  const key = await crypto.subtle.importKey("raw", utf8(secret), how, false, ["sign"]);
  return hex(new Uint8Array(await crypto.subtle.sign("HMAC", key, utf8(nonce))));
}

// UMQ 1.0.0: a type, an identifier, a line feed, a payload; attachments are binary frames that follow in order.

const UMQ_CODES = {
  ...{ raised: 6, "no such method": 7, "no such callback": 8, timeout: 9, lost: 10, "nobody serves it now": 11 },
  ...{ refused: 12, "bad arguments": 13, overloaded: 14, "too large": 15, cancelled: 16 },
};
const UMQ_REASONS = new Map(Object.entries(UMQ_CODES).map(([reason, code]) => [code, reason]));
const MAX_ATTACHMENT = 1 << 24; // A browser sends each as one frame, of which a hub takes no larger ones.
const MAX_EXPECTED = 4096;

class Umq extends Talk {
  #isOpen = false;
  #following = new Set(); // our subscriptions; their names are the ids of the topics
  #asking = new Map(); // requests to subscribe -> the name
  #expected = []; // messages whose attachments have not all come, and those that must not overtake them

  start() {
    const { token } = this.settings;
    // Bare, a token such as 12345 would be read as a number.
    this.put(`H1.0.0\n${token && toText(token) !== token ? write({ token }) : token}`);
  }

  goodbye() {
    this.put("E\n11 goodbye");
  }

  complain(text) {
    this.put(`E\n2 Message parse error: ${text}`);
  }

  detach() {
    super.detach();
    this.#expected = [];
  }

  call(id, name, body, { attachments }) {
    const { token, name: method } = this.target(name);
    const head = token === undefined ? `M${id}\n${method}` : `C${id}\n${token}`;
    this.#say(`${head}\n${toText(body ?? null)}`, attachments);
  }

  /** UMQ cannot say it: the late answer will find nobody. */
  cancel(id) {
    this.#following.delete(this.#asking.get(id));
    this.#asking.delete(id);
  }

  subscribe(id, name, pattern, whenFull) {
    const options = whenFull ? { when_full: whenFull } : {};
    // An envelope tells the topic, and how many events were missed.
    this.call(id, "hub.subscribe", { topic: this.topic(pattern, true), id: name, envelope: true, ...options }, {});
    this.#following.add(name);
    this.#asking.set(id, name);
  }

  unsubscribe(_id, name) {
    if (this.#following.delete(name)) this.put(`U${name}`);
  }

  // Our answers.

  answer(id, value, attachments) {
    this.#say(`R${id}\n${toText(value ?? null)}`, attachments);
  }

  note() {} // UMQ has no word for it, and nobody misses it

  fail(id, { reason, text = "", name = "", data = null }) {
    if (reason !== "raised") {
      this.put(`${reason === "cancelled" ? "E" : "!"}${id}\n${UMQ_CODES[reason]} ${text || reason}`);
      return;
    }
    const own = text || name || (data === null ? "" : cut(toText(data)));
    // A text that looks like one of the hub's gets the code of an exception before it, which readers take off.
    const isPlain = own && !/^(?:6|9|10|16)(?: |$)/.test(own);
    this.put(`E${id}\n${isPlain ? own : `${UMQ_CODES.raised} ${own || reason}`}`);
  }

  // What the hub says.

  receive(data) {
    if (!isText(data)) {
      this.#attachment(data);
      return;
    }
    let [head, payload] = divide(data);
    let count = 0;
    if (head.startsWith("A")) {
      count = Number(head.slice(1));
      if (!/^A\d{1,9}$/.test(head) || count > MAX_EXPECTED) throw new HubFault("a bad count of attachments");
      [head, payload] = divide(payload);
      if (head.startsWith("A")) throw new HubFault("a count of attachments inside another");
    }
    const [kind, id] = [head[0], head.slice(1)];
    if (kind === "-" && !id) this.#attachment(null);
    else if ((kind === "E" || kind === "!") && !id) this.#onFatal(payload);
    else if (!this.#isOpen) this.#onWelcome(kind, id, payload);
    else if (id) this.#expect(count, `${kind}${id}`, (attachments) => this.#onMessage(kind, id, payload, attachments));
    else throw new HubFault(`a message of the unknown kind ${JSON.stringify(cut(head))}`);
  }

  /** Let a message be heard when its attachments are there; what is about the same thing does not overtake it. */
  #expect(count, about, heard) {
    if (count === 0 && !this.#expected.some((each) => each.about === about)) {
      heard([]);
      return;
    }
    if (this.#expected.length >= MAX_EXPECTED) throw new HubFault("too many attachments that did not come");
    this.#expected.push({ count, about, heard, attachments: [] });
  }

  #attachment(bytes) {
    const owner = this.#expected.find((each) => each.attachments.length < each.count);
    if (!owner) throw new HubFault("a binary frame that nobody announced");
    owner.attachments.push(bytes);
    const whole = (each) => each.attachments.length === each.count;
    for (let at = 0; at < this.#expected.length; ) {
      const each = this.#expected[at];
      const isNext = this.#expected.findIndex(({ about }) => about === each.about) === at;
      if (!whole(each) || !isNext) {
        at += 1;
        continue;
      }
      this.#expected.splice(at, 1);
      each.heard(each.attachments);
      at = 0;
    }
  }

  #onWelcome(kind, version, payload) {
    if (kind !== "W") throw new HubFault(`a message of kind ${JSON.stringify(kind)} before the welcome`);
    if (!/^1(?:\.0)*$/.test(version)) throw new HubFault(`version ${JSON.stringify(cut(version))}, and we speak 1.0.0`);
    this.#isOpen = true;
    const body = readable(() => fromText(payload));
    this.listener.welcome(isMap(body) ? textOr(body.session, "") : "");
  }

  #onFatal(payload) {
    const { code, text } = codeIn(payload);
    this.listener.parted(cut(text), code === UMQ_CODES.refused);
  }

  #onMessage(kind, id, payload, attachments) {
    const asked = Number(id);
    if (kind === "R") this.#onResult(asked, payload, attachments);
    else if (kind === "E" || kind === "!") this.#onFailure(kind, asked, payload);
    else if (kind === "T") this.#onUpdate(id, payload, attachments);
    else if (kind === "M" || kind === "C") this.#onCall(kind, id, payload, attachments);
    else if (kind === "Z") {
      if (this.#following.delete(id)) this.listener.topicClosed(id);
    } else if (kind === "S") this.listener.variable(id, readable(() => fromText(payload)));
    else if (kind === "X") this.listener.variable(id, undefined);
    else if (kind === "?") this.#onDiscover(id, payload);
    else if (kind !== "U") throw new HubFault(`a message of the unknown kind ${JSON.stringify(kind)}`);
  }

  #onResult(id, payload, attachments) {
    this.#asking.delete(id);
    this.tell(id, () => fromText(payload), (value) => this.listener.settled(id, value, attachments));
  }

  /** The letter says whether it ran; the code why, where it is one that goes with the letter. */
  #onFailure(kind, id, payload) {
    const { code, text } = codeIn(payload);
    const known = UMQ_REASONS.get(code);
    const fits = known !== undefined && (RAN.get(known) === "no") === (kind === "!");
    const reason = fits ? known : kind === "!" ? "nobody serves it now" : "raised";
    this.cancel(id);
    this.listener.failed(id, new CallError(reason, fits ? text : payload));
  }

  #onUpdate(id, payload, attachments) {
    if (!this.#following.has(id)) {
      this.put(`U${id}`);
      return;
    }
    this.happen(id, () => {
      const told = fromText(payload);
      if (!isMap(told) || !isText(told.topic)) throw new BadValue("an update without its envelope");
      const missed = isCount(told.missed) ? told.missed : 0;
      return { topic: this.plainTopic(told.topic), data: told.data ?? null, missed, attachments };
    });
  }

  #onCall(kind, id, payload, attachments) {
    const [name, text] = divide(payload);
    const token = kind === "C" ? name : null;
    this.take({ id, name, token, attachments, wantsParts: false }, () => fromText(text));
  }

  #onDiscover(id, name) {
    const offered = this.listener.offered();
    const found = offered.find((offer) => offer.name === name);
    if (!name) this.put(`R${id}\n${offered.map((offer) => `M${offer.name}\n`).join("")}`);
    else if (found) this.put(`R${id}\nD${found.doc}`);
    else this.put(`E${id}\n${UMQ_CODES["no such method"]} there is no method ${name}`);
  }

  #say(text, attachments) {
    const list = checkedBytes(attachments);
    if (list.some((bytes) => bytes.length > MAX_ATTACHMENT)) {
      throw new CallError("too large", `an attachment has at most ${MAX_ATTACHMENT} bytes`);
    }
    this.put(list.length ? `A${list.length}\n${text}` : text);
    for (const bytes of list) this.link?.send(bytes);
  }
}

/** Return the code and the text of a failure; 0 if it has no code. */
function codeIn(payload) {
  const [, code, text] = /^(\d{1,9}) ([^]*)$/.exec(payload) ?? [null, "", payload];
  return { code: Number(code), text };
}

/** Divide a text at its first line feed. */
function divide(text) {
  const at = text.indexOf("\n");
  return at < 0 ? [text, ""] : [text.slice(0, at), text.slice(at + 1)];
}

// NQ: nothing is assumed about the link. What is not reacted to is said again; what comes again is not run again. The
// conversation belongs to an id that the hub gave us, and goes on over the next link, or the next page of a poll.

const NQ_TYPES = new Set(["", "local", "remote", "app", "tmp", "warn", "note", "debug", "sys"]);
const NQ_REASONS = new Map(Object.entries({
  ...{ notarget: "no such method", nocallback: "no such callback", unavailable: "nobody serves it now" },
  ...{ denied: "refused", badargs: "bad arguments", busy: "overloaded", toolarge: "too large", expired: "timeout" },
  ...{ cancelled: "cancelled", malformed: "bad arguments", version: "bad arguments", nokey: "bad arguments" },
}));
const NQ_CODES = {
  ...{ "no such method": "notarget", "no such callback": "nocallback", "bad arguments": "badargs" },
  ...{ overloaded: "busy", cancelled: "cancelled", "nobody serves it now": "unavailable" },
};
const NQ_CANCEL = { type: "local", fatal: true, err: "cancelled" };
const NQ_HELLO = '{"e":{"type":"sys","fatal":false,"note":"hello"}}';
const FIRST_REPEAT = 1;
const FIRST_POLL = 5;
const LONGEST_WAIT = 60;
const TICK = 0.5; // Seconds between two looks at what is overdue.
const WINDOW = 64; // Parts of a stream that are on their way, or held for the sake of their order, at once.
const MAX_TOMBS = 1 << 14; // Finished requests of the hub that are known by their keys.
const MAX_BATCH = 1000;

/** The parts of a stream as they come: given on in order, once each. */
class Parts {
  next = 1;
  total = null;
  #held = new Map();

  /** Return the parts whose turn it is; null if the part contradicts what is known. */
  take(n, f, part) {
    if (isCount(f)) this.total = part.e ? n : (this.total ?? n + f);
    if (this.total !== null && n > this.total) return null;
    if (n >= this.next && n < this.next + WINDOW) this.#held.set(n, part);
    const turn = [];
    for (; this.#held.has(this.next); this.next += 1) {
      turn.push(this.#held.get(this.next));
      this.#held.delete(this.next);
    }
    return turn;
  }

  get isDone() {
    return this.total !== null && this.next > this.total;
  }

  get missing() {
    if (!this.#held.size) return [];
    const last = Math.max(...this.#held.keys());
    return Array.from({ length: last - this.next }, (_, at) => this.next + at).filter((n) => !this.#held.has(n));
  }
}

class Nq extends Talk {
  static names = { alphabet: /^[A-Za-z0-9_-]+$/, separator: "-", cut: /[-.:/]/ };
  static topics = NQ_TOPICS;
  lasts = true;
  /** The hub has all that it had before: it is the same, and we are the same to it. */
  isKnown = false;
  #prefix = hex(crypto.getRandomValues(new Uint8Array(8)));
  #minted = 0;
  #peer = "";
  #run = ""; // what the hub's own ids begin with: another one is another hub
  #known = ""; // who we were to which hub when it had all that we offer and follow
  #isWelcome = false;
  #asked = new Map(); // our requests, by r
  #byId = new Map(); // the same by the peer's ids, those that somebody waits for
  #following = new Map(); // the targets of events -> our names of the subscriptions
  #served = new Map(); // requests of the hub, by t and r
  #backs = new Map(); // the same by their backchannels
  #tombs = new Map(); // those that are over
  #out = [];
  #isFlushing = false;
  #timer = null;
  #thanks = new Set();
  #heard = new Map();

  /** The id by which we come back. */
  get peerId() {
    return this.#peer;
  }

  start() {
    this.#isWelcome = false;
    this.#out = [];
    this.put(NQ_HELLO);
  }

  detach() {
    super.detach();
    clearTimeout(this.#timer);
    this.#timer = null;
  }

  /** Know that the hub has all that we offer and follow. */
  restored() {
    this.#known = `${this.#peer} ${this.#run}`;
  }

  goodbye() {
    for (const asking of this.#byId.values()) this.#cancel(asking);
    this.#say({ e: { type: "sys", fatal: true, note: "goodbye" } });
    this.flush(true);
  }

  nudge() {
    this.put(NQ_HELLO);
  }

  // Our requests.

  call(id, name, body, { attachments }) {
    const { token, name: target } = this.target(name);
    const list = checkedBytes(attachments);
    this.#ask(id, token === undefined ? target : `callback-${token}`, body, list.length ? { attachments: list } : {});
  }

  subscribe(id, name, pattern, whenFull) {
    for (const [old, each] of this.#following) {
      // A hub that still has it ends it; it is asked for anew.
      if (each === name) this.#drop(old);
    }
    const target = this.#mint(); // any other might be the name of a method
    const options = whenFull ? { when_full: whenFull } : {};
    const asking = this.#ask(id, "hub-subscribe", { topic: this.topic(pattern, true), id: target, ...options });
    asking.topic = target;
    this.#following.set(target, name);
  }

  unsubscribe(_id, name) {
    for (const [target, each] of this.#following) if (each === name) this.#drop(target);
  }

  #drop(target) {
    this.#following.delete(target);
    this.#ask(null, "hub-unsubscribe", { id: target });
  }

  cancel(id) {
    const asking = this.#byId.get(id);
    if (asking) this.#cancel(asking);
  }

  #ask(id, t, body, more = {}) {
    const r = this.#mint();
    const raw = this.#fitting({ t, r, d: body ?? null, ...more });
    const asking = { id, t, r, raw, a: "", topic: "", state: "sent", step: 0, due: 0, parts: null, isDoubtful: false };
    this.#asked.set(r, asking);
    if (id !== null) this.#byId.set(id, asking);
    if (this.#isWelcome) this.#repeat(asking);
    return asking;
  }

  #cancel(asking) {
    this.#byId.delete(asking.id);
    this.#following.delete(asking.topic);
    Object.assign(asking, { state: "cancelled", id: null, parts: null, step: 0, until: now() + LONGEST_WAIT });
    this.#repeat(asking);
  }

  #finish(asking) {
    this.#asked.delete(asking.r);
    this.#byId.delete(asking.id);
  }

  /** Say a request, ask what became of it, or say that it is cancelled; and see to it that this is said again. */
  #repeat(asking) {
    const { t, r, a, state, step } = asking;
    if (state === "sent") this.#push(asking.raw);
    else if (state === "cancelled") this.#say(a ? { i: a, e: NQ_CANCEL } : { t, i: r, e: NQ_CANCEL });
    else if (step > 0) this.#say({ t, p: r });
    const first = state === "accepted" ? FIRST_POLL : FIRST_REPEAT;
    asking.due = now() + Math.min(first * 2 ** step, LONGEST_WAIT);
    asking.step += 1;
    this.#watch();
  }

  // Our answers.

  answer(id, value, attachments) {
    const serving = this.#served.get(id);
    const list = checkedBytes(attachments);
    this.#keep(serving, { d: value ?? null, ...(list.length ? { attachments: list } : {}) });
  }

  fail(id, { reason, text = "", name = "", data = null, retryAfter = null }) {
    const serving = this.#served.get(id);
    if (!serving) return;
    const isRaised = reason === "raised";
    const args = reason === "overloaded" ? [String(millis(retryAfter ?? 0))] : [];
    const err = isRaised ? name : (NQ_CODES[reason] ?? "");
    const e = { type: isRaised ? "app" : "local", fatal: true, err, ...template(text, args) };
    const body = data === null ? { e } : { d: data, e };
    if (serving.sent === undefined) this.#keep(serving, body);
    else this.#putPart(serving, body, true);
  }

  note(id, value, text) {
    const { a, r } = this.#served.get(id);
    const e = { type: "note", fatal: false, ...template(text) };
    this.#say({ a, i: r, e, ...(value === undefined || value === null ? {} : { d: value }) });
  }

  async part(id, value) {
    const serving = this.#served.get(id);
    this.#putPart(serving, { d: value ?? null }, false);
    while (serving.queue.length > 4 * WINDOW && this.#served.get(id) === serving) {
      serving.room = deferred();
      await serving.room.promise;
    }
  }

  end(id) {
    this.#putPart(this.#served.get(id), {}, true);
  }

  #keep(serving, body) {
    serving.raw = this.#fitting({ a: serving.a, i: serving.r, ...body });
    this.#again(serving);
  }

  #putPart(serving, body, isLast) {
    serving.queue ??= [];
    serving.base ??= 1;
    serving.sent ??= 0;
    const n = serving.base + serving.queue.length;
    serving.queue.push(this.#fitting({ a: serving.a, i: serving.r, ...body, n, ...(isLast ? { f: 0 } : {}) }));
    serving.isEnded = isLast;
    this.#advance(serving);
  }

  /** Send as many parts as the window allows. */
  #advance(serving) {
    const last = Math.min(serving.base + serving.queue.length, serving.base + WINDOW) - 1;
    for (; serving.sent < last; serving.sent += 1) this.#push(serving.queue[serving.sent + 1 - serving.base]);
    [serving.step, serving.due] = [0, now() + FIRST_REPEAT];
    this.#watch();
  }

  /** Say an answer again, or the first part of it that was not acknowledged, and the last. */
  #again(serving) {
    if (serving.raw) this.#push(serving.raw);
    else if (serving.queue?.length && serving.sent >= serving.base) {
      this.#push(serving.queue[0]);
      if (serving.sent > serving.base) this.#push(serving.queue[serving.sent - serving.base]);
    } else return;
    serving.due = now() + Math.min(FIRST_REPEAT * 2 ** serving.step, LONGEST_WAIT);
    serving.step += 1;
    this.#watch();
  }

  #forget(serving) {
    this.#served.delete(serving.key);
    this.#backs.delete(serving.a);
    serving.room?.resolve();
    this.#bury(serving.key, false);
  }

  #bury(key, isEvent) {
    this.#tombs.set(key, isEvent);
    if (this.#tombs.size > MAX_TOMBS) this.#tombs.delete(this.#tombs.keys().next().value);
  }

  // Out.

  #mint() {
    this.#minted += 1;
    return `${this.#prefix}-${this.#minted.toString(16)}`;
  }

  #fitting(message) {
    const raw = write(message, markBase91, MAX_DEPTH + 1);
    if (raw.length * 3 > this.settings.maxText && bytesIn(raw) > this.settings.maxText) {
      throw new CallError("too large", `a message has at most ${this.settings.maxText} bytes`);
    }
    return raw;
  }

  #say(message) {
    this.#push(write(message, markBase91, MAX_DEPTH + 1));
  }

  /** Say it with the next packet. Without a link it is lost; all that matters is said again on the next one. */
  #push(raw) {
    if (!this.link) return;
    this.#out.push(raw);
    if (this.#isFlushing) return;
    this.#isFlushing = true;
    queueMicrotask(() => this.flush());
  }

  /** Send what is to be said, in as few packets as the limits allow; a busy link asks for it when it has time. */
  flush(isUrgent = false) {
    this.#isFlushing = false;
    if (this.link?.isBusy && !isUrgent) return;
    let batch = [];
    let room = this.settings.maxText;
    const send = () => {
      const packet = batch.length === 1 ? batch[0] : `[${batch.join(",")}]`;
      // A link that takes no more is no harm: what it does not take is said again.
      if (batch.length && this.link && this.link.waiting <= MAX_UNSENT) this.link.send(packet);
      [batch, room] = [[], this.settings.maxText];
    };
    for (const raw of this.#out.splice(0)) {
      const size = raw.length * 3 < room ? raw.length * 3 : bytesIn(raw) + 1;
      if (size >= room || batch.length === MAX_BATCH) send();
      batch.push(raw);
      room -= size;
    }
    send();
  }

  #watch() {
    if (this.#timer === null && this.link) this.#timer = after(TICK, () => this.#tick());
  }

  /** Say again what was not reacted to. */
  #tick() {
    this.#timer = null;
    const time = now();
    for (const asking of this.#asked.values()) {
      if (asking.state === "cancelled" && asking.until <= time) this.#finish(asking);
      else if (asking.due <= time) this.#repeat(asking);
      const missing = asking.parts?.missing ?? [];
      if (missing.length) this.#say({ i: asking.a, o: missing });
    }
    for (const serving of this.#served.values()) if (serving.due && serving.due <= time) this.#again(serving);
    if (this.#asked.size || this.#served.size) this.#watch();
  }

  // What the hub says.

  receive(data) {
    let packet;
    try {
      if (!isText(data)) throw new NotJson("it is no text");
      packet = parse(data, MAX_DEPTH + 2);
    } catch (error) {
      // The conversation goes on: it is not the link's.
      this.complain(error.message);
      return;
    }
    let complaints = 0;
    for (const message of Array.isArray(packet) ? packet : [packet]) {
      try {
        this.#hear(message);
      } catch (error) {
        if (!(error instanceof HubFault)) throw error;
        complaints += 1;
        if (complaints <= 8) this.complain(error.message);
      }
    }
    const thanks = [...this.#thanks];
    if (thanks.length) this.#say({ i: thanks.length === 1 ? thanks[0] : thanks });
    for (const [a, parts] of this.#heard) this.#say({ i: a, o: parts.next });
    this.#thanks.clear();
    this.#heard.clear();
  }

  complain(text) {
    this.#say({ e: { type: "local", fatal: true, err: "malformed", text: "{1}", args: [writable(text)] } });
  }

  #hear(message) {
    if (!isMap(message)) throw new HubFault("a message that is no object");
    const { r, p, a, i, e, o } = message;
    if (r !== undefined) this.#onRequest(message, idOf(r));
    else if (p !== undefined) this.#onPoll(message, idOf(p));
    else if (i === undefined) this.#onSystem(errorOf(e));
    else if (a !== undefined && o === undefined) for (const each of idsOf(i)) this.#onAnswer(message, idOf(a), each);
    else for (const each of idsOf(i)) this.#onBack(message, each, e === undefined ? null : errorOf(e));
  }

  #onSystem(error) {
    if (error.type !== "sys") return; // a complaint, which is never answered
    if (error.fatal) this.listener.parted(error.said, error.note === "denied");
    else if (error.note === "peer" && error.args.length) this.named(error.args[0], error.args[1]);
  }

  /** Know who we are to the hub, and what its own ids begin with, where it told. */
  named(peer, run) {
    const isOther = peer !== this.#peer || (run !== undefined && run !== this.#run);
    this.#peer = peer;
    if (this.#isWelcome && isOther) {
      this.listener.parted("the hub is another one since", false);
      return;
    }
    if (run === undefined || this.#isWelcome) return;
    this.#isWelcome = true;
    this.#run = run;
    this.isKnown = this.#known === `${peer} ${run}`;
    if (!this.isKnown) this.#leaveBehind();
    for (const asking of this.#asked.values()) {
      asking.step = asking.state === "sent" ? 0 : 1;
      this.#repeat(asking);
    }
    for (const serving of this.#served.values()) this.#again(Object.assign(serving, { step: 0 }));
    this.listener.welcome("");
  }

  /** Know that the hub is another one since: it asks again for what we had not answered. */
  #leaveBehind() {
    for (const asking of this.#asked.values()) this.#beginAnew(asking);
    for (const serving of this.#served.values()) {
      if (serving.raw || serving.isEnded) continue;
      this.#served.delete(serving.key);
      this.#backs.delete(serving.a);
      serving.room?.resolve();
    }
  }

  /** Know that a request was made to a hub that is another one since; what it said in parts is not gone on with. */
  #beginAnew(asking) {
    asking.isDoubtful = true;
    asking.a = ""; // it is no name any more by which it could be cancelled
    if (asking.state === "cancelled") return;
    asking.state = "sent";
    const came = asking.parts?.next ?? 1;
    asking.parts = null;
    if (came === 1 || this.listener.forgets(asking.id)) return;
    const text = `the hub has begun anew in the middle of the answer: ${came - 1} parts had come, the rest is lost`;
    this.listener.failed(asking.id, new CallError("lost", text));
    this.#cancel(asking);
  }

  #onAnswer({ d, e, n, f, attachments }, a, r) {
    const asking = this.#asked.get(r);
    const error = e === undefined ? null : errorOf(e);
    // Number 0 is the answer itself, or the end of one without parts.
    const isEnd = error ? error.fatal : d !== undefined || n === 0;
    if (isCount(n) && n > 0) {
      this.#onPart(asking, a, n, f, { d, e: error });
      return;
    }
    if (isEnd) this.#thanks.add(a);
    if (!asking) return;
    if (error && !error.fatal) this.#onNote(asking, error, d);
    else if (isEnd) this.#onEnd(asking, error, d ?? (n === 0 ? [] : null), attachments);
    else this.#accepted(asking, a);
  }

  #accepted(asking, a) {
    asking.a = a;
    if (asking.state === "sent") Object.assign(asking, { state: "accepted", step: 1, due: now() + FIRST_POLL });
  }

  #onNote(asking, error, d) {
    if (error.type === "sys") {
      // What became of a request that we asked after: one that the hub does not know is made again.
      if (error.note === "unknown" && asking.state !== "cancelled") {
        Object.assign(asking, { state: "sent", step: 0, a: "" });
        this.#repeat(asking);
      }
      return;
    }
    const kind = ["note", "warn", "tmp", "debug"].includes(error.type) ? error.type : "warn";
    const note = { kind, code: error.code, text: error.said };
    if (asking.id === null || kind === "tmp" || kind === "debug") return;
    this.tell(asking.id, () => unmark(d ?? null), (value) => this.listener.progress(asking.id, { value, ...note }));
  }

  #onEnd(asking, error, d, attachments) {
    this.#finish(asking);
    if (asking.id === null) return;
    if (error) {
      this.#fail(asking, error, d);
      return;
    }
    const read = () => ({ value: unmark(d), list: markedAttachments(attachments) });
    this.tell(asking.id, read, ({ value, list }) => this.listener.settled(asking.id, value, list));
  }

  #fail(asking, error, d) {
    const failure = failureIn(error, d);
    const { reason, message } = failure;
    this.#following.delete(asking.topic);
    const isDoubtful = asking.isDoubtful && failure.ran === "no";
    const text = `${reason}: ${message}; it may have run, as the hub is another one since`;
    this.listener.failed(asking.id, isDoubtful ? new CallError("lost", text) : failure);
  }

  #onPart(asking, a, n, f, part) {
    if (!asking || asking.state === "cancelled") {
      this.#say({ i: a, o: n + 1 }); // what is acknowledged is not said again
      if (asking && f === 0) this.#finish(asking);
      return;
    }
    asking.parts ??= new Parts();
    Object.assign(asking, { a, state: "accepted", step: 1, due: now() + FIRST_POLL });
    const turn = asking.parts.take(n, f, part);
    if (turn === null) {
      this.listener.failed(asking.id, new CallError("raised", "the parts of the answer contradict each other"));
      this.#cancel(asking);
      return;
    }
    this.#heard.set(a, asking.parts);
    const { isDone } = asking.parts;
    if (isDone) this.#finish(asking);
    for (const { d, e } of turn) {
      if (e) this.#fail(asking, e, d);
      else if (d !== undefined) this.tell(asking.id, () => unmark(d), (value) => this.listener.part(asking.id, value));
    }
    if (isDone && asking.id !== null) this.listener.ended(asking.id);
  }

  /** Hear what the hub says about answers of ours. */
  #onBack({ a, o, t }, id, error) {
    if (a !== undefined) return; // parts of a request of ours: we make none
    const serving = this.#backs.get(id) ?? this.#served.get(`${textOr(t, "")}#${id}`);
    if (!serving) return;
    if (error?.fatal) {
      if (serving.raw || serving.isEnded) this.#again(serving);
      else this.listener.cancelled(serving.key);
    } else if (isCount(o) && serving.queue) {
      const came = Math.min(o, serving.sent + 1) - serving.base;
      if (came <= 0) return;
      serving.queue.splice(0, came);
      serving.base += came;
      serving.room?.resolve();
      if (serving.isEnded && !serving.queue.length) this.#forget(serving);
      else this.#advance(serving);
    } else if (Array.isArray(o) && serving.queue) {
      for (const n of o) if (n >= serving.base && n <= serving.sent) this.#push(serving.queue[n - serving.base]);
    } else if (!error && o === undefined && serving.raw) this.#forget(serving);
  }

  #onPoll({ t }, r) {
    const key = `${textOr(t, "")}#${r}`;
    const serving = this.#served.get(key);
    const isDone = serving ? Boolean(serving.raw || serving.isEnded) : this.#tombs.has(key);
    const note = isDone ? "done" : serving ? "pending" : "unknown";
    this.#say({ a: serving?.a ?? this.#mint(), i: r, e: { type: "sys", fatal: false, note } });
    if (isDone) this.#isRepeat(key, r);
  }

  /** Whether a request has come before; if so, say again what was said then. */
  #isRepeat(key, r) {
    const serving = this.#served.get(key);
    const tomb = this.#tombs.get(key);
    if (serving) this.#again(serving);
    else if (tomb === true) this.#say({ a: this.#mint(), i: r, d: null });
    else if (tomb === false) this.#say({ a: this.#mint(), i: r, e: { type: "local", fatal: true, err: "expired" } });
    return Boolean(serving) || tomb !== undefined;
  }

  #onRequest(message, r) {
    const target = textOr(message.t, "");
    const key = `${target}#${r}`;
    const isPart = isCount(message.n) && message.n > 0;
    const known = this.#served.get(key);
    if (!(isPart && known?.parts) && this.#isRepeat(key, r)) return;
    if (target === "hub-closed" || this.#following.has(target)) {
      this.#bury(key, true);
      this.#say({ a: this.#mint(), i: r, d: null });
      this.#onEvent(target, message);
      return;
    }
    const serving = known ?? { a: this.#mint(), key, r, raw: "", step: 0, due: 0, parts: isPart ? new Parts() : null };
    this.#served.set(key, serving);
    this.#backs.set(serving.a, serving);
    if (isPart) this.#gather(serving, message);
    else this.#take(serving, message, () => unmark(message.d ?? null));
  }

  /** Put a request together that comes in parts: methods here take it as one array. */
  #gather(serving, { n, f, ...message }) {
    serving.gathered ??= [];
    const turn = serving.parts.take(n, f, message) ?? [];
    for (const { d } of turn) if (d !== undefined) serving.gathered.push(d);
    this.#say({ a: serving.a, i: serving.r, o: serving.parts.next });
    if (!turn.length || !serving.parts.isDone) return;
    serving.parts = null;
    this.#take(serving, message, () => unmark(serving.gathered));
  }

  #take(serving, { t, attachments }, read) {
    const name = textOr(t, "");
    const token = name.startsWith("callback-") ? name.slice("callback-".length) : null;
    const call = { id: serving.key, name, token, attachments: [], wantsParts: true };
    this.take(call, () => {
      call.attachments = markedAttachments(attachments);
      return read();
    });
  }

  #onEvent(target, { d, topic, missed, attachments }) {
    if (target === "hub-closed") {
      const ended = isMap(d) ? textOr(d.id, "") : "";
      const name = this.#following.get(ended);
      this.#following.delete(ended);
      if (name !== undefined) this.listener.topicClosed(name);
      return;
    }
    this.happen(this.#following.get(target), () => ({
      topic: isText(topic) ? this.plainTopic(topic) : "",
      data: unmark(d ?? null),
      missed: isCount(missed) ? missed : 0,
      attachments: markedAttachments(attachments),
    }));
  }
}

/** Return an identifier as a text; numbers are tolerated. */
function idOf(value) {
  if (isText(value) && value) return value;
  if (Number.isSafeInteger(value) && value !== 0) return String(value);
  throw new HubFault("an identifier that is none");
}

const idsOf = (value) => (Array.isArray(value) ? value.map(idOf) : [idOf(value)]);

/** Return a word of an error object as a text; numbers are tolerated. */
function wordOf(value) {
  if (isText(value) || typeof value === "number" || typeof value === "bigint") return String(value);
  throw new HubFault("an error with a word that is none");
}

/** Read an error object; `said` is its text with all places filled. */
function errorOf(e) {
  if (!isMap(e)) throw new HubFault("an error that is no object");
  const [type, err, warn, note, text] = ["type", "err", "warn", "note", "text"].map((key) => wordOf(e[key] ?? ""));
  if (!NQ_TYPES.has(type)) throw new HubFault("an error of an unknown type");
  const args = Array.isArray(e.args) ? e.args.map(wordOf) : [];
  const code = err || warn || note;
  return { type, fatal: e.fatal === true, err, note, code, args, said: fill(text, { err, warn, note, 0: code }, args) };
}

/** Return the failure that a fatal error means; it claims no more than is known. */
function failureIn({ type, err, code, args, said }, d) {
  const data = readable(() => unmark(d ?? null));
  if (type !== "local" && type !== "remote") return new CallError("raised", said, { data, name: code });
  const reason = NQ_REASONS.get(err) ?? "lost";
  const retryAfter = reason === "overloaded" && /^\d{1,9}$/.test(args[0] ?? "") ? args[0] / 1000 : null;
  return new CallError(reason, said || err, { data, retryAfter });
}

function markedAttachments(list) {
  const read = Array.isArray(list) ? unmark(list) : [];
  return read.map((each) => (each instanceof Uint8Array ? each : null));
}

// Links: how a conversation's frames travel. Each calls back `opened()`, `heard(data)` and, once, `gone(reason)`.

class SocketLink {
  #socket;
  #isOpen = false;

  constructor(url, protocols, Socket, { opened, heard, gone }) {
    const socket = (this.#socket = new Socket(url, protocols));
    socket.binaryType = "arraybuffer";
    socket.onopen = () => {
      this.#isOpen = true;
      opened();
    };
    socket.onmessage = ({ data }) => heard(isText(data) ? data : new Uint8Array(data));
    // Nobody tells why; and some close the socket next, and some, if it never was open, do not even do that.
    socket.onerror = () => this.#isOpen || gone("nobody answers there, or it is refused");
    socket.onclose = ({ reason, code }) => gone(reason || `the connection was lost${code ? ` (${code})` : ""}`);
  }

  /** Bytes that were not sent yet. */
  get waiting() {
    return this.#socket.bufferedAmount ?? 0;
  }

  async drained() {
    while (this.waiting > HIGH_WATER && this.#socket.readyState === 1) await new Promise((go) => setTimeout(go, 10));
  }

  send(data) {
    if (this.#socket.readyState === 1) this.#socket.send(data);
  }

  close() {
    this.#socket.close();
  }
}

const NOTHING = "[]";
const POLL = 20; // Seconds that the hub may wait for something to say.
const OVERTAKEN = 5; // Seconds that an answer waits for the one before it, which may be lost.

/** A link over HTTP: what we say is posted, and what the hub says comes in its answers, for which it is asked again. */
class PollLink {
  #url;
  #talk;
  #settings;
  #told;
  #queue = [];
  #isTalking = false;
  #isListening = false;
  #isNamed = false;
  #isClosing = false;
  #isGone = false;
  #posts = 0;
  #inFlight = 0; // questions whose answers were not taken yet: 2 at most
  #taken = 0; // the highest number of an answer that was taken
  #overtaker = null; // called when the answer before the one that waits was taken
  #linger = null;
  #stop = new AbortController();
  waiting = 0;

  constructor(url, talk, settings, told) {
    [this.#url, this.#talk, this.#settings, this.#told] = [url, talk, settings, told];
    queueMicrotask(told.opened);
  }

  async drained() {}

  send(data) {
    if (this.#isGone || this.#isClosing) return;
    this.#queue.push(data);
    this.waiting += data.length;
    this.#speak();
  }

  /** Close after what was said. */
  close() {
    this.#isClosing = true;
    if (!this.#isTalking && !this.#queue.length) this.#end("closed");
    else this.#linger = after(2, () => this.#end("closed"));
  }

  /** Whether a question is under way: what is said meanwhile goes with the next one. */
  get isBusy() {
    return this.#isTalking;
  }

  async #speak() {
    if (this.#isTalking) return;
    while (this.#queue.length && !this.#isGone) {
      this.#isTalking = true;
      const body = this.#queue.shift();
      this.#posts += 1;
      await this.#ask("", body, this.#settings.openTimeout);
      this.waiting -= body.length;
      this.#isTalking = false;
      if (!this.#queue.length && !this.#isClosing) this.#talk.flush();
    }
    if (this.#isClosing) this.#end("closed");
    else this.#listen();
  }

  /** Ask the hub for what it may have to say, as long as that is expected. */
  async #listen() {
    if (this.#isListening) return;
    this.#isListening = true;
    while (this.#isNamed && !this.#isGone && !this.#isClosing && this.#told.isExpectant()) {
      const [began, posts, isTalking] = [now(), this.#posts, this.#isTalking];
      const answer = await this.#ask(`wait=${POLL}`, NOTHING, POLL + this.#settings.openTimeout);
      // A hub that was told something in between had a reason not to wait.
      const isHasty = answer?.body === NOTHING && now() - began < 1 && posts === this.#posts && !isTalking;
      if (isHasty) await new Promise((go) => after(1, go));
    }
    this.#isListening = false;
  }

  /** Post, and take the answer when its turn has come: two connections deliver the hub's answers in any order. */
  async #ask(query, body, patience) {
    this.#inFlight += 1;
    const answer = await this.#post(query, body, patience);
    if (this.#inFlight > 1 && this.#taken > 0 && answer?.number > this.#taken + 1) {
      await new Promise((go) => {
        this.#overtaker = go;
        after(OVERTAKEN, go);
      });
    }
    this.#inFlight -= 1;
    this.#take(answer);
    this.#taken = Math.max(this.#taken, answer?.number ?? 0);
    this.#overtaker?.();
    return answer;
  }

  async #post(query, body, patience) {
    const { token } = this.#settings;
    const peer = this.#talk.peerId;
    const headers = { "Content-Type": "application/json" };
    if (token) headers.Authorization = `Bearer ${token}`;
    if (peer) headers["NQ-Peer"] = peer;
    const stop = new AbortController();
    const abort = () => stop.abort();
    const timer = after(patience, abort);
    this.#stop.signal.addEventListener("abort", abort);
    const url = query ? withQuery(this.#url, query) : this.#url;
    try {
      const options = { method: "POST", headers, body, signal: stop.signal, credentials: "omit", cache: "no-store" };
      const response = await this.#settings.fetch(url, options);
      const text = await response.text();
      const { status, headers: told } = response;
      return { status, peer: told.get("NQ-Peer"), number: Number(told.get("NQ-Answer")) || 0, body: text };
    } catch (error) {
      const isLate = stop.signal.aborted && !this.#stop.signal.aborted;
      const why = `it cannot be reached, or does not allow this page: ${error.message}`;
      this.#end(isLate ? `no answer within ${patience} seconds` : why);
      return null;
    } finally {
      clearTimeout(timer);
      this.#stop.signal.removeEventListener("abort", abort);
    }
  }

  #take(answer) {
    if (!answer || this.#isGone) return;
    if (answer.status === 401) {
      const text = cut(answer.body.slice(0, 200).trim());
      this.#told.heard(JSON.stringify({ e: { type: "sys", fatal: true, note: "denied", text } }));
    } else if (answer.status !== 200) {
      this.#end(`refused: ${answer.status} ${cut(answer.body.slice(0, 200).trim())}`);
    } else {
      this.#isNamed = true;
      if (answer.peer) this.#talk.named(answer.peer);
      if (answer.body !== NOTHING) this.#told.heard(answer.body);
    }
  }

  #end(reason) {
    if (this.#isGone) return;
    this.#isGone = true;
    this.#queue = [];
    clearTimeout(this.#linger);
    this.#stop.abort();
    this.#told.gone(reason);
  }
}

// Where a hub is.

const SCHEMES = {
  umq: { path: "/umq", subprotocol: "umq.1", transports: ["ws", "wss"] },
  lrpm: { path: "/lrpm", subprotocol: "lrpm.json", transports: ["ws", "wss"] },
  nq: { path: "/nq", subprotocol: "nq.1", transports: ["ws", "wss", "http", "https"] },
};
const PLACE = /^(\[[\da-fA-F:.]+\]|[^:/?#@[\]]+)(?::(\d+))?(\/[^?#]*)?(\?[^#]*)?$/;
const PORTS = { ws: "7500", http: "7500", wss: "443", https: "443" };

/** Read a client URL, such as `lrpm+ws://localhost:7500`; a TypeError, with a sentence, if it leads to no hub. */
function addressOf(url) {
  const known = Object.entries(SCHEMES).flatMap(([name, each]) => each.transports.map((by) => `${name}+${by}://`));
  const [, protocol, transport, rest] = /^([a-z0-9-]+)\+([a-z]+):\/\/(.*)$/.exec(String(url)) ?? [];
  const scheme = Object.hasOwn(SCHEMES, protocol ?? "") ? SCHEMES[protocol] : null;
  if (!scheme?.transports.includes(transport)) {
    throw new TypeError(`${JSON.stringify(String(url))} is no URL of this client; it speaks ${known.join(", ")}`);
  }
  const [, host, port, path = "", query = ""] = PLACE.exec(rest) ?? [];
  if (!host) throw new TypeError(`the URL names no host; it looks like ${protocol}+${transport}://localhost:7500`);
  if (/[?&]encoding=(?!json)/.test(query)) throw new TypeError("this client speaks LRPM in JSON only");
  const place = `${transport}://${host}:${port ?? PORTS[transport]}${path.length > 1 ? path : scheme.path}`;
  return { protocol, given: String(url), url: place + query.replace(/([?&])encoding=json/, "$1"), scheme, transport };
}

/** What happened to a connection; `detail` is `{state, attempt, error, wait}`: so many seconds until the next try. */
class StateEvent extends Event {
  constructor(detail) {
    super("state");
    this.detail = detail;
  }
}

/** Things in the order in which they came, taken one by one, as an iterator or by `next`. */
class Line {
  #waiting = [];
  #takers = [];
  #isOver = false;
  #error = null;

  get length() {
    return this.#waiting.length;
  }

  push(item) {
    if (this.#isOver) return;
    const taker = this.#takers.shift();
    if (taker) taker.resolve({ value: item, done: false });
    else this.#waiting.push(item);
  }

  dropOldest() {
    return this.#waiting.shift();
  }

  /** Nothing more comes; what waits can still be taken. */
  end(error = null) {
    if (this.#isOver) return;
    this.#isOver = true;
    const takers = this.#takers.splice(0);
    if (takers.length && error) takers.shift().reject(error);
    else this.#error = error;
    for (const taker of takers) taker.resolve({ value: undefined, done: true });
  }

  next() {
    if (this.#waiting.length) return Promise.resolve({ value: this.#waiting.shift(), done: false });
    if (!this.#isOver) {
      const taker = deferred();
      this.#takers.push(taker);
      return taker.promise;
    }
    const error = this.#error;
    this.#error = null; // it is told once
    return error ? Promise.reject(error) : Promise.resolve({ value: undefined, done: true });
  }
}

/**
 * Events of one topic, or of all that fit a pattern: `for await (const event of events)`. It goes on over a lost
 * connection; what was published meanwhile is missed. To leave the loop, or `close()`, unsubscribes.
 */
export class Subscription {
  /** How often it was asked for again on a new connection; events may be missing each time. */
  restored = 0;
  #line = new Line();
  #missed = 0;
  #maxWaiting;
  #leave;

  constructor(pattern, maxWaiting, leave) {
    this.pattern = pattern;
    this.#maxWaiting = maxWaiting;
    this.#leave = leave;
  }

  /**
   * @returns {Promise<IteratorResult<{topic: string, data: any, missed: number, attachments: (Uint8Array | null)[]}>>}
   */
  async next() {
    const { value, done } = await this.#line.next();
    if (done) return { value: undefined, done };
    const missed = this.#missed + value.missed;
    this.#missed = 0;
    return { value: { ...value, missed }, done };
  }

  /** Unsubscribe; what waits can still be taken. */
  async close() {
    this.finish();
    this.#leave();
  }

  async return() {
    await this.close();
    return { value: undefined, done: true };
  }

  [Symbol.asyncIterator]() {
    return this;
  }

  /** Take an event; at the bound the oldest is dropped, and counted in the `missed` of the next that is taken. */
  take(event) {
    if (this.#line.length >= this.#maxWaiting) this.#missed += 1 + this.#line.dropOldest().missed;
    this.#line.push({ ...event, topic: event.topic || this.pattern });
  }

  skip(count) {
    this.#missed += count;
  }

  finish(error = null) {
    this.#line.end(error);
  }
}

/** A piece of work from a queue. Unless `done()` says that it is done, the hub gives it to somebody else. */
export class Job {
  #answer;

  constructor(data, attachments, answer) {
    this.data = data;
    this.attachments = attachments;
    this.#answer = answer;
  }

  /** It is done; ConnectionLost if the hub cannot be told, and so will give it to somebody else. */
  async done(value = null) {
    this.#say((talk, id) => talk.answer(id, value, []));
  }

  /** It could not be done: somebody else may try. */
  async fail(text = "") {
    this.#say((talk, id) => talk.fail(id, { reason: "raised", text: writable(text) }));
  }

  #say(word) {
    const answer = this.#answer;
    this.#answer = null;
    answer?.(word);
  }
}

const DEFAULTS = {
  ...{ token: "", identity: "", secret: "", timeout: HUB_TIMEOUT, reconnect: true, backoff: [0.1, 5], keepalive: 20 },
  ...{ openTimeout: 10, maxText: 1 << 20, WebSocket: undefined, fetch: undefined },
};

function settingsOf(address, options) {
  const unknown = Object.keys(options).filter((key) => !Object.hasOwn(DEFAULTS, key));
  const known = Object.keys(DEFAULTS).join(", ");
  if (unknown.length) throw new TypeError(`connect takes ${known}, not ${unknown.join(", ")}`);
  const settings = { ...DEFAULTS, ...options };
  const { token, identity, secret } = settings;
  if (Boolean(identity) !== Boolean(secret)) throw new TypeError("`identity` and `secret` belong together");
  if (identity && token) throw new TypeError("give `token`, or `identity` and `secret`, not both");
  if (identity && address.protocol !== "lrpm") throw new TypeError("`identity` and `secret` are for lrpm: use `token`");
  settings.WebSocket ??= globalThis.WebSocket;
  settings.fetch ??= (...given) => globalThis.fetch(...given);
  if (address.transport.startsWith("ws") && !settings.WebSocket) {
    throw new TypeError("there is no WebSocket here: give one as the option `WebSocket`");
  }
  return settings;
}

function seconds(value) {
  if (typeof value !== "number" || !(value > 0)) throw new TypeError("a timeout is a positive number of seconds");
  return value;
}

/** What a request of ours that cannot be said failed for; errors of other kinds are the caller's own. */
function unsaid(error) {
  return error instanceof BadValue ? new CallError("bad arguments", error.message) : error;
}

/** Run a user's own function, which must not end the connection; its error is told as any other of the page. */
function outside(run) {
  try {
    run();
  } catch (error) {
    queueMicrotask(() => {
      throw error;
    });
  }
}

/** Say something to a hub that may be gone, or going: then nobody is worse off. */
function quietly(say) {
  try {
    say();
  } catch (error) {
    if (!(error instanceof CallError || error instanceof BadValue)) throw error;
  }
}

const cancelled = (signal) => new CallError("cancelled", "it was cancelled here", { cause: signal.reason });
const late = (what, wait) => new CallError("timeout", `${what} did not answer within ${Number(wait.toFixed(3))} s`);

/** Our requests that are not answered yet, and what the hub says to them. */
class Requests {
  #pending = new Map();
  #ids = 0;

  get size() {
    return this.#pending.size;
  }

  /** Return a number that names something of ours. */
  newId() {
    this.#ids += 1;
    return this.#ids;
  }

  /** Make a request; `say` gets the conversation and the id, and throws if it cannot be said. */
  ask(talk, say, { wait, method = "the hub", signal, ...more }) {
    const id = this.newId();
    const { promise, resolve, reject } = deferred();
    const giveUp = (error) => {
      this.abandon(id);
      reject(error);
    };
    const stop = () => giveUp(cancelled(signal));
    if (this.#pending.size >= MAX_PENDING) {
      reject(new CallError("overloaded", `${MAX_PENDING} requests of this client are open`));
      return { id, promise };
    }
    if (signal?.aborted) {
      reject(cancelled(signal));
      return { id, promise };
    }
    try {
      say(talk, id);
    } catch (error) {
      reject(unsaid(error));
      return { id, promise };
    }
    // Where the hub knows the timeout we wait long enough to hear its word about it.
    const patience = talk.tellsTimeouts ? wait + Math.min(1, 0.05 + wait / 10) : wait;
    const timer = after(patience, () => giveUp(late(method, wait)));
    signal?.addEventListener("abort", stop, { once: true });
    const over = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", stop);
    };
    this.#pending.set(id, { resolve, reject, over, method, wait, talk, gathered: [], size: 0, ...more });
    return { id, promise };
  }

  /** Say what nobody waits to hear an answer to. */
  mention(talk, say) {
    quietly(() => say(talk, this.newId()));
  }

  /** Nobody waits for an answer any more. */
  abandon(id) {
    const pending = this.#close(id);
    if (pending) quietly(() => pending.talk.cancel(id));
  }

  #close(id) {
    const pending = this.#pending.get(id);
    this.#pending.delete(id);
    pending?.over();
    return pending;
  }

  /** Know that no answer will come to any of them. */
  loseAll(error) {
    for (const id of [...this.#pending.keys()]) {
      this.#close(id).reject(new CallError("lost", `${error.message}; it may have run`));
    }
  }

  settled(id, value, attachments) {
    this.#close(id)?.resolve({ value, attachments });
  }

  failed(id, error) {
    const pending = this.#close(id);
    const isBare = error.reason === "timeout" && error.message === "timeout";
    pending?.reject(isBare ? late(pending.method, pending.wait) : error);
  }

  progress(id, note) {
    const told = this.#pending.get(id)?.onProgress;
    if (told) outside(() => told(note));
  }

  part(id, value) {
    const pending = this.#pending.get(id);
    if (!pending) return;
    let why = "";
    if (pending.parts) {
      if (pending.parts.length < pending.maxWaiting) pending.parts.push(value);
      else why = `${pending.maxWaiting} parts of the answer waited to be taken: it was cancelled`;
    } else {
      // Nobody asked for parts, but the hub gives them to all who speak this protocol.
      pending.size += write(value).length;
      if (pending.size <= MAX_GATHERED) pending.gathered.push(value);
      else why = "the answer is too large for one array: ask for a stream";
    }
    if (!why) return;
    this.abandon(id);
    pending.reject(new CallError("cancelled", why));
  }

  /** Know that the last part of a streamed answer has come. */
  ended(id) {
    const pending = this.#close(id);
    pending?.resolve({ value: pending.parts ? null : pending.gathered, attachments: [], isStream: true });
  }

  /** Let go of the parts of an answer that came so far; false if they were given on. */
  forgets(id) {
    const pending = this.#pending.get(id);
    if (!pending || pending.parts) return !pending;
    [pending.gathered, pending.size] = [[], 0];
    return true;
  }
}

/** What we do for others: methods on offer, callbacks that may be called once, and the calls that run. */
class Services {
  offers = new Map();
  #callbacks = new Map();
  #running = new Map();
  #peer;
  #requests;

  constructor(peer, requests) {
    this.#peer = peer;
    this.#requests = requests;
  }

  get size() {
    return this.offers.size + this.#callbacks.size;
  }

  /** Wait for a call that comes once; return our id for it. */
  expect(callback) {
    if (this.#callbacks.size >= MAX_PENDING) throw new CallError("overloaded", "too many callbacks are waited for");
    const own = String(this.#requests.newId()); // digits alone, which every protocol can write
    this.#callbacks.set(own, callback);
    return own;
  }

  forget(own) {
    this.#callbacks.delete(own);
  }

  /** Know that whatever ran has ended with its conversation, and that no callback will be called. */
  lose() {
    for (const { controller } of this.#running.values()) controller.abort();
    this.#running.clear();
    for (const { given } of this.#callbacks.values()) given?.resolve(null);
    this.#callbacks.clear();
  }

  called(talk, call) {
    if (call.token !== null) {
      this.#calledBack(talk, call);
      return;
    }
    const offer = readable(() => this.offers.get(fold(call.name, talk.constructor.names.cut)));
    if (!offer) this.#refuse(talk, call.id, { reason: "no such method", text: `there is no method ${cut(call.name)}` });
    else if (this.#running.size >= MAX_PENDING) {
      this.#refuse(talk, call.id, { reason: "overloaded", text: "too many calls are running", retryAfter: 1 });
    } else this.#serve(talk, call, offer);
  }

  #calledBack(talk, call) {
    const waiting = this.#callbacks.get(call.token);
    this.#callbacks.delete(call.token);
    const text = "it was called before, or never given out";
    if (!waiting) this.#refuse(talk, call.id, { reason: "no such callback", text });
    else if (waiting.given) waiting.given.resolve(new Job(call.body, call.attachments, this.#answering(talk, call.id)));
    else this.#serve(talk, call, { name: "callback", run: waiting.run, isStream: false });
  }

  #answering(talk, id) {
    const { link } = talk;
    return (say) => {
      if (talk.lasts ? this.#peer.state === "closed" : talk.link !== link) {
        throw new ConnectionLost("the connection was lost since: the hub gives this work to somebody else");
      }
      say(talk, id);
    };
  }

  cancelled(id) {
    const running = this.#running.get(id);
    if (!running) return;
    this.#refuse(running.talk, id, { reason: "cancelled", text: "nobody waits for it any more" });
    running.controller.abort();
  }

  async #serve(talk, call, offer) {
    const controller = new AbortController();
    const { id } = call;
    const running = { talk, controller };
    this.#running.set(id, running);
    const isWanted = () => this.#running.get(id) === running;
    const progress = (value, text = "") => {
      if (isWanted()) talk.note(id, value, writable(text));
    };
    const { signal } = controller;
    const context = { method: offer.name, attachments: call.attachments, signal, progress, peer: this.#peer };
    try {
      const made = offer.run(call.body, context);
      const value = offer.isStream ? await this.#give(talk, call, made, isWanted) : await made;
      if (!isWanted()) return;
      if (value === undefined && offer.isStream) talk.end(id);
      else if (value instanceof Reply) talk.answer(id, value.value, value.attachments);
      else talk.answer(id, value, []);
      this.#running.delete(id);
    } catch (error) {
      if (isWanted()) this.#refuse(talk, id, failureOf(error));
    }
  }

  /** Say a streamed answer in parts; return it as one array if the caller takes none. */
  async #give(talk, call, made, isWanted) {
    const gathered = [];
    let size = 0;
    for await (const part of made) {
      if (!isWanted()) return undefined; // and with it the generator ends
      if (call.wantsParts) {
        await talk.part(call.id, part);
      } else {
        size += write(part).length;
        if (size > MAX_GATHERED) throw new Fail("the answer is too large for one array: ask for a stream");
        gathered.push(part);
      }
    }
    return call.wantsParts ? undefined : gathered;
  }

  /** Let a call fail; its data is left out where it cannot be said, as the failure must arrive. */
  #refuse(talk, id, failure) {
    this.#running.delete(id);
    try {
      talk.fail(id, failure);
    } catch {
      quietly(() => talk.fail(id, { ...failure, data: null }));
    }
  }
}

/**
 * Keeps a connection open: when one is lost another is opened, and made like the one before. Its owner has a `listener`
 * for conversations, `restore(session)`, `lost(error)` for what ends with a conversation, and `tell(state, ...)`.
 */
class Keeper {
  /** Why there will be no connection any more. */
  over = null;
  /** What others may use, null while there is none. */
  session = null;
  /** What the hub calls it. */
  name = "";
  #address;
  #settings;
  #owner;
  #present = null; // the session that has a link
  #lasting = null; // the conversation that goes on over all links, where the protocol knows how
  #waiters = new Set();
  #wait;
  #wake = () => {};

  constructor(address, settings, owner) {
    [this.#address, this.#settings, this.#owner] = [address, settings, owner];
    this.#wait = settings.backoff[0];
  }

  /** Open the first session; ConnectionLost or Refused if that fails. */
  async start() {
    let session;
    try {
      session = await this.#opened();
    } catch (error) {
      this.#finish(error);
      throw error;
    }
    this.#owner.tell("open");
    this.#keep(session);
  }

  /** Return what takes words, though perhaps only when there is a link; null if nothing does. */
  get talk() {
    return this.session?.talk ?? this.#lasting;
  }

  /** Wait for a session; give it, and what is left of the time. */
  async ready(until, signal) {
    while (!this.session) {
      if (this.over) throw new this.over.constructor(this.over.message);
      if (signal?.aborted) throw cancelled(signal);
      if (this.#waiters.size >= MAX_PENDING) {
        throw new CallError("overloaded", `${MAX_PENDING} requests wait for the connection already`);
      }
      const waiter = deferred();
      this.#waiters.add(waiter);
      const error = new CallError("nobody serves it now", `no connection to ${this.#address.given} in time`);
      const timer = after(Math.max(0, until - now()), () => waiter.reject(error));
      signal?.addEventListener("abort", waiter.resolve, { once: true });
      try {
        await waiter.promise;
      } finally {
        clearTimeout(timer);
        signal?.removeEventListener("abort", waiter.resolve);
        this.#waiters.delete(waiter);
      }
    }
    return { session: this.session, left: Math.max(0.001, until - now()) };
  }

  /** Part from the hub, for good. */
  async close() {
    const present = this.#present;
    const error = new ConnectionLost("the connection is closed");
    this.#finish(error, true);
    if (!present || present.isOver) return;
    present.why = error;
    quietly(() => present.talk.goodbye());
    present.link.close();
    const timer = after(this.#settings.openTimeout, () => this.#gone(present, "the hub does not let go"));
    await present.ended.promise;
    clearTimeout(timer);
  }

  // What a conversation says about itself.

  welcome(name) {
    this.name = name;
    this.#present.opened.resolve();
  }

  parted(text, isDenied) {
    this.#present.why = isDenied
      ? new Refused(text || "the hub refuses our credentials")
      : new ConnectionLost(text || "the hub said goodbye");
    this.#present.link.close();
  }

  // The life of a session.

  #newTalk() {
    if (this.#lasting) return this.#lasting;
    const talk = new TALKS[this.#address.protocol](this.#settings, this.#owner.listener);
    if (talk.lasts) this.#lasting = talk;
    return talk;
  }

  #newLink(session) {
    const { url, transport, scheme } = this.#address;
    const told = {
      opened: () => !session.isOver && session.talk.attach(session.link),
      heard: (data) => this.#heard(session, data),
      gone: (reason) => this.#gone(session, reason),
      isExpectant: () => this.#owner.isExpectant(),
    };
    const { talk } = session;
    if (!transport.startsWith("ws")) return new PollLink(url, talk, this.#settings, told);
    const shown = talk.lasts && this.#settings.token ? [bearer(this.#settings.token)] : [];
    // Browsers let nobody set headers of a WebSocket, and proxies write URLs into their logs.
    if (talk.lasts && talk.peerId) shown.push(`nq-peer.${talk.peerId}`);
    return new SocketLink(url, [scheme.subprotocol, ...shown], this.#settings.WebSocket, told);
  }

  /** Open a link and be let in. */
  async #dial() {
    const { given } = this.#address;
    const { openTimeout, keepalive } = this.#settings;
    const session = { talk: this.#newTalk(), link: null, opened: deferred(), ended: deferred(), why: null };
    session.isOver = false;
    this.#present = session;
    try {
      session.link = this.#newLink(session);
    } catch (error) {
      throw new ConnectionLost(`cannot connect to ${given}: ${error.message}`);
    }
    const silence = new ConnectionLost(`${given} did not answer our hello within ${openTimeout} seconds`);
    const timer = after(openTimeout, () => this.#cutOff(session, silence));
    try {
      await session.opened.promise;
    } finally {
      clearTimeout(timer);
    }
    if (session.isOver) throw await session.ended.promise; // it was over before we got here
    session.openedAt = session.heardAt = now();
    if (session.link instanceof SocketLink) session.pulse = setInterval(() => this.#look(session), keepalive * 1000);
    return session;
  }

  /** Ask a silent hub for a sign of life; one that gives none is gone. */
  #look(session) {
    const { keepalive } = this.#settings;
    const silence = now() - session.heardAt;
    if (silence > 2 * keepalive) this.#cutOff(session, new ConnectionLost("the hub is silent"));
    else if (silence > 0.9 * keepalive) quietly(() => session.talk.nudge(this.#owner.listener.newId()));
  }

  #heard(session, data) {
    if (session.isOver) return;
    session.heardAt = now();
    try {
      session.talk.receive(data);
    } catch (error) {
      const isTheirs = error instanceof HubFault || error instanceof CallError;
      if (!isTheirs) console.error("fiveways.js failed at what the hub sent", error); // a mistake of ours
      quietly(() => session.talk.complain(error.message));
      this.#cutOff(session, new ConnectionLost(`the hub broke the protocol: ${error.message}`));
    }
  }

  #cutOff(session, error) {
    session.why ??= error;
    session.link?.close();
    this.#gone(session, error.message);
  }

  #gone(session, reason) {
    if (session.isOver) return;
    session.isOver = true;
    clearInterval(session.pulse);
    session.talk.detach();
    const error = session.why ?? new ConnectionLost(`${this.#address.given}: ${reason}`);
    if (this.session === session) this.session = null;
    if (!session.talk.lasts) this.#owner.lost(error);
    session.opened.reject(error);
    session.ended.resolve(error);
  }

  /** Open a session, make it like the one before, and let all use it. */
  async #opened() {
    const session = await this.#dial();
    if (!session.talk.isKnown) {
      await this.#owner.restore(session, (error) => this.#cutOff(session, error));
      session.talk.restored?.();
    }
    if (this.over || session.isOver) throw this.over ?? (await session.ended.promise);
    this.session = session;
    for (const waiter of this.#waiters) waiter.resolve();
    return session;
  }

  /** Open one session after the other, until it is closed, refused, or not to be opened again. */
  async #keep(session) {
    const { reconnect, backoff } = this.#settings;
    while (session) {
      const error = await session.ended.promise;
      if (!reconnect || error instanceof Refused) this.#finish(error);
      if (now() - session.openedAt > backoff[1]) this.#wait = backoff[0];
      session = await this.#reopen(error);
    }
  }

  /** Try until it works, after ever longer waits, none of them foreseeable: many clients lose one hub at once. */
  async #reopen(error) {
    for (let attempt = 1; !this.over; attempt += 1) {
      const wait = Math.random() * this.#wait;
      this.#owner.tell("waiting", attempt, error, wait);
      this.#wait = Math.min(2 * this.#wait, this.#settings.backoff[1]);
      await new Promise((go) => {
        const timer = after(wait, go);
        this.#wake = () => go(clearTimeout(timer));
      });
      if (this.over) break;
      this.#owner.tell("connecting", attempt);
      try {
        const session = await this.#opened();
        this.#owner.tell("open", attempt);
        return session;
      } catch (failure) {
        error = failure;
        if (error instanceof Refused) this.#finish(error);
      }
    }
    return null;
  }

  #finish(error, isWanted = false) {
    if (this.over) return;
    this.over = error;
    this.session = null;
    this.#owner.lost(error);
    this.#owner.finished(isWanted ? null : error);
    for (const waiter of this.#waiters) waiter.resolve();
    this.#wake();
    this.#owner.tell("closed", 0, isWanted ? null : error);
  }
}

/**
 * One connection to a hub, made by `connect`. It reconnects by itself, and restores methods, subscriptions and
 * variables. `peer.addEventListener("state", ...)` tells how it is.
 */
export class Peer extends EventTarget {
  /** Variables of our session, which everybody can read at the hub; they survive a reconnect. */
  vars;
  #settings;
  #address;
  #state = "connecting";
  #requests = new Requests();
  #services = new Services(this, this.#requests);
  #keeper;
  #feeds = new Map();
  #ours = new Map();
  #theirs = new Map();

  constructor(address, settings) {
    super();
    this.#address = address;
    this.#settings = settings;
    this.#keeper = new Keeper(address, settings, this.#owner());
    this.vars = {
      set: async (name, value) => {
        await this.#settle((talk, id) => talk.call(id, "hub.set", { name, value }, {}));
        this.#ours.set(name, value);
      },
      unset: async (name) => {
        this.#ours.delete(name);
        await this.#settle((talk, id) => talk.call(id, "hub.unset", { name }, {}));
      },
      get: (name, { peer = "" } = {}) => this.call("hub.get", peer ? { name, peer } : { name }),
      theirs: this.#theirs,
    };
  }

  /** Open one; `connect` is the same. */
  static async open(url, options = {}) {
    const address = addressOf(url);
    const peer = new Peer(address, settingsOf(address, options));
    await peer.#keeper.start();
    return peer;
  }

  /** Where it is connected to. */
  get url() {
    return this.#address.given;
  }

  /** What it speaks: umq, lrpm-json or nq. */
  get protocol() {
    return this.#address.protocol === "lrpm" ? "lrpm-json" : this.#address.protocol;
  }

  /** What the hub calls this connection before others, another name after a reconnect; empty in NQ. */
  get session() {
    return this.#keeper.name;
  }

  /** @returns {"connecting" | "open" | "waiting" | "closed"} */
  get state() {
    return this.#state;
  }

  // Calls.

  /**
   * Call a method and return its value: `await peer.call("math.add", [2, 3], { timeout: 1 })`.
   *
   * An object as body is named arguments, an array positional ones. A call that is `idempotent` is made again if the
   * connection is lost before its answer.
   *
   * @param {string} name
   * @param {unknown} [body]
   * @param {{timeout?: number, attachments?: Uint8Array[], onProgress?: (note: {value: unknown, text: string,
   *   kind: string, code: string}) => void, signal?: AbortSignal, idempotent?: boolean}} [options]
   * @returns {Promise<any>}
   */
  async call(name, body = null, options = {}) {
    return (await this.#reply(name, body, options)).value;
  }

  /**
   * Call a method and return its value with its attachments. If one of these did not arrive, the call has failed, with
   * the value as `error.data`.
   *
   * @returns {Promise<{value: any, attachments: Uint8Array[]}>}
   */
  async callReply(name, body = null, options = {}) {
    const reply = await this.#reply(name, body, options);
    if (reply.attachments.includes(null)) {
      throw new CallError("raised", "an attachment of the answer did not arrive", { data: reply.value });
    }
    return reply;
  }

  async #reply(name, body, { timeout, attachments, onProgress, signal, idempotent = false }) {
    const until = now() + seconds(timeout ?? this.#settings.timeout);
    for (;;) {
      const { session, left } = await this.#keeper.ready(until, signal);
      const how = { timeout: this.#told(timeout, left), progress: Boolean(onProgress), attachments };
      const say = (talk, id) => talk.call(id, name, body, how);
      try {
        return await this.#requests.ask(session.talk, say, { wait: left, method: name, onProgress, signal }).promise;
      } catch (error) {
        const isLost = error instanceof CallError && error.reason === "lost" && session.isOver;
        if (!(idempotent && isLost && this.#settings.reconnect)) throw error;
      }
    }
  }

  /** Return the time that the hub is told, undefined where it knows by itself. */
  #told(timeout, left) {
    return timeout === undefined && this.#settings.timeout === HUB_TIMEOUT ? undefined : left;
  }

  /**
   * Call a method and give the parts of its answer as they come: `for await (const part of peer.stream("log.tail"))`.
   *
   * Where the answer comes as one array its elements are given; any other answer is the only part. To leave the loop
   * cancels the call; so do over `maxWaiting` parts that nobody takes.
   *
   * @returns {AsyncGenerator<any, void, void>}
   */
  async *stream(name, body = null, { timeout, attachments, signal, maxWaiting = 10_000 } = {}) {
    const until = now() + seconds(timeout ?? this.#settings.timeout);
    const { session, left } = await this.#keeper.ready(until, signal);
    const parts = new Line();
    const how = { timeout: this.#told(timeout, left), stream: true, attachments };
    const say = (talk, id) => talk.call(id, name, body, how);
    const wanted = { wait: left, method: name, parts, maxWaiting, signal };
    const { id, promise } = this.#requests.ask(session.talk, say, wanted);
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
      const { value, isStream } = await promise;
      if (!isStream) yield* Array.isArray(value) ? value : [value];
    } finally {
      this.#requests.abandon(id);
    }
  }

  // Topics.

  /** Give data to all who subscribed; with `retain` later subscribers get it too, as their first event. */
  async publish(topic, data = null, { retain = false, attachments, timeout } = {}) {
    const until = now() + seconds(timeout ?? this.#settings.timeout);
    const { session, left } = await this.#keeper.ready(until);
    const say = (talk, id) => talk.publish(id, topic, data, { retain, attachments });
    await this.#requests.ask(session.talk, say, { wait: left }).promise;
  }

  /**
   * Follow a topic, or all that fit a pattern: `const events = await peer.subscribe("sensors.*.temperature")`.
   *
   * `*` stands for one or more characters within a segment. `whenFull` is what the hub does when we read too slowly:
   * skip, close or unsubscribe. Here, `maxWaiting` events wait to be taken; then the oldest is dropped.
   */
  async subscribe(pattern, { whenFull = "", maxWaiting = 1000 } = {}) {
    const name = String(this.#requests.newId());
    const feed = new Subscription(pattern, Math.max(1, maxWaiting), () => this.#leave(name));
    feed.request = (talk, id) => talk.subscribe(id, name, pattern, whenFull);
    this.#feeds.set(name, feed); // before it is granted, as the first event comes right behind the grant
    try {
      await this.#settle(feed.request);
    } catch (error) {
      this.#feeds.delete(name);
      throw error;
    }
    feed.isGranted = true;
    return feed;
  }

  #leave(name) {
    const { talk } = this.#keeper;
    if (this.#feeds.delete(name) && talk) this.#requests.mention(talk, (_, id) => talk.unsubscribe(id, name));
  }

  /** End a topic for all who subscribed to it, and forget its retained value. */
  async closeTopic(topic) {
    await this.#settle((talk, id) => talk.call(id, "hub.close", { topic: talk.topic(topic) }, {}));
  }

  // Methods on offer.

  /**
   * Offer a function to all: `await peer.register("shop.buy", async (body, context) => ...)`.
   *
   * `context` has the `attachments`, `progress(value, text)`, and a `signal` that tells when nobody waits any more.
   * What the function throws is the failure; a generator gives its answer in parts. It stays on offer over a lost
   * connection.
   *
   * @param {string} name
   * @param {(body: any, context: {method: string, attachments: (Uint8Array | null)[], signal: AbortSignal,
   *   progress: (value: unknown, text?: string) => void, peer: Peer}) => any} run
   * @param {{doc?: string, kind?: "unary" | "server", share?: string}} [options]
   */
  async register(name, run, { doc = "", kind, share = "" } = {}) {
    if (typeof run !== "function") throw new TypeError("what is offered is a function");
    const isStream = kind ? kind === "server" : /GeneratorFunction$/.test(run.constructor?.name ?? "");
    const options = { ...(doc ? { doc } : {}), ...(isStream ? { kind: "server" } : {}), ...(share ? { share } : {}) };
    const folded = this.#folded(name);
    if (this.#services.offers.has(folded)) throw new TypeError(`${folded} is on offer already`);
    const offer = { name, run, doc, isStream, request: (talk, id) => talk.register(id, name, options) };
    this.#services.offers.set(folded, offer); // before it is granted, as the first call comes right behind the grant
    try {
      await this.#settle(offer.request);
    } catch (error) {
      this.#services.offers.delete(folded);
      throw error;
    }
    offer.isGranted = true;
  }

  /** Offer it no longer; calls that run are finished. */
  async unregister(name) {
    const folded = this.#folded(name);
    const written = this.#services.offers.get(folded)?.name ?? name;
    this.#services.offers.delete(folded);
    await this.#settle((talk, id) => talk.unregister(id, written));
  }

  #folded(name) {
    try {
      return fold(name);
    } catch (error) {
      throw unsaid(error);
    }
  }

  /** Return a token by which somebody, in any protocol, can call the function once: `call("callback." + token)`. */
  async callback(run) {
    if (typeof run !== "function") throw new TypeError("what is called back is a function");
    const own = this.#services.expect({ run });
    try {
      return String(await this.call("hub.callback", { id: own })).toLowerCase();
    } catch (error) {
      this.#services.forget(own);
      throw error;
    }
  }

  /**
   * Ask what there is: all, what is below a route (`account.`), or the documentation of a method.
   *
   * @returns {Promise<{methods: string[], routes: string[], doc: string | null}>}
   */
  async discover(name = "") {
    const asked = (talk, id) => talk.call(id, "hub.discover", name ? { name: talk.spelled(name) } : {}, {});
    const { value } = await this.#settle(asked);
    if (!isMap(value)) throw new CallError("raised", "the answer is no description");
    const list = (names) => (Array.isArray(names) ? names.filter(isText) : []);
    return { methods: list(value.methods), routes: list(value.routes), doc: isText(value.doc) ? value.doc : null };
  }

  // Work queues.

  /** Put work into a queue; return how many pieces wait there now. */
  async push(queue, data = null) {
    const answer = await this.call("hub.push", { queue, data });
    return isMap(answer) && isCount(answer.waiting) ? answer.waiting : 0;
  }

  /**
   * Wait for a piece of work: `const job = await peer.pull("thumbnails"); ...; await job.done()`.
   *
   * Without a timeout it waits as long as it takes.
   *
   * @param {string} queue @param {{timeout?: number, signal?: AbortSignal}} [options] @returns {Promise<Job>}
   */
  async pull(queue, { timeout, signal } = {}) {
    const late = deferred();
    const overdue = new CallError("timeout", `no work came to ${JSON.stringify(queue)} within ${timeout} seconds`);
    const timer = timeout === undefined ? null : after(seconds(timeout), () => late.reject(overdue));
    const stop = () => late.reject(cancelled(signal));
    if (signal?.aborted) stop();
    signal?.addEventListener("abort", stop, { once: true });
    try {
      for (;;) {
        const given = deferred();
        const own = this.#services.expect({ given });
        try {
          await Promise.race([this.call("hub.pull", { queue, callback: own }), late.promise]);
          const job = await Promise.race([given.promise, late.promise]);
          if (job) return job;
        } catch (error) {
          if (!(error instanceof CallError && error.reason === "lost") || this.#keeper.over) throw error;
        } finally {
          this.#services.forget(own);
        }
      }
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", stop);
    }
  }

  /** Part from the hub, for good; subscriptions end, and what is still called is given up. */
  async close() {
    if (this.#keeper.over) return;
    const { session } = this.#keeper;
    if (session?.talk.lasts) await this.#takeBack(session.talk);
    await this.#keeper.close();
  }

  /** Leave nothing behind at a hub that waits for us to come back. */
  async #takeBack(talk) {
    for (const name of this.#feeds.keys()) this.#requests.mention(talk, (_, id) => talk.unsubscribe(id, name));
    const offers = [...this.#services.offers.values()].filter((offer) => offer.isGranted);
    const words = offers.map(({ name }) => (_, id) => talk.unregister(id, name));
    await Promise.allSettled(words.map((say) => this.#requests.ask(talk, say, { wait: 1 }).promise));
  }

  /** Make a request that may be made twice: again on a new connection, if one is lost before the answer. */
  async #settle(say) {
    const until = now() + this.#settings.timeout;
    for (;;) {
      const { session, left } = await this.#keeper.ready(until);
      try {
        return await this.#requests.ask(session.talk, say, { wait: left }).promise;
      } catch (error) {
        const isLost = error instanceof CallError && ["lost", "nobody serves it now"].includes(error.reason);
        if (!(isLost && session.isOver && this.#settings.reconnect)) throw error;
      }
    }
  }

  // What the keeper of our connection, and the conversations on it, tell.

  #owner() {
    return {
      listener: this.#listener(),
      isExpectant: () => this.#requests.size + this.#feeds.size + this.#services.size > 0,
      restore: (session, cutOff) => this.#restore(session, cutOff),
      lost: (error) => {
        this.#requests.loseAll(error);
        this.#services.lose();
      },
      finished: (error) => {
        for (const feed of this.#feeds.values()) feed.finish(error);
        this.#feeds.clear();
      },
      tell: (state, attempt = 0, error = null, wait = 0) => {
        this.#state = state;
        this.dispatchEvent(new StateEvent({ state, attempt, error, wait }));
      },
    };
  }

  #listener() {
    const [requests, services] = [this.#requests, this.#services];
    return {
      newId: () => requests.newId(),
      welcome: (name) => this.#keeper.welcome(name),
      parted: (text, isDenied) => this.#keeper.parted(text, isDenied),
      settled: (id, value, attachments) => requests.settled(id, value, attachments),
      failed: (id, error) => requests.failed(id, error),
      part: (id, value) => requests.part(id, value),
      ended: (id) => requests.ended(id),
      forgets: (id) => requests.forgets(id),
      progress: (id, note) => requests.progress(id, note),
      event: (name, event) => this.#feeds.get(name)?.take(event),
      missed: (name, count) => this.#feeds.get(name)?.skip(count),
      topicClosed: (name) => {
        this.#feeds.get(name)?.finish();
        this.#feeds.delete(name);
      },
      variable: (name, value) => {
        if (value === undefined) this.#theirs.delete(name);
        else if (this.#theirs.size < MAX_VARIABLES || this.#theirs.has(name)) this.#theirs.set(name, value);
      },
      called: (talk, call) => services.called(talk, call),
      cancelled: (id) => services.cancelled(id),
      offered: () => [...services.offers.values()].filter((offer) => offer.isGranted),
    };
  }

  /** Ask a new session for all that the one before had. */
  async #restore(session, cutOff) {
    if (session.talk.lasts) this.#services.lose();
    this.#theirs.clear();
    const set = ([name, value]) => ({ request: (talk, id) => talk.call(id, "hub.set", { name, value }, {}) });
    const granted = (all) => [...all.values()].filter((each) => each.isGranted);
    // In this order: a variable may be what lets us register and subscribe.
    for (const wanted of [[...this.#ours].map(set), granted(this.#services.offers), granted(this.#feeds)]) {
      await Promise.all(wanted.map((each) => this.#restoreOne(session, each, cutOff)));
    }
  }

  async #restoreOne(session, wanted, cutOff) {
    const { id, promise } = this.#requests.ask(session.talk, wanted.request, { wait: this.#settings.openTimeout });
    const end = session.ended.promise.then((error) => Promise.reject(error));
    try {
      await Promise.race([promise, end]);
      if (wanted instanceof Subscription) wanted.restored += 1;
    } catch (error) {
      this.#requests.abandon(id);
      if (error.reason === "timeout") cutOff(new ConnectionLost("the hub did not answer"));
      if (session.isOver) throw await session.ended.promise;
      // A method or a variable that is refused now may be granted on the next connection; a subscription has ended.
      if (wanted instanceof Subscription) wanted.finish(error);
      for (const [name, feed] of this.#feeds) if (feed === wanted) this.#feeds.delete(name);
    }
  }
}

/** What a method of ours that threw is told of. */
function failureOf(error) {
  const text = error instanceof BadValue ? `the method ran, but its answer cannot be sent: ${error.message}` : "";
  const failure = { reason: "raised", text: text || writable(error?.message ?? error) };
  if (!(error instanceof Fail)) return failure;
  return { ...failure, name: error.own, data: error.data, retryAfter: error.retryAfter };
}

/** A token as a subprotocol of WebSocket, since browsers let nobody set headers there. */
const bearer = (token) => `bearer.${toBase64(utf8(token)).replace(/\+/g, "-").replace(/\//g, "_").replace(/=/g, "")}`;

const TALKS = { umq: Umq, lrpm: Lrpm, nq: Nq };

/**
 * Open a connection to a hub: `const peer = await connect("lrpm+ws://localhost:7500")`.
 *
 * @param {string} url `umq+ws://`, `lrpm+ws://`, `nq+ws://` or `nq+http://`, then host and port; with TLS `+wss://` or
 *   `+https://`. Without a port it is 7500 (443 with TLS), without a path where a hub serves that protocol.
 * @param {{token?: string, identity?: string, secret?: string, timeout?: number, reconnect?: boolean,
 *   backoff?: [number, number], keepalive?: number, openTimeout?: number, maxText?: number, WebSocket?: any,
 *   fetch?: typeof fetch}} [options] times are seconds; docs/javascript.md explains each
 * @returns {Promise<Peer>} rejected with a TypeError if the URL or an option cannot be used, `Refused` if the hub does
 *   not let us in, `ConnectionLost` if it cannot be reached
 */
export function connect(url, options = {}) {
  return Peer.open(url, options);
}

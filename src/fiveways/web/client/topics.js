// Topics and patterns. A topic is a list of segments; users write it dotted, with `%HH` for special characters.

import { isText } from "./checks.js";
import { InvalidValue } from "./errors.js";
import { DIRECTION_CHARACTERS, LIMITS, TOPIC_SPECIAL } from "./tables.js";
import { encodeUtf8, toHex, utf8Length } from "./values/bytes.js";
import { LONE_SURROGATE } from "./values/json.js";

const DIRECTION = new RegExp(`[${DIRECTION_CHARACTERS}]`);
const SPECIAL = new RegExp(TOPIC_SPECIAL, "g");

const escapeBytes = (text, prefix) => toHex(encodeUtf8(text), prefix);
const isNuls = (text) => /^\0*$/.test(text);

function unescapeBytes(digits) {
  const bytes = Uint8Array.from(digits.match(/../g), (pair) => parseInt(pair, 16));
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw new InvalidValue("the topic has escapes that are not UTF-8");
  }
}

/** The style of users and of UMQ. */
export const DOTTED_TOPICS = {
  separator: ".",
  empty: "",
  write: (text) => text.replace(SPECIAL, (char) => escapeBytes(char, "%").toUpperCase()),
  read(text) {
    if (/%(?![0-9A-Fa-f]{2})/.test(text)) throw new InvalidValue("the topic has '%' without two hexadecimal digits");
    return text.replace(/(?:%[0-9A-Fa-f]{2})+/g, (found) => unescapeBytes(found.replaceAll("%", "")));
  },
};

/** Return the style of a protocol whose topics have only `letters` and `_`; other bytes are written `__hh`. */
function narrowStyle(separator, letters, digits) {
  const toWrite = new RegExp(`_(?![${letters}])|(?<![${letters}])_|[^${letters}_]`, "gu");
  const wellFormed = new RegExp(`^(?:[${letters}]|__[${digits}]{2}|_(?!_))*$`);
  const escapes = new RegExp(`(?:__[${digits}]{2})+`, "g");
  return {
    separator,
    empty: "__00",
    write: (text) => text.replace(toWrite, (found) => escapeBytes(found, "__")),
    read(text) {
      if (!wellFormed.test(text)) throw new InvalidValue(`the topic ${JSON.stringify(text)} is not escaped correctly`);
      return text.replace(escapes, (found) => unescapeBytes(found.replaceAll("_", "")));
    },
  };
}

export const LRPM_TOPICS = narrowStyle(".", "a-z0-9", "0-9a-f");
export const NQ_TOPICS = narrowStyle("-", "A-Za-z0-9", "0-9A-Fa-f");

/** Rewrite a topic, or with `isPattern` a pattern, from one style to another; InvalidValue if it is invalid. */
export function rewriteTopic(text, from, to, isPattern = false) {
  if (!isText(text) || !text) throw new InvalidValue("the topic is empty");
  if (!isPattern && text.includes("*")) throw new InvalidValue(`the topic ${JSON.stringify(text)} has a wildcard`);
  if (text.includes("**")) throw new InvalidValue(`the pattern ${JSON.stringify(text)} has '**'`);
  const segments = text.split(from.separator).map((segment) => readSegment(segment, from));
  checkTopic(segments.map((literals) => literals.join("*")).join("."));
  return segments.map((literals) => writeSegment(literals, to)).join(to.separator);
}

/** Return the literal texts around each `*` of a segment. */
function readSegment(segment, style) {
  if (style.empty && !segment) throw new InvalidValue("the topic has an empty segment");
  const literals = segment.split("*").map((literal) => style.read(literal));
  // A NUL is written like an empty segment. A segment of NULs has one more of them, to distinguish the two.
  if (literals.length === 1 && style.empty && isNuls(literals[0])) return [literals[0].slice(1)];
  return literals;
}

function writeSegment(literals, style) {
  const extra = literals.length === 1 && isNuls(literals[0]) ? style.empty : "";
  return extra + literals.map((literal) => style.write(literal)).join("*");
}

function checkTopic(topic) {
  if (!topic) throw new InvalidValue("the topic is empty");
  if (LONE_SURROGATE.test(topic)) throw new InvalidValue("the topic has half of a surrogate pair");
  const direction = DIRECTION.exec(topic);
  if (direction) throw new InvalidValue(`the topic has the control character ${JSON.stringify(direction[0])}`);
  if (utf8Length(topic) > LIMITS.maxTopic) throw new InvalidValue(`the topic is longer than ${LIMITS.maxTopic} bytes`);
}

// Names of methods. Users may use any spelling: names are cut at `.` and `:` and folded as the hub folds them.

import { isText } from "./checks.js";
import { InvalidValue } from "./errors.js";
import { LIMITS, NAME_FORBIDDEN, NAME_HUMPS, NAME_STYLES } from "./tables.js";
import { utf8Length } from "./values/bytes.js";
import { LONE_SURROGATE } from "./values/json.js";

const FORBIDDEN = new RegExp(NAME_FORBIDDEN);
const HUMPS = new RegExp(NAME_HUMPS, "g");
const FOREIGN_SEPARATOR = /[:/]/;

/** Return how a protocol writes names: where it cuts them, what joins their segments, and its alphabet. */
export function nameStyle(protocol) {
  const { separators, separator, alphabet } = NAME_STYLES[protocol];
  return { cutAt: new RegExp(`[${separators}]`), separator, alphabet: alphabet && new RegExp(`^${alphabet}$`) };
}

/** Return the folded form of a name, such as `account.get_balance`; InvalidValue if it is not a name. */
export function foldName(name, cutAt = /[.:]/) {
  if (!isText(name) || !name) throw new InvalidValue("the name is empty");
  checkLength(name);
  const text = name.normalize("NFC");
  if (FORBIDDEN.test(text) || LONE_SURROGATE.test(text)) {
    throw new InvalidValue(`the name ${JSON.stringify(name)} has a character that no method name may have`);
  }
  const segments = text.split(cutAt).map((segment) => {
    if (!segment) throw new InvalidValue(`the name ${JSON.stringify(name)} has an empty segment`);
    if (FOREIGN_SEPARATOR.test(segment)) {
      throw new InvalidValue(`the segment ${JSON.stringify(segment)} has a separator of another protocol`);
    }
    const lower = segment.replace(HUMPS, "_").replace(/[A-Z]/g, (char) => char.toLowerCase());
    return lower.replace(/[- ]/g, "_").normalize("NFC");
  });
  return checkLength(segments.join("."));
}

function checkLength(name) {
  if (utf8Length(name) > LIMITS.maxName) throw new InvalidValue(`the name is longer than ${LIMITS.maxName} bytes`);
  return name;
}

/** Return a name, or a prefix that ends in a separator, in the style of a protocol: unchanged if that is possible. */
export function spellName(name, { alphabet, separator }) {
  if (!name || !alphabet || alphabet.test(name)) return name;
  const isPrefix = /[.:]$/.test(name);
  const folded = foldName(isPrefix ? name.slice(0, -1) : name);
  const spelled = folded.replaceAll(".", separator) + (isPrefix ? separator : "");
  if (!alphabet.test(spelled)) {
    throw new InvalidValue(`the name ${JSON.stringify(name)} has characters that the protocol cannot write`);
  }
  return spelled;
}

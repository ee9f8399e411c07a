// Topics for people are written as UMQ writes them, as in the settings and in `hub.traffic`. This page speaks lrpm, whose
// topics have no more than small letters, digits and `_`: every other byte is `__hh` there (docs/crossing.md).

const NARROW = /_(?![a-z0-9])|(?<![a-z0-9])_|[^a-z0-9_]/gu;
const hex = (byte) => byte.toString(16).padStart(2, "0");
const bytesOf = (text) => [...new TextEncoder().encode(text)];
const fromHex = (digits) => {
  const bytes = digits.match(/../g).map((each) => Number.parseInt(each, 16));
  return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(new Uint8Array(bytes));
};

const narrow = (text) => text.replace(NARROW, (found) => bytesOf(found).map((each) => `__${hex(each)}`).join(""));
const wide = (text) => text.replace(/[%.*\u0000-\u001f\u007f-\u009f]/g, (found) => (
  bytesOf(found).map((each) => `%${hex(each).toUpperCase()}`).join("")
));
const isBlank = (segment) => /^\0*$/.test(segment);

/** A topic or a pattern as lrpm writes it; an error with a sentence if it is none. */
export function toLrpm(text) {
  if (text === "") throw new Error("a topic has at least one character");
  const parts = text.split(".").map((level) => {
    const pieces = level.split("*").map((piece) => {
      if (/%(?![0-9A-Fa-f]{2})/.test(piece)) throw new Error("% is followed by two hexadecimal digits in a topic");
      try {
        return piece.replace(/(?:%[0-9A-Fa-f]{2})+/g, (found) => fromHex(found.replaceAll("%", "")));
      } catch {
        throw new Error(`${piece} is not UTF-8`);
      }
    });
    const extra = pieces.length === 1 && isBlank(pieces[0]) ? "__00" : "";
    return extra + pieces.map(narrow).join("*");
  });
  return parts.join(".");
}

/** A topic that came in lrpm, as people read it; as it is, if it is none. */
export function fromLrpm(text) {
  try {
    return text.split(".").map((level) => {
      const read = level.replace(/(?:__[0-9a-f]{2})+/g, (found) => fromHex(found.replaceAll("_", "")));
      return wide(isBlank(read) ? read.slice(1) : read);
    }).join(".");
  } catch {
    return text;
  }
}

// Base91 (NQ-a12): 13 or 14 bits in two characters, low bits first.

import { InvalidValue } from "../errors.js";
import { BASE91_ALPHABET } from "../tables.js";

const DIGITS = new Map(Array.from(BASE91_ALPHABET, (char, at) => [char, at]));
const BASE = BASE91_ALPHABET.length;
const LAST_WIDE = BASE * BASE - (1 << 13) - 1; // two characters hold 89 values more than 13 bits have

export function encodeBase91(bytes) {
  const chars = [];
  let bits = 0;
  let count = 0;
  const put = (group) => chars.push(BASE91_ALPHABET[group % BASE], BASE91_ALPHABET[Math.floor(group / BASE)]);
  for (const byte of bytes) {
    bits |= byte << count;
    count += 8;
    if (count <= 13) continue;
    const isWide = (bits & 0x1fff) <= LAST_WIDE;
    put(bits & (isWide ? 0x3fff : 0x1fff));
    bits >>= isWide ? 14 : 13;
    count -= isWide ? 14 : 13;
  }
  if (count > 0) {
    chars.push(BASE91_ALPHABET[bits % BASE]);
    if (count > 7 || bits >= BASE) chars.push(BASE91_ALPHABET[Math.floor(bits / BASE)]);
  }
  return chars.join("");
}

export function decodeBase91(text) {
  const bytes = [];
  let bits = 0;
  let count = 0;
  let low = -1;
  for (const char of text) {
    const digit = DIGITS.get(char);
    if (digit === undefined) throw new InvalidValue("$base91 has a foreign character");
    if (low < 0) {
      low = digit;
      continue;
    }
    const group = low + digit * BASE;
    low = -1;
    bits |= group << count;
    count += (group & 0x1fff) > LAST_WIDE ? 13 : 14;
    for (; count > 7; count -= 8, bits >>= 8) bytes.push(bits & 0xff);
  }
  if (low >= 0) bytes.push((bits | (low << count)) & 0xff);
  const decoded = Uint8Array.from(bytes);
  // The last character may have added one byte too many.
  const candidates = [decoded, decoded.subarray(0, -1)];
  const exact = candidates.find((candidate) => encodeBase91(candidate) === text);
  if (!exact) throw new InvalidValue("$base91 does not encode back to itself");
  return exact.slice();
}

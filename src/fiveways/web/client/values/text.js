// Values as UMQ carries them: JSON, but a text that is not JSON itself is sent without quotes.

import { isText } from "../checks.js";
import { parseJson, writeJson } from "./json.js";
import { decodeMarkers } from "./markers.js";

export function encodeText(value) {
  const json = writeJson(value);
  if (!isText(value)) return json;
  try {
    parseJson(value);
    return json;
  } catch {
    return value;
  }
}

/** Return the value of a text; InvalidValue for JSON with a marker that cannot be decoded. */
export function decodeText(text) {
  let value;
  try {
    value = parseJson(text);
  } catch {
    return text;
  }
  return decodeMarkers(value);
}

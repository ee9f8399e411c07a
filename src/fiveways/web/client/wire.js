// Encodings of values, names and topics, for tests that compare them with the Python implementation.

import { foldName } from "./method_names.js";
import { DOTTED_TOPICS, LRPM_TOPICS, NQ_TOPICS, rewriteTopic } from "./topics.js";
import { decodeBase91, encodeBase91 } from "./values/base91.js";
import { parseJson, writeJson } from "./values/json.js";
import { decodeMarkers } from "./values/markers.js";
import { decodeText, encodeText } from "./values/text.js";

/** Not part of the public interface. */
export const wire = {
  parseJson,
  writeJson,
  decodeMarkers,
  encodeText,
  decodeText,
  encodeBase91,
  decodeBase91,
  foldName,
  rewriteTopic,
  topicStyles: { umq: DOTTED_TOPICS, lrpm: LRPM_TOPICS, nq: NQ_TOPICS },
};

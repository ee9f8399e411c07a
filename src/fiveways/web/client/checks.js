// Type checks and conversions that all modules use.

const MAX_SENTENCE = 1000;

export const isText = (value) => typeof value === "string";
export const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
export const isCount = (value) => Number.isSafeInteger(value) && value >= 0;
export const textOr = (value, fallback) => (isText(value) ? value : fallback);

/** Shorten a text of the hub for an error message. */
export const shorten = (text) => (text.length > MAX_SENTENCE ? `${text.slice(0, MAX_SENTENCE)}...` : text);

/** Return a text that every protocol can carry: shortened, and with `?` for halves of surrogate pairs. */
export const toSendableText = (text) => shorten(String(text)).replace(/\p{Surrogate}/gu, "?");

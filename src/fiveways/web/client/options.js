// Options of `connect`.

import { CONNECT_DEFAULTS } from "./tables.js";

const DEFAULT_OPTIONS = {
  ...CONNECT_DEFAULTS,
  token: "",
  identity: "",
  secret: "",
  WebSocket: undefined,
  fetch: undefined,
};

/** Return the options with their defaults; TypeError for unknown options and impossible combinations. */
export function readOptions(address, options) {
  const unknown = Object.keys(options).filter((key) => !Object.hasOwn(DEFAULT_OPTIONS, key));
  const known = Object.keys(DEFAULT_OPTIONS).join(", ");
  if (unknown.length) throw new TypeError(`unknown option ${unknown.join(", ")}; connect takes ${known}`);
  const settings = { ...DEFAULT_OPTIONS, ...options };
  checkLogin(settings, address.protocol);
  settings.WebSocket ??= globalThis.WebSocket;
  settings.fetch ??= (...args) => globalThis.fetch(...args);
  if (address.transport.startsWith("ws") && !settings.WebSocket) {
    throw new TypeError("this environment has no WebSocket: pass one as the option `WebSocket`");
  }
  return settings;
}

function checkLogin({ token, identity, secret }, protocol) {
  if (Boolean(identity) !== Boolean(secret)) throw new TypeError("`identity` and `secret` must be set together");
  if (identity && token) throw new TypeError("set `token`, or `identity` and `secret`, but not both");
  if (identity && protocol !== "lrpm") throw new TypeError("`identity` and `secret` are for LRPM only: use `token`");
}

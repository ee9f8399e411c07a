// The entry of the client.

import { Peer } from "./peer.js";

/**
 * Open a connection to a hub: `const peer = await connect("lrpm+ws://localhost:7500")`.
 *
 * @param {string} url `umq+ws://`, `lrpm+ws://`, `nq+ws://` or `nq+http://`, then host and port; with TLS `+wss://` or
 *   `+https://`. The default port is 7500, or 443 with TLS, and the default path is that of the protocol at a hub.
 * @param {{token?: string, identity?: string, secret?: string, timeout?: number, reconnect?: boolean,
 *   backoff?: [number, number], keepalive?: number, openTimeout?: number, maxText?: number, WebSocket?: any,
 *   fetch?: typeof fetch}} [options] times are seconds; docs/javascript.md explains each
 * @returns {Promise<Peer>} rejected with a TypeError if the URL or an option is invalid, with `Refused` if the hub
 *   refuses the client, with `ConnectionLost` if it cannot be reached
 */
export function connect(url, options = {}) {
  return Peer.open(url, options);
}

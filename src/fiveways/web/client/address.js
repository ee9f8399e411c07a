// Client URLs: protocol, transport, host, port and path of a hub.

import { ENDPOINTS } from "./tables.js";

const LOCATION = /^(\[[\da-fA-F:.]+\]|[^:/?#@[\]]+)(?::(\d+))?(\/[^?#]*)?(\?[^#]*)?$/;

/** Read a client URL such as `lrpm+ws://localhost:7500`; TypeError if it is invalid. */
export function parseAddress(url) {
  const given = String(url);
  const [, protocol = "", transport = "", rest = ""] = /^([a-z0-9-]+)\+([a-z]+):\/\/(.*)$/.exec(given) ?? [];
  const endpoint = Object.hasOwn(ENDPOINTS, protocol) ? ENDPOINTS[protocol] : null;
  if (!endpoint || !Object.hasOwn(endpoint.ports, transport)) {
    throw new TypeError(`${JSON.stringify(given)} is not a URL of this client; known are ${knownSchemes().join(", ")}`);
  }
  const [, host, port, path = "", query = ""] = LOCATION.exec(rest) ?? [];
  if (!host) throw new TypeError(`the URL has no host; a URL looks like ${protocol}+${transport}://localhost:7500`);
  if (/[?&]encoding=(?!json)/.test(query)) throw new TypeError("this client supports LRPM in JSON only");
  const location = `${host}:${port ?? endpoint.ports[transport]}${path.length > 1 ? path : endpoint.path}`;
  const address = `${transport}://${location}${query.replace(/([?&])encoding=json/, "$1")}`;
  return { protocol, transport, given, url: address, subprotocol: endpoint.subprotocol };
}

function knownSchemes() {
  const schemesOf = ([protocol, { ports }]) => Object.keys(ports).map((transport) => `${protocol}+${transport}://`);
  return Object.entries(ENDPOINTS).flatMap(schemesOf);
}

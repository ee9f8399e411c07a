// Where the hub is: where the page came from.

/** The address of the hub for clients, from that of the page; always with a port, as clients have another usual one. */
export function hubAt({ protocol, hostname, port }) {
  const isSafe = protocol === "https:";
  return `lrpm+${isSafe ? "wss" : "ws"}://${hostname}:${port || (isSafe ? 443 : 80)}`;
}

export const HUB = hubAt(location);

/** The same for this page: an observer, whose own traffic the hub does not count as load. */
export const OBSERVED = `${HUB}?observer`;

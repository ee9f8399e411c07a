// A transport over WebSocket. It calls back `opened()`, `received(data)` and, once, `closed(reason)`.

import { isText } from "../checks.js";
import { encodeBase64, encodeUtf8 } from "../values/bytes.js";
import { sleep } from "../timing.js";

const HIGH_WATER_MARK = 1 << 20; // buffered bytes at which a stream of this client waits
const DRAIN_INTERVAL = 0.01; // seconds
const OPEN = 1;

export class WebSocketTransport {
  isBusy = false;
  #socket;
  #hasOpened = false;

  constructor(url, subprotocols, WebSocket, { opened, received, closed }) {
    const socket = (this.#socket = new WebSocket(url, subprotocols));
    socket.binaryType = "arraybuffer";
    socket.onopen = () => {
      this.#hasOpened = true;
      opened();
    };
    socket.onmessage = ({ data }) => received(isText(data) ? data : new Uint8Array(data));
    // An error event has no details. Some implementations send no close event after it if the socket never was open.
    socket.onerror = () => this.#hasOpened || closed("no hub answers there, or it refuses the connection");
    socket.onclose = ({ reason, code }) => closed(reason || `the connection was lost${code ? ` (${code})` : ""}`);
  }

  /** Bytes that are not sent yet. */
  get bufferedBytes() {
    return this.#socket.bufferedAmount ?? 0;
  }

  /** Wait until the send buffer is below the high-water mark. */
  async drained() {
    while (this.bufferedBytes > HIGH_WATER_MARK && this.#socket.readyState === OPEN) await sleep(DRAIN_INTERVAL);
  }

  send(data) {
    if (this.#socket.readyState === OPEN) this.#socket.send(data);
  }

  close() {
    this.#socket.close();
  }
}

/** Return the subprotocol that carries a token: pages cannot set headers of a WebSocket, and proxies log URLs. */
export function tokenSubprotocol(token) {
  const encoded = encodeBase64(encodeUtf8(token)).replace(/\+/g, "-").replace(/\//g, "_").replace(/=/g, "");
  return `bearer.${encoded}`;
}

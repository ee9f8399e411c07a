// Outgoing packets of NQ: messages are encoded, numbered, and sent in batches.

import { MAX_UNSENT } from "../conversation.js";
import { LIMITS } from "../tables.js";
import { toHex, utf8Length } from "../values/bytes.js";
import { writeJson } from "../values/json.js";
import { base91Marker } from "../values/markers.js";

const MAX_DEPTH = LIMITS.maxDepth + 1; // a body inside a message

export class PacketWriter {
  #conversation;
  #idPrefix = toHex(crypto.getRandomValues(new Uint8Array(8)));
  #lastId = 0;
  #messages = [];
  #isFlushScheduled = false;

  constructor(conversation) {
    this.#conversation = conversation;
  }

  /** Return an identifier that no peer has used. */
  newId() {
    this.#lastId += 1;
    return `${this.#idPrefix}-${this.#lastId.toString(16)}`;
  }

  /** Encode a message; a CallError if it is too large for a packet. */
  encode(message) {
    const raw = writeJson(message, base91Marker, MAX_DEPTH);
    this.#conversation.checkSize(raw);
    return raw;
  }

  send(message) {
    this.sendEncoded(writeJson(message, base91Marker, MAX_DEPTH));
  }

  /** Send a message with the next packet. Without a transport it is dropped, and retransmitted later. */
  sendEncoded(raw) {
    if (!this.#conversation.transport) return;
    this.#messages.push(raw);
    if (this.#isFlushScheduled) return;
    this.#isFlushScheduled = true;
    queueMicrotask(() => this.flush());
  }

  /** Send all messages in as few packets as the limits allow. A busy transport calls this again when it is ready. */
  flush(isUrgent = false) {
    this.#isFlushScheduled = false;
    const { transport, settings } = this.#conversation;
    if (transport?.isBusy && !isUrgent) return;
    let batch = [];
    let room = settings.maxText;
    const sendBatch = () => {
      const packet = batch.length === 1 ? batch[0] : `[${batch.join(",")}]`;
      // If the send buffer is full, the packet is dropped and retransmitted later.
      if (batch.length && transport && transport.bufferedBytes <= MAX_UNSENT) transport.send(packet);
      [batch, room] = [[], settings.maxText];
    };
    for (const raw of this.#messages.splice(0)) {
      const size = raw.length * 3 < room ? raw.length * 3 : utf8Length(raw) + 1;
      if (size >= room || batch.length === LIMITS.maxBatch) sendBatch();
      batch.push(raw);
      room -= size;
    }
    sendBatch();
  }

  clear() {
    this.#messages = [];
  }
}

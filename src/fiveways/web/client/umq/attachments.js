// Incoming attachments of UMQ: binary frames that follow the message that announces them.

import { ProtocolError } from "../errors.js";
import { LIMITS } from "../tables.js";

/** Messages that wait for attachments, and later messages about the same subject, which must not overtake them. */
export class AttachmentQueue {
  #messages = [];

  /** Deliver a message when its attachments are complete and no message about the same subject is before it. */
  add(count, subject, deliver) {
    if (count === 0 && !this.#messages.some((message) => message.subject === subject)) {
      deliver([]);
      return;
    }
    if (this.#messages.length >= LIMITS.maxExpectedAttachments) throw new ProtocolError("too many missing attachments");
    this.#messages.push({ count, subject, deliver, attachments: [] });
  }

  /** Add an attachment to the first incomplete message; null is one that failed. */
  receive(bytes) {
    const owner = this.#messages.find((message) => message.attachments.length < message.count);
    if (!owner) throw new ProtocolError("an unexpected binary frame");
    owner.attachments.push(bytes);
    for (let message = this.#takeReady(); message; message = this.#takeReady()) message.deliver(message.attachments);
  }

  clear() {
    this.#messages = [];
  }

  #takeReady() {
    const waiting = new Set();
    for (const [at, message] of this.#messages.entries()) {
      if (message.attachments.length === message.count && !waiting.has(message.subject)) {
        return this.#messages.splice(at, 1)[0];
      }
      waiting.add(message.subject);
    }
    return null;
  }
}

// Jobs of work queues.

import { toSendableText } from "./checks.js";

/** A job from a work queue. Unless `done()` acknowledges it, the hub delivers it to another worker. */
export class Job {
  #send;

  constructor(data, attachments, send) {
    this.data = data;
    this.attachments = attachments;
    this.#send = send;
  }

  /** Acknowledge the job; ConnectionLost if the session has ended, so that the hub redelivers it. */
  async done(value = null) {
    this.#sendOnce((conversation, id) => conversation.respond(id, value, []));
  }

  /** Report that the job failed, so that the hub redelivers it. */
  async fail(text = "") {
    const failure = { reason: "raised", text: toSendableText(text) };
    this.#sendOnce((conversation, id) => conversation.sendError(id, failure));
  }

  #sendOnce(respond) {
    const send = this.#send;
    this.#send = null;
    send?.(respond);
  }
}

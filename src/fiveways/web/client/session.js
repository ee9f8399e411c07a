// One session: a conversation, its transport, and how it opens and ends.

import { createDeferred, now } from "./timing.js";

export class Session {
  conversation;
  transport = null;
  /** Resolved when the hub has accepted the session. */
  opened = createDeferred();
  /** Resolved with the error for which the session ended. */
  ended = createDeferred();
  /** The error that is known before the transport closes. */
  endReason = null;
  hasEnded = false;
  openedAt = 0;
  lastReceivedAt = 0;
  #keepaliveTimer = null;

  constructor(conversation) {
    this.conversation = conversation;
  }

  /** Seconds without a message of the hub. */
  get silence() {
    return now() - this.lastReceivedAt;
  }

  begin() {
    this.openedAt = this.lastReceivedAt = now();
  }

  startKeepalive(interval, check) {
    this.#keepaliveTimer = setInterval(check, interval * 1000);
  }

  end(error) {
    this.hasEnded = true;
    clearInterval(this.#keepaliveTimer);
    this.conversation.detach();
    this.opened.reject(error);
  }
}

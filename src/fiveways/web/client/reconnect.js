// The reconnector: it opens the session, and opens another one when a connection is lost.

import { CallError, ConnectionLost, ProtocolError, Refused, cancelledError, sendIfPossible } from "./errors.js";
import { LrpmConversation } from "./lrpm/conversation.js";
import { NqConversation } from "./nq/conversation.js";
import { Session } from "./session.js";
import { LIMITS } from "./tables.js";
import { createDeferred, now, startTimer } from "./timing.js";
import { PollingTransport } from "./transports/polling.js";
import { WebSocketTransport, tokenSubprotocol } from "./transports/websocket.js";
import { UmqConversation } from "./umq/conversation.js";

const CONVERSATIONS = { umq: UmqConversation, lrpm: LrpmConversation, nq: NqConversation };

/**
 * Keeps a session open. Its owner has a `listener` for conversations, `isExpecting()`, `restore(session, abort)`,
 * `sessionLost(error)` for what ends with a session, `finished(error)` and `stateChanged(state, attempt, error, wait)`.
 */
export class Reconnector {
  /** The error for which no further connection is opened. */
  finalError = null;
  /** The session that is open and restored, or null. */
  session = null;
  /** The name of the session at the hub. */
  sessionName = "";
  #address;
  #settings;
  #owner;
  #current = null; // the last session, which may not be open yet
  #resumable = null; // the conversation that continues over all connections, if the protocol has sessions that do
  #waiters = new Set();
  #backoff;
  #endBackoff = () => {};

  constructor(address, settings, owner) {
    [this.#address, this.#settings, this.#owner] = [address, settings, owner];
    this.#backoff = settings.backoff[0];
  }

  /** Open the first session; ConnectionLost or Refused if that fails. */
  async start() {
    let session;
    try {
      session = await this.#openSession();
    } catch (error) {
      this.#finish(error);
      throw error;
    }
    this.#owner.stateChanged("open");
    this.#reconnectForever(session);
  }

  /** The conversation that takes requests, even if it has no connection now; or null. */
  get conversation() {
    return this.session?.conversation ?? this.#resumable;
  }

  /** Wait for a session until a deadline; return it and the seconds that are left. */
  async ready(deadline, signal) {
    while (!this.session) {
      if (this.finalError) throw new this.finalError.constructor(this.finalError.message);
      if (signal?.aborted) throw cancelledError(signal);
      if (this.#waiters.size >= LIMITS.maxPending) {
        throw new CallError("overloaded", `${LIMITS.maxPending} requests already wait for the connection`);
      }
      await this.#waitForChange(deadline, signal);
    }
    return { session: this.session, timeLeft: Math.max(0.001, deadline - now()) };
  }

  async #waitForChange(deadline, signal) {
    const waiter = createDeferred();
    this.#waiters.add(waiter);
    const error = new CallError("unavailable", `no connection to ${this.#address.given} before the timeout`);
    const timer = startTimer(Math.max(0, deadline - now()), () => waiter.reject(error));
    signal?.addEventListener("abort", waiter.resolve, { once: true });
    try {
      await waiter.promise;
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", waiter.resolve);
      this.#waiters.delete(waiter);
    }
  }

  /** Close the connection permanently. */
  async close() {
    const session = this.#current;
    const error = new ConnectionLost("the connection is closed");
    this.#finish(error, true);
    if (!session || session.hasEnded) return;
    session.endReason = error;
    sendIfPossible(() => session.conversation.goodbye());
    session.transport.close();
    const timer = startTimer(this.#settings.openTimeout, () => this.#onClosed(session, "the hub does not close it"));
    await session.ended.promise;
    clearTimeout(timer);
  }

  // Reports of a conversation.

  opened(sessionName) {
    this.sessionName = sessionName;
    this.#current.opened.resolve();
  }

  ended(text, isDenied) {
    this.#current.endReason = isDenied
      ? new Refused(text || "the hub refuses the credentials")
      : new ConnectionLost(text || "the hub closed the session");
    this.#current.transport.close();
  }

  // The life of a session.

  #newConversation() {
    if (this.#resumable) return this.#resumable;
    const conversation = new CONVERSATIONS[this.#address.protocol](this.#settings, this.#owner.listener);
    if (conversation.isResumable) this.#resumable = conversation;
    return conversation;
  }

  #newTransport(session) {
    const { url, transport, subprotocol } = this.#address;
    const { conversation } = session;
    const callbacks = {
      opened: () => session.hasEnded || conversation.attach(session.transport),
      received: (data) => this.#onReceived(session, data),
      closed: (reason) => this.#onClosed(session, reason),
      isExpecting: () => this.#owner.isExpecting(),
    };
    if (!transport.startsWith("ws")) return new PollingTransport(url, conversation, this.#settings, callbacks);
    const subprotocols = [subprotocol, ...this.#credentials(conversation)];
    return new WebSocketTransport(url, subprotocols, this.#settings.WebSocket, callbacks);
  }

  /** Return the subprotocols that carry token and session id of a resumable session. */
  #credentials(conversation) {
    if (!conversation.isResumable) return [];
    const token = this.#settings.token ? [tokenSubprotocol(this.#settings.token)] : [];
    return conversation.peerId ? [...token, `nq-peer.${conversation.peerId}`] : token;
  }

  /** Connect, and wait until the hub accepts the session. */
  async #connect() {
    const { given } = this.#address;
    const { openTimeout, keepalive } = this.#settings;
    const session = new Session(this.#newConversation());
    this.#current = session;
    try {
      session.transport = this.#newTransport(session);
    } catch (error) {
      throw new ConnectionLost(`cannot connect to ${given}: ${error.message}`);
    }
    const error = new ConnectionLost(`${given} did not answer the handshake within ${openTimeout} seconds`);
    const timer = startTimer(openTimeout, () => this.#abort(session, error));
    try {
      await session.opened.promise;
    } finally {
      clearTimeout(timer);
    }
    if (session.hasEnded) throw await session.ended.promise;
    session.begin();
    if (session.transport instanceof WebSocketTransport) {
      session.startKeepalive(keepalive, () => this.#checkSilence(session));
    }
    return session;
  }

  /** Send a keepalive to a silent hub; after two intervals of silence the connection is lost. */
  #checkSilence(session) {
    const { keepalive } = this.#settings;
    const { silence, conversation } = session;
    if (silence > 2 * keepalive) this.#abort(session, new ConnectionLost("the hub is silent"));
    else if (silence > 0.9 * keepalive) sendIfPossible(() => conversation.ping(this.#owner.listener.newId()));
  }

  #onReceived(session, data) {
    if (session.hasEnded) return;
    session.lastReceivedAt = now();
    try {
      session.conversation.receive(data);
    } catch (error) {
      const isFaultOfHub = error instanceof ProtocolError || error instanceof CallError;
      if (!isFaultOfHub) console.error("fiveways.js failed to process a message of the hub", error);
      sendIfPossible(() => session.conversation.reportFault(error.message));
      this.#abort(session, new ConnectionLost(`the hub broke the protocol: ${error.message}`));
    }
  }

  #abort(session, error) {
    session.endReason ??= error;
    session.transport?.close();
    this.#onClosed(session, error.message);
  }

  #onClosed(session, reason) {
    if (session.hasEnded) return;
    const error = session.endReason ?? new ConnectionLost(`${this.#address.given}: ${reason}`);
    session.end(error);
    if (this.session === session) this.session = null;
    if (!session.conversation.isResumable) this.#owner.sessionLost(error);
    session.ended.resolve(error);
  }

  /** Connect, restore registrations and subscriptions, and resume the requests that wait for a session. */
  async #openSession() {
    const session = await this.#connect();
    const { conversation } = session;
    if (!conversation.isResumed) {
      await this.#owner.restore(session, (error) => this.#abort(session, error));
      conversation.restored();
    }
    if (this.finalError || session.hasEnded) throw this.finalError ?? (await session.ended.promise);
    this.session = session;
    for (const waiter of this.#waiters) waiter.resolve();
    return session;
  }

  /** Open one session after another, until one is refused, or the client is closed or must not reconnect. */
  async #reconnectForever(session) {
    const { reconnect, backoff } = this.#settings;
    while (session) {
      const error = await session.ended.promise;
      if (!reconnect || error instanceof Refused) this.#finish(error);
      if (now() - session.openedAt > backoff[1]) this.#backoff = backoff[0];
      session = await this.#reconnect(error);
    }
  }

  /** Retry with exponential backoff. The waits are random, because many clients lose a hub at the same time. */
  async #reconnect(error) {
    for (let attempt = 1; !this.finalError; attempt += 1) {
      const wait = Math.random() * this.#backoff;
      this.#owner.stateChanged("waiting", attempt, error, wait);
      this.#backoff = Math.min(2 * this.#backoff, this.#settings.backoff[1]);
      await this.#waitForBackoff(wait);
      if (this.finalError) break;
      this.#owner.stateChanged("connecting", attempt);
      try {
        const session = await this.#openSession();
        this.#owner.stateChanged("open", attempt);
        return session;
      } catch (failure) {
        error = failure;
        if (error instanceof Refused) this.#finish(error);
      }
    }
    return null;
  }

  #waitForBackoff(wait) {
    return new Promise((resolve) => {
      const timer = startTimer(wait, resolve);
      this.#endBackoff = () => resolve(clearTimeout(timer));
    });
  }

  #finish(error, isIntended = false) {
    if (this.finalError) return;
    this.finalError = error;
    this.session = null;
    this.#owner.sessionLost(error);
    this.#owner.finished(isIntended ? null : error);
    for (const waiter of this.#waiters) waiter.resolve();
    this.#endBackoff();
    this.#owner.stateChanged("closed", 0, isIntended ? null : error);
  }
}

// A transport over HTTP with long polling: packets are posted, and the hub's packets arrive in the responses.

import { shorten } from "../checks.js";
import { now, sleep, startTimer } from "../timing.js";

const EMPTY_PACKET = "[]";
const POLL_TIMEOUT = 20; // seconds that the hub may hold a poll without a packet
const REORDER_TIMEOUT = 5; // seconds that a response waits for the one before it, which may be lost
const CLOSE_TIMEOUT = 2; // seconds for sending queued packets
const MAX_ERROR_TEXT = 200;

export class PollingTransport {
  bufferedBytes = 0;
  #url;
  #conversation;
  #settings;
  #callbacks;
  #queue = [];
  #isSending = false;
  #isPolling = false;
  #isAccepted = false;
  #isClosing = false;
  #isClosed = false;
  #postCount = 0;
  #inFlight = 0; // requests whose responses are not delivered yet, at most 2
  #lastDelivered = 0; // the highest number of a delivered response
  #deliverNext = null; // resumes the response that waits for its predecessor
  #closeTimer = null;
  #abort = new AbortController();

  /** `callbacks` has `opened()`, `received(data)`, `closed(reason)`, and `isExpecting()`: if false, do not poll. */
  constructor(url, conversation, settings, callbacks) {
    [this.#url, this.#conversation, this.#settings, this.#callbacks] = [url, conversation, settings, callbacks];
    queueMicrotask(callbacks.opened);
  }

  async drained() {}

  send(data) {
    if (this.#isClosed || this.#isClosing) return;
    this.#queue.push(data);
    this.bufferedBytes += data.length;
    this.#sendQueue();
  }

  /** Close after the queued packets are sent. */
  close() {
    this.#isClosing = true;
    if (!this.#isSending && !this.#queue.length) this.#end("closed");
    else this.#closeTimer = startTimer(CLOSE_TIMEOUT, () => this.#end("closed"));
  }

  /** Whether a post is in flight. Messages meanwhile are sent together in the next one. */
  get isBusy() {
    return this.#isSending;
  }

  async #sendQueue() {
    if (this.#isSending) return;
    while (this.#queue.length && !this.#isClosed) {
      this.#isSending = true;
      const body = this.#queue.shift();
      this.#postCount += 1;
      await this.#exchange("", body, this.#settings.openTimeout);
      this.bufferedBytes -= body.length;
      this.#isSending = false;
      if (!this.#queue.length && !this.#isClosing) this.#conversation.flush();
    }
    if (this.#isClosing) this.#end("closed");
    else this.#poll();
  }

  /** Poll as long as the client expects messages. */
  async #poll() {
    if (this.#isPolling) return;
    this.#isPolling = true;
    while (this.#isAccepted && !this.#isClosed && !this.#isClosing && this.#callbacks.isExpecting()) {
      const [startedAt, postCount, isSending] = [now(), this.#postCount, this.#isSending];
      const timeout = POLL_TIMEOUT + this.#settings.openTimeout;
      const response = await this.#exchange(`wait=${POLL_TIMEOUT}`, EMPTY_PACKET, timeout);
      // A post meanwhile is a reason for the hub to respond at once. Otherwise an empty response must not cause a loop.
      const wasIdle = postCount === this.#postCount && !isSending;
      if (response?.body === EMPTY_PACKET && now() - startedAt < 1 && wasIdle) await sleep(1);
    }
    this.#isPolling = false;
  }

  /** Post a packet and deliver the response. Responses on two connections are put in order by their numbers. */
  async #exchange(query, body, timeout) {
    this.#inFlight += 1;
    const response = await this.#post(query, body, timeout);
    if (this.#inFlight > 1 && this.#lastDelivered > 0 && response?.number > this.#lastDelivered + 1) {
      await new Promise((resolve) => {
        this.#deliverNext = resolve;
        startTimer(REORDER_TIMEOUT, resolve);
      });
    }
    this.#inFlight -= 1;
    this.#deliver(response);
    this.#lastDelivered = Math.max(this.#lastDelivered, response?.number ?? 0);
    this.#deliverNext?.();
    return response;
  }

  async #post(query, body, timeout) {
    const { token } = this.#settings;
    const { peerId } = this.#conversation;
    const headers = { "Content-Type": "application/json" };
    if (token) headers.Authorization = `Bearer ${token}`;
    if (peerId) headers["NQ-Peer"] = peerId;
    const controller = new AbortController();
    const abort = () => controller.abort();
    const timer = startTimer(timeout, abort);
    this.#abort.signal.addEventListener("abort", abort);
    const url = query ? addQuery(this.#url, query) : this.#url;
    try {
      const { signal } = controller;
      const request = { method: "POST", headers, body, signal, credentials: "omit", cache: "no-store" };
      const response = await this.#settings.fetch(url, request);
      const text = await response.text();
      const number = Number(response.headers.get("NQ-Answer")) || 0;
      return { status: response.status, peerId: response.headers.get("NQ-Peer"), number, body: text };
    } catch (error) {
      const isTimeout = controller.signal.aborted && !this.#abort.signal.aborted;
      const reason = `the hub cannot be reached, or does not allow this page: ${error.message}`;
      this.#end(isTimeout ? `no response within ${timeout} seconds` : reason);
      return null;
    } finally {
      clearTimeout(timer);
      this.#abort.signal.removeEventListener("abort", abort);
    }
  }

  #deliver(response) {
    if (!response || this.#isClosed) return;
    const errorText = () => shorten(response.body.slice(0, MAX_ERROR_TEXT).trim());
    if (response.status === 401) {
      const denied = { type: "sys", fatal: true, note: "denied", text: errorText() };
      this.#callbacks.received(JSON.stringify({ e: denied }));
    } else if (response.status !== 200) {
      this.#end(`refused: ${response.status} ${errorText()}`);
    } else {
      this.#isAccepted = true;
      if (response.peerId) this.#conversation.identify(response.peerId);
      if (response.body !== EMPTY_PACKET) this.#callbacks.received(response.body);
    }
  }

  #end(reason) {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#queue = [];
    clearTimeout(this.#closeTimer);
    this.#abort.abort();
    this.#callbacks.closed(reason);
  }
}

const addQuery = (url, query) => `${url}${url.includes("?") ? "&" : "?"}${query}`;

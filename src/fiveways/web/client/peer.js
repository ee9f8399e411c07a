// The peer: the connection to a hub as users see it.

import { isCount, isObject, isText } from "./checks.js";
import { CallError, cancelledError, toCallError } from "./errors.js";
import { parseAddress } from "./address.js";
import { Callee } from "./callee.js";
import { Caller } from "./calls.js";
import { foldName } from "./method_names.js";
import { readOptions } from "./options.js";
import { PendingRequests } from "./pending_requests.js";
import { Reconnector } from "./reconnect.js";
import { restoreSession } from "./restore.js";
import { EventBuffer, Subscription } from "./subscriptions.js";
import { checkedTimeout, createDeferred, startTimer } from "./timing.js";
import { VariableStore, setVariableRequest } from "./variables.js";

/** A change of the connection; `detail` is `{state, attempt, error, wait}`, with the seconds until the next attempt. */
class StateEvent extends Event {
  constructor(detail) {
    super("state");
    this.detail = detail;
  }
}

/**
 * One connection to a hub, opened by `connect`. It reconnects by itself, and restores methods, subscriptions and
 * variables. `peer.addEventListener("state", ...)` reports each change of the connection.
 */
export class Peer extends EventTarget {
  /** Variables of the session, which all peers can read at the hub. They are restored after a reconnect. */
  vars;
  #settings;
  #address;
  #state = "connecting";
  #requests = new PendingRequests();
  #callee = new Callee(this, this.#requests);
  #variables = new VariableStore();
  #subscriptions = new Map(); // by name: { buffer, request, isGranted, ... }
  #reconnector;
  #caller;

  constructor(address, settings) {
    super();
    [this.#address, this.#settings] = [address, settings];
    this.#reconnector = new Reconnector(address, settings, this.#reconnectorOwner());
    this.#caller = new Caller(this.#reconnector, this.#requests, settings);
    this.vars = this.#publicVariables();
  }

  /** Open a connection; `connect` is the same. */
  static async open(url, options = {}) {
    const address = parseAddress(url);
    const peer = new Peer(address, readOptions(address, options));
    await peer.#reconnector.start();
    return peer;
  }

  /** The URL of the hub. */
  get url() {
    return this.#address.given;
  }

  /** The protocol: umq, lrpm-json or nq. */
  get protocol() {
    return this.#address.protocol === "lrpm" ? "lrpm-json" : this.#address.protocol;
  }

  /** The name of the session at the hub, another one after a reconnect; empty in NQ. */
  get session() {
    return this.#reconnector.sessionName;
  }

  /** @returns {"connecting" | "open" | "waiting" | "closed"} */
  get state() {
    return this.#state;
  }

  // Calls.

  /**
   * Call a method and return its result: `await peer.call("math.add", [2, 3], { timeout: 1 })`.
   *
   * An object as body is named arguments, an array positional ones. An `idempotent` call is repeated if the connection
   * is lost before its response arrives.
   *
   * @param {string} name
   * @param {unknown} [body]
   * @param {{timeout?: number, attachments?: Uint8Array[], onProgress?: (note: {value: unknown, text: string,
   *   kind: string, code: string}) => void, signal?: AbortSignal, idempotent?: boolean}} [options]
   * @returns {Promise<any>}
   */
  async call(name, body = null, options = {}) {
    return (await this.#caller.call(name, body, options)).value;
  }

  /**
   * Call a method and return its result with its attachments. If an attachment did not arrive, the call fails, with the
   * result as `error.data`.
   *
   * @returns {Promise<{value: any, attachments: Uint8Array[]}>}
   */
  async callReply(name, body = null, options = {}) {
    const reply = await this.#caller.call(name, body, options);
    if (reply.attachments.includes(null)) {
      throw new CallError("raised", "an attachment of the response did not arrive", { data: reply.value });
    }
    return reply;
  }

  /**
   * Call a method and yield the parts of its result: `for await (const part of peer.stream("log.tail"))`.
   *
   * If the result arrives as one array, its elements are yielded; any other result is the only part. Leaving the loop
   * cancels the call. It is also cancelled if more than `maxWaiting` parts wait to be read.
   *
   * @returns {AsyncGenerator<any, void, void>}
   */
  stream(name, body = null, options = {}) {
    return this.#caller.stream(name, body, options);
  }

  // Topics.

  /** Publish data to all subscribers; with `retain` later subscribers get it too, as their first event. */
  async publish(topic, data = null, { retain = false, attachments, timeout } = {}) {
    const send = (conversation, id) => conversation.publish(id, topic, data, { retain, attachments });
    await this.#caller.request(send, timeout);
  }

  /**
   * Subscribe to a topic, or to all that match a pattern: `const events = await peer.subscribe("sensors.*.rain")`.
   *
   * `*` stands for one or more characters within a segment. `whenFull` is the policy of the hub for a slow consumer:
   * skip, close, unsubscribe or block. In the client `maxWaiting` events wait to be read; then the oldest is dropped.
   */
  async subscribe(pattern, { whenFull = "", maxWaiting = 1000 } = {}) {
    const name = String(this.#requests.newId());
    const buffer = new EventBuffer(pattern, maxWaiting);
    const record = {
      buffer,
      isGranted: false,
      request: (conversation, id) => conversation.subscribe(id, name, pattern, whenFull),
      onRestored: () => (buffer.restored += 1),
      onRefused: (error) => {
        buffer.end(error);
        this.#subscriptions.delete(name);
      },
    };
    this.#subscriptions.set(name, record); // before it is granted, because the first event may follow immediately
    try {
      await this.#caller.requestUntilAnswered(record.request);
    } catch (error) {
      this.#subscriptions.delete(name);
      throw error;
    }
    record.isGranted = true;
    return new Subscription(pattern, buffer, () => this.#unsubscribe(name));
  }

  #unsubscribe(name) {
    const { conversation } = this.#reconnector;
    if (this.#subscriptions.delete(name) && conversation) this.#sendUnsubscribe(conversation, name);
  }

  #sendUnsubscribe(conversation, name) {
    this.#requests.sendWithoutResponse(conversation, (_, id) => conversation.unsubscribe(id, name));
  }

  /** Close a topic: its subscriptions end, and its retained value is deleted. */
  async closeTopic(topic) {
    await this.#caller.requestUntilAnswered((conversation, id) => {
      conversation.call(id, "hub.close", { topic: conversation.spellTopic(topic) }, {});
    });
  }

  // Methods.

  /**
   * Register a function as a method: `await peer.register("shop.buy", async (body, context) => ...)`.
   *
   * `context` has the `attachments`, `progress(value, text)`, and a `signal` that aborts when no caller waits any more.
   * An error of the function is the error of the call; a generator function streams its result. The registration is
   * restored after a reconnect.
   *
   * @param {string} name
   * @param {(body: any, context: {method: string, attachments: (Uint8Array | null)[], signal: AbortSignal,
   *   progress: (value: unknown, text?: string) => void, peer: Peer}) => any} run
   * @param {{doc?: string, kind?: "unary" | "server", share?: string}} [options]
   */
  async register(name, run, { doc = "", kind, share = "" } = {}) {
    if (typeof run !== "function") throw new TypeError("a method must be a function");
    const isStream = kind ? kind === "server" : /GeneratorFunction$/.test(run.constructor?.name ?? "");
    const options = { ...(doc ? { doc } : {}), ...(isStream ? { kind: "server" } : {}), ...(share ? { share } : {}) };
    const folded = checkedName(name);
    const { registrations } = this.#callee;
    if (registrations.has(folded)) throw new TypeError(`the method ${folded} is already registered`);
    const request = (conversation, id) => conversation.register(id, name, options);
    const registration = { name, run, doc, isStream, request, isGranted: false };
    registrations.set(folded, registration); // before it is granted, because the first call may follow immediately
    try {
      await this.#caller.requestUntilAnswered(request);
    } catch (error) {
      registrations.delete(folded);
      throw error;
    }
    registration.isGranted = true;
  }

  /** Remove a registration; running calls are finished. */
  async unregister(name) {
    const folded = checkedName(name);
    const { registrations } = this.#callee;
    const registeredName = registrations.get(folded)?.name ?? name;
    registrations.delete(folded);
    await this.#caller.requestUntilAnswered((conversation, id) => conversation.unregister(id, registeredName));
  }

  /** Return a token by which any peer can call the function once: `call("callback." + token)`. */
  async callback(run) {
    if (typeof run !== "function") throw new TypeError("a callback must be a function");
    const callbackId = this.#callee.addCallback({ run });
    try {
      return String(await this.call("hub.callback", { id: callbackId })).toLowerCase();
    } catch (error) {
      this.#callee.removeCallback(callbackId);
      throw error;
    }
  }

  /**
   * List all methods, or those below a route (`account.`), or return the documentation of a method.
   *
   * @returns {Promise<{methods: string[], routes: string[], doc: string | null}>}
   */
  async discover(name = "") {
    const { value } = await this.#caller.requestUntilAnswered((conversation, id) => {
      conversation.call(id, "hub.discover", name ? { name: conversation.spellMethod(name) } : {}, {});
    });
    if (!isObject(value)) throw new CallError("raised", "the response of hub.discover is not an object");
    const texts = (list) => (Array.isArray(list) ? list.filter(isText) : []);
    return { methods: texts(value.methods), routes: texts(value.routes), doc: isText(value.doc) ? value.doc : null };
  }

  // Work queues.

  /** Push a job to a work queue; return the number of jobs that wait there now. */
  async push(queue, data = null) {
    const answer = await this.call("hub.push", { queue, data });
    return isObject(answer) && isCount(answer.waiting) ? answer.waiting : 0;
  }

  /**
   * Wait for a job: `const job = await peer.pull("thumbnails"); ...; await job.done()`. Without a timeout it waits
   * indefinitely.
   *
   * @param {string} queue @param {{timeout?: number, signal?: AbortSignal}} [options] @returns {Promise<Job>}
   */
  async pull(queue, { timeout, signal } = {}) {
    const failed = createDeferred();
    const error = new CallError("timeout", `no job arrived in ${JSON.stringify(queue)} within ${timeout} seconds`);
    const timer = timeout === undefined ? null : startTimer(checkedTimeout(timeout), () => failed.reject(error));
    const abort = () => failed.reject(cancelledError(signal));
    if (signal?.aborted) abort();
    signal?.addEventListener("abort", abort, { once: true });
    try {
      for (;;) {
        const job = await this.#pullOnce(queue, failed.promise);
        if (job) return job;
      }
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", abort);
    }
  }

  /** Pull on the session that is open; return null if it is lost. */
  async #pullOnce(queue, failed) {
    const job = createDeferred();
    const callbackId = this.#callee.addCallback({ job });
    try {
      await Promise.race([this.call("hub.pull", { queue, callback: callbackId }), failed]);
      return await Promise.race([job.promise, failed]);
    } catch (error) {
      const isLost = error instanceof CallError && error.reason === "lost";
      if (!isLost || this.#reconnector.finalError) throw error;
      return null;
    } finally {
      this.#callee.removeCallback(callbackId);
    }
  }

  /** Close the connection permanently; subscriptions end, and pending calls are lost. */
  async close() {
    if (this.#reconnector.finalError) return;
    const { session } = this.#reconnector;
    if (session?.conversation.isResumable) await this.#withdraw(session.conversation);
    await this.#reconnector.close();
  }

  /** Remove subscriptions and registrations at a hub that would keep them for the session to resume. */
  async #withdraw(conversation) {
    for (const name of this.#subscriptions.keys()) this.#sendUnsubscribe(conversation, name);
    const unregister = ({ name }) => {
      const send = (_, id) => conversation.unregister(id, name);
      return this.#requests.send(conversation, send, { timeout: 1 }).promise;
    };
    await Promise.allSettled(granted(this.#callee.registrations).map(unregister));
  }

  // Interfaces for the reconnector and the conversations.

  #publicVariables() {
    return {
      set: async (name, value) => {
        await this.#caller.requestUntilAnswered(setVariableRequest(name, value));
        this.#variables.set(name, value);
      },
      unset: async (name) => {
        this.#variables.unset(name);
        await this.#caller.requestUntilAnswered((conversation, id) => conversation.call(id, "hub.unset", { name }, {}));
      },
      get: (name, { peer = "" } = {}) => this.call("hub.get", peer ? { name, peer } : { name }),
      theirs: this.#variables.fromHub,
    };
  }

  #reconnectorOwner() {
    return {
      listener: this.#listener(),
      isExpecting: () => this.#requests.size + this.#subscriptions.size + this.#callee.size > 0,
      restore: (session, abort) => this.#restore(session, abort),
      sessionLost: (error) => {
        this.#requests.loseAll(error);
        this.#callee.abortAll();
      },
      finished: (error) => {
        for (const { buffer } of this.#subscriptions.values()) buffer.end(error);
        this.#subscriptions.clear();
      },
      stateChanged: (state, attempt = 0, error = null, wait = 0) => {
        this.#state = state;
        this.dispatchEvent(new StateEvent({ state, attempt, error, wait }));
      },
    };
  }

  #listener() {
    const [requests, callee, subscriptions] = [this.#requests, this.#callee, this.#subscriptions];
    return {
      newId: () => requests.newId(),
      opened: (sessionName) => this.#reconnector.opened(sessionName),
      ended: (text, isDenied) => this.#reconnector.ended(text, isDenied),
      resultReceived: (id, value, attachments) => requests.resultReceived(id, value, attachments),
      errorReceived: (id, error) => requests.errorReceived(id, error),
      partReceived: (id, value) => requests.partReceived(id, value),
      streamEnded: (id) => requests.streamEnded(id),
      discardParts: (id) => requests.discardParts(id),
      progressReceived: (id, note) => requests.progressReceived(id, note),
      eventReceived: (name, event) => subscriptions.get(name)?.buffer.push(event),
      eventsMissed: (name, count) => {
        const record = subscriptions.get(name);
        if (record) record.buffer.missed += count;
      },
      topicClosed: (name) => {
        subscriptions.get(name)?.buffer.end();
        subscriptions.delete(name);
      },
      variableChanged: (name, value) => this.#variables.changedByHub(name, value),
      callReceived: (conversation, call) => callee.callReceived(conversation, call),
      callCancelled: (id) => callee.callCancelled(id),
      registrations: () => granted(callee.registrations),
    };
  }

  /** Restore the state of the previous session. Variables come first: permissions may depend on them. */
  #restore(session, abort) {
    if (session.conversation.isResumable) this.#callee.abortAll();
    this.#variables.fromHub.clear();
    const groups = [this.#variables.requests(), granted(this.#callee.registrations), granted(this.#subscriptions)];
    return restoreSession(session, groups, this.#requests, this.#settings.openTimeout, abort);
  }
}

const granted = (records) => [...records.values()].filter((record) => record.isGranted);

/** Return the folded form of a method name; a CallError if it is not a name. */
function checkedName(name) {
  try {
    return foldName(name);
  } catch (error) {
    throw toCallError(error);
  }
}

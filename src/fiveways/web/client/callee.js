// The callee side of a client: registered methods, callbacks, and the calls of them that are running.

import { shorten, toSendableText } from "./checks.js";
import { CallError, ConnectionLost, Fail, InvalidValue, Reply, decodeOrNull, sendIfPossible } from "./errors.js";
import { Job } from "./job.js";
import { foldName } from "./method_names.js";
import { MAX_COLLECTED } from "./pending_requests.js";
import { LIMITS } from "./tables.js";
import { writeJson } from "./values/json.js";

export class Callee {
  /** Registered methods by their folded names. */
  registrations = new Map();
  #callbacks = new Map();
  #running = new Map();
  #peer;
  #requests;

  constructor(peer, requests) {
    [this.#peer, this.#requests] = [peer, requests];
  }

  get size() {
    return this.registrations.size + this.#callbacks.size;
  }

  /** Register a callback for one call; return the id by which the hub calls it. */
  addCallback(callback) {
    if (this.#callbacks.size >= LIMITS.maxPending) throw new CallError("overloaded", "too many callbacks are pending");
    const id = String(this.#requests.newId()); // every protocol can write digits
    this.#callbacks.set(id, callback);
    return id;
  }

  removeCallback(id) {
    this.#callbacks.delete(id);
  }

  /** Abort all running calls and forget all callbacks, because the session has ended. */
  abortAll() {
    for (const { controller } of this.#running.values()) controller.abort();
    this.#running.clear();
    for (const { job } of this.#callbacks.values()) job?.resolve(null);
    this.#callbacks.clear();
  }

  callReceived(conversation, call) {
    if (call.token !== null) {
      this.#callbackReceived(conversation, call);
      return;
    }
    const { cutAt } = conversation.constructor.nameStyle;
    const registration = decodeOrNull(() => this.registrations.get(foldName(call.name, cutAt)));
    if (!registration) {
      const text = `there is no method ${shorten(call.name)}`;
      this.#sendError(conversation, call.id, { reason: "no_such_method", text });
    } else if (this.#running.size >= LIMITS.maxPending) {
      const failure = { reason: "overloaded", text: "too many calls are running", retryAfter: 1 };
      this.#sendError(conversation, call.id, failure);
    } else this.#run(conversation, call, registration);
  }

  #callbackReceived(conversation, call) {
    const callback = this.#callbacks.get(call.token);
    this.#callbacks.delete(call.token);
    if (!callback) {
      const text = "the callback was called before, or does not exist";
      this.#sendError(conversation, call.id, { reason: "no_such_callback", text });
    } else if (callback.job) {
      callback.job.resolve(new Job(call.body, call.attachments, this.#responder(conversation, call.id)));
    } else this.#run(conversation, call, { name: "callback", run: callback.run, isStream: false });
  }

  /** Return the function by which a job sends its response. */
  #responder(conversation, id) {
    const { transport } = conversation;
    return (respond) => {
      const isOpen = conversation.isResumable ? this.#peer.state !== "closed" : conversation.transport === transport;
      if (!isOpen) throw new ConnectionLost("the connection was lost, so the hub redelivers the job");
      respond(conversation, id);
    };
  }

  callCancelled(id) {
    const running = this.#running.get(id);
    if (!running) return;
    this.#sendError(running.conversation, id, { reason: "cancelled", text: "the caller cancelled the call" });
    running.controller.abort();
  }

  async #run(conversation, call, registration) {
    const controller = new AbortController();
    const { id } = call;
    const running = { conversation, controller };
    this.#running.set(id, running);
    const isRunning = () => this.#running.get(id) === running;
    const context = {
      method: registration.name,
      attachments: call.attachments,
      signal: controller.signal,
      progress: (value, text = "") => {
        if (isRunning()) conversation.sendProgress(id, value, toSendableText(text));
      },
      peer: this.#peer,
    };
    try {
      const returned = registration.run(call.body, context);
      const result = registration.isStream ? await sendParts(conversation, call, returned, isRunning) : await returned;
      if (!isRunning()) return;
      if (registration.isStream && call.wantsParts) conversation.endStream(id);
      else if (result instanceof Reply) conversation.respond(id, result.value, result.attachments);
      else conversation.respond(id, result, []);
      this.#running.delete(id);
    } catch (error) {
      if (isRunning()) this.#sendError(conversation, id, failureOf(error));
    }
  }

  /** Send an error. If its data cannot be encoded, it is sent without data. */
  #sendError(conversation, id, failure) {
    this.#running.delete(id);
    try {
      conversation.sendError(id, failure);
    } catch {
      sendIfPossible(() => conversation.sendError(id, { ...failure, data: null }));
    }
  }
}

/** Send a streamed result in parts, or return it as one array if the protocol or the caller takes no parts. */
async function sendParts(conversation, { id, wantsParts }, parts, isRunning) {
  const collected = [];
  let size = 0;
  for await (const part of parts) {
    if (!isRunning()) return undefined; // leaving the loop ends the generator
    if (wantsParts) {
      await conversation.sendPart(id, part);
    } else {
      size += writeJson(part).length;
      if (size > MAX_COLLECTED) throw new Fail("the result is too large for one array: call it as a stream");
      collected.push(part);
    }
  }
  return wantsParts ? undefined : collected;
}

/** Return the failure that a caller gets for an exception of a method. */
function failureOf(error) {
  if (error instanceof InvalidValue) {
    return { reason: "raised", text: `the method ran, but its answer cannot be sent: ${error.message}` };
  }
  const failure = { reason: "raised", text: toSendableText(error?.message ?? error) };
  if (!(error instanceof Fail)) return failure;
  return { ...failure, name: error.errorName, data: error.data, retryAfter: error.retryAfter };
}

// Requests that the hub sends to this client: each runs once, and its response is retransmitted until acknowledged.

import { isCount, textOr } from "../checks.js";
import { NQ_OPTIONS } from "../tables.js";
import { createDeferred, now } from "../timing.js";
import { attachmentBytes } from "../values/bytes.js";
import { decodeMarkers } from "../values/markers.js";
import { readMarkedAttachments, writeNote, writeNqError } from "./errors.js";
import { PartSequence } from "./parts.js";

const MAX_DEDUP_ENTRIES = 1 << 14; // keys of finished requests
const CALLBACK_TARGET = "callback-";
const keyOf = (target, r) => `${target}#${r}`;
const isAnswered = (call) => Boolean(call.raw || call.hasEnded);

export class IncomingCalls {
  #conversation;
  #writer;
  #schedule;
  #calls = new Map(); // by target and r
  #byBackchannel = new Map();
  #finished = new Map(); // keys of finished requests -> whether they were events

  constructor(conversation, writer, schedule) {
    [this.#conversation, this.#writer, this.#schedule] = [conversation, writer, schedule];
  }

  get size() {
    return this.#calls.size;
  }

  // Responses of this client.

  respond(key, value, attachments) {
    const list = attachmentBytes(attachments);
    this.#sendResponse(this.#calls.get(key), { d: value ?? null, ...(list.length ? { attachments: list } : {}) });
  }

  sendError(key, failure) {
    const call = this.#calls.get(key);
    if (!call) return;
    const body = writeNqError(failure);
    if (call.sent === undefined) this.#sendResponse(call, body);
    else this.#sendPart(call, body, true);
  }

  sendProgress(key, value, text) {
    const { backchannel, r } = this.#calls.get(key);
    const data = value === undefined || value === null ? {} : { d: value };
    this.#writer.send({ a: backchannel, i: r, e: writeNote(text), ...data });
  }

  /** Send a part of a streamed result; wait while too many parts are not acknowledged. */
  async sendPart(key, value) {
    const call = this.#calls.get(key);
    this.#sendPart(call, { d: value ?? null }, false);
    while (call.queue.length > 4 * NQ_OPTIONS.window && this.#calls.get(key) === call) {
      call.room = createDeferred();
      await call.room.promise;
    }
  }

  endStream(key) {
    this.#sendPart(this.#calls.get(key), {}, true);
  }

  #sendResponse(call, body) {
    call.raw = this.#writer.encode({ a: call.backchannel, i: call.r, ...body });
    this.#transmit(call);
  }

  #sendPart(call, body, isLast) {
    call.queue ??= [];
    call.firstQueued ??= 1;
    call.sent ??= 0;
    const n = call.firstQueued + call.queue.length;
    const end = isLast ? { f: 0 } : {};
    call.queue.push(this.#writer.encode({ a: call.backchannel, i: call.r, ...body, n, ...end }));
    call.hasEnded = isLast;
    this.#sendWindow(call);
  }

  /** Send as many parts as the window allows. */
  #sendWindow(call) {
    const last = Math.min(call.firstQueued + call.queue.length, call.firstQueued + NQ_OPTIONS.window) - 1;
    for (; call.sent < last; call.sent += 1) this.#writer.sendEncoded(call.queue[call.sent + 1 - call.firstQueued]);
    [call.step, call.dueAt] = [0, now() + NQ_OPTIONS.firstWait];
    this.#schedule();
  }

  /** Retransmit a result, or the first and the last part that are sent but not acknowledged. */
  #transmit(call) {
    if (call.raw) this.#writer.sendEncoded(call.raw);
    else if (call.queue?.length && call.sent >= call.firstQueued) {
      this.#writer.sendEncoded(call.queue[0]);
      if (call.sent > call.firstQueued) this.#writer.sendEncoded(call.queue[call.sent - call.firstQueued]);
    } else return;
    call.dueAt = now() + Math.min(NQ_OPTIONS.firstWait * 2 ** call.step, NQ_OPTIONS.longestWait);
    call.step += 1;
    this.#schedule();
  }

  retransmit(time) {
    for (const call of this.#calls.values()) if (call.dueAt && call.dueAt <= time) this.#transmit(call);
  }

  /** Continue on a new transport. */
  resume() {
    for (const call of this.#calls.values()) this.#transmit(Object.assign(call, { step: 0 }));
  }

  /** Forget unanswered calls of an earlier hub process, because the new one sends them again. */
  forgetUnanswered() {
    for (const call of this.#calls.values()) if (!isAnswered(call)) this.#remove(call);
  }

  #remove(call) {
    this.#calls.delete(call.key);
    this.#byBackchannel.delete(call.backchannel);
    call.room?.resolve();
  }

  #finish(call) {
    this.#remove(call);
    this.#remember(call.key, false);
  }

  #remember(key, isEvent) {
    this.#finished.set(key, isEvent);
    if (this.#finished.size > MAX_DEDUP_ENTRIES) this.#finished.delete(this.#finished.keys().next().value);
  }

  // Requests of the hub.

  /** Acknowledge an event; return whether it is new. */
  receiveEvent(target, r) {
    const key = keyOf(target, r);
    if (this.#isDuplicate(key, r)) return false;
    this.#remember(key, true);
    this.#writer.send({ a: this.#writer.newId(), i: r, d: null });
    return true;
  }

  receive(message, target, r) {
    const key = keyOf(target, r);
    const isPart = isCount(message.n) && message.n > 0;
    const known = this.#calls.get(key);
    if (!(isPart && known?.parts) && this.#isDuplicate(key, r)) return;
    const call = known ?? this.#newCall(key, r, isPart);
    if (isPart) this.#receivePart(call, target, message);
    else this.#deliver(call, target, message, () => decodeMarkers(message.d ?? null));
  }

  #newCall(key, r, isPart) {
    const backchannel = this.#writer.newId();
    const call = { backchannel, key, r, raw: "", step: 0, dueAt: 0, parts: isPart ? new PartSequence() : null };
    this.#calls.set(key, call);
    this.#byBackchannel.set(backchannel, call);
    return call;
  }

  /** Collect the parts of a streamed request: methods of this client get them as one array. */
  #receivePart(call, target, { n, f, ...message }) {
    call.collected ??= [];
    const released = call.parts.add(n, f, message) ?? [];
    for (const { d } of released) if (d !== undefined) call.collected.push(d);
    this.#writer.send({ a: call.backchannel, i: call.r, o: call.parts.next });
    if (!released.length || !call.parts.isComplete) return;
    call.parts = null;
    this.#deliver(call, target, message, () => decodeMarkers(call.collected));
  }

  #deliver({ key }, target, { attachments }, decode) {
    const token = target.startsWith(CALLBACK_TARGET) ? target.slice(CALLBACK_TARGET.length) : null;
    const call = { id: key, name: target, token, attachments: [], wantsParts: true };
    this.#conversation.deliverCall(call, () => {
      call.attachments = readMarkedAttachments(attachments);
      return decode();
    });
  }

  /** Return whether a request has arrived before; if so, retransmit the response. */
  #isDuplicate(key, r) {
    const call = this.#calls.get(key);
    if (call) {
      this.#transmit(call);
      return true;
    }
    const wasEvent = this.#finished.get(key);
    if (wasEvent === undefined) return false;
    const body = wasEvent ? { d: null } : { e: { type: "local", fatal: true, err: "expired" } };
    this.#writer.send({ a: this.#writer.newId(), i: r, ...body });
    return true;
  }

  receivePoll({ t }, r) {
    const key = keyOf(textOr(t, ""), r);
    const call = this.#calls.get(key);
    const isDone = call ? isAnswered(call) : this.#finished.has(key);
    const note = isDone ? "done" : call ? "pending" : "unknown";
    this.#writer.send({ a: call?.backchannel ?? this.#writer.newId(), i: r, e: { type: "sys", fatal: false, note } });
    if (isDone) this.#isDuplicate(key, r);
  }

  /** Handle an acknowledgement, a request for missing parts, or a cancellation. */
  receiveAck({ o, t }, id, error) {
    const call = this.#byBackchannel.get(id) ?? this.#calls.get(keyOf(textOr(t, ""), id));
    if (!call) return;
    if (error?.isFatal) {
      if (isAnswered(call)) this.#transmit(call);
      else this.#conversation.listener.callCancelled(call.key);
    } else if (isCount(o) && call.queue) this.#acknowledgeParts(call, o);
    else if (Array.isArray(o) && call.queue) {
      const isQueued = (n) => n >= call.firstQueued && n <= call.sent;
      for (const n of o) if (isQueued(n)) this.#writer.sendEncoded(call.queue[n - call.firstQueued]);
    } else if (!error && o === undefined && call.raw) this.#finish(call);
  }

  #acknowledgeParts(call, next) {
    const count = Math.min(next, call.sent + 1) - call.firstQueued;
    if (count <= 0) return;
    call.queue.splice(0, count);
    call.firstQueued += count;
    call.room?.resolve();
    if (call.hasEnded && !call.queue.length) this.#finish(call);
    else this.#sendWindow(call);
  }
}

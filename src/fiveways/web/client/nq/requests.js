// Requests that this client sends to the hub: they are retransmitted until accepted, then polled until answered.

import { isCount } from "../checks.js";
import { CallError } from "../errors.js";
import { NQ_OPTIONS } from "../tables.js";
import { now } from "../timing.js";
import { decodeMarkers } from "../values/markers.js";
import { CANCELLATION, readErrorObject, readMarkedAttachments, readProgress, toNqCallError } from "./errors.js";
import { PartSequence } from "./parts.js";

const HIDDEN_KINDS = ["tmp", "debug"]; // progress notes that are not for users

export class OutgoingRequests {
  /** Whether the hub has identified itself; until then requests wait. */
  isOpen = false;
  #conversation;
  #writer;
  #schedule;
  #requests = new Map(); // by r
  #byId = new Map(); // those with a waiting caller, by the ids of the peer
  #acks = new Set(); // results to acknowledge with the next packet
  #partAcks = new Map(); // streams to acknowledge with the next packet

  constructor(conversation, writer, schedule) {
    [this.#conversation, this.#writer, this.#schedule] = [conversation, writer, schedule];
  }

  get size() {
    return this.#requests.size;
  }

  /** Send a request; `onFailure` runs if it fails or is cancelled. */
  send(id, target, body, { fields = {}, onFailure = () => {} } = {}) {
    const r = this.#writer.newId();
    const raw = this.#writer.encode({ t: target, r, d: body ?? null, ...fields });
    const request = { id, target, r, raw, backchannel: "", state: "sent", step: 0, dueAt: 0, parts: null, onFailure };
    request.mayHaveRun = false;
    this.#requests.set(r, request);
    if (id !== null) this.#byId.set(id, request);
    if (this.isOpen) this.#transmit(request);
  }

  cancel(id) {
    const request = this.#byId.get(id);
    if (request) this.#cancel(request);
  }

  cancelAll() {
    for (const request of this.#byId.values()) this.#cancel(request);
  }

  #cancel(request) {
    this.#byId.delete(request.id);
    request.onFailure();
    const endsAt = now() + NQ_OPTIONS.longestWait;
    Object.assign(request, { state: "cancelled", id: null, parts: null, step: 0, endsAt });
    this.#transmit(request);
  }

  #finish(request) {
    this.#requests.delete(request.r);
    this.#byId.delete(request.id);
  }

  /** Send a request, a poll for its state, or its cancellation; and schedule the next retransmission. */
  #transmit(request) {
    const { target, r, backchannel, state, step } = request;
    if (state === "sent") this.#writer.sendEncoded(request.raw);
    else if (state === "accepted" && step > 0) this.#writer.send({ t: target, p: r });
    else if (state === "cancelled") {
      this.#writer.send(backchannel ? { i: backchannel, e: CANCELLATION } : { t: target, i: r, e: CANCELLATION });
    }
    const first = state === "accepted" ? NQ_OPTIONS.firstPoll : NQ_OPTIONS.firstWait;
    request.dueAt = now() + Math.min(first * 2 ** step, NQ_OPTIONS.longestWait);
    request.step += 1;
    this.#schedule();
  }

  /** Retransmit overdue messages, and ask for missing parts. */
  retransmit(time) {
    for (const request of this.#requests.values()) {
      if (request.state === "cancelled" && request.endsAt <= time) this.#finish(request);
      else if (request.dueAt <= time) this.#transmit(request);
      const missing = request.parts?.missing ?? [];
      if (missing.length) this.#writer.send({ i: request.backchannel, o: missing });
    }
  }

  /** Continue on a new transport. */
  resume() {
    this.isOpen = true;
    for (const request of this.#requests.values()) {
      request.step = request.state === "sent" ? 0 : 1;
      this.#transmit(request);
    }
  }

  /** Prepare all requests for another hub process. Streams that have begun cannot be continued. */
  restart() {
    for (const request of this.#requests.values()) this.#restart(request);
  }

  #restart(request) {
    request.mayHaveRun = true;
    request.backchannel = ""; // it cannot be cancelled by its old backchannel
    if (request.state === "cancelled") return;
    request.state = "sent";
    const received = (request.parts?.next ?? 1) - 1;
    request.parts = null;
    const { listener } = this.#conversation;
    if (received === 0 || listener.discardParts(request.id)) return;
    const text = `the hub has restarted in the middle of the response: ${received} parts arrived, the rest is lost`;
    listener.errorReceived(request.id, new CallError("lost", text));
    this.#cancel(request);
  }

  /** Send the acknowledgements for the responses of one packet. */
  sendAcks() {
    const acks = [...this.#acks];
    if (acks.length) this.#writer.send({ i: acks.length === 1 ? acks[0] : acks });
    for (const [backchannel, parts] of this.#partAcks) this.#writer.send({ i: backchannel, o: parts.next });
    this.#acks.clear();
    this.#partAcks.clear();
  }

  // Responses.

  receive({ d, e, n, f, attachments }, backchannel, r) {
    const request = this.#requests.get(r);
    const error = e === undefined ? null : readErrorObject(e);
    if (isCount(n) && n > 0) {
      this.#onPart(request, backchannel, n, f, { d, e: error });
      return;
    }
    // Number 0 is the whole result, or the end of a stream without parts.
    const isEnd = error ? error.isFatal : d !== undefined || n === 0;
    if (isEnd) this.#acks.add(backchannel);
    if (!request) return;
    if (error && !error.isFatal) this.#onNote(request, error, d);
    else if (isEnd) this.#onEnd(request, error, d ?? (n === 0 ? [] : null), attachments);
    else this.#onAccepted(request, backchannel);
  }

  #onAccepted(request, backchannel) {
    request.backchannel = backchannel;
    if (request.state !== "sent") return;
    Object.assign(request, { state: "accepted", step: 1, dueAt: now() + NQ_OPTIONS.firstPoll });
  }

  #onNote(request, error, d) {
    if (error.type === "sys") {
      // The response to a poll. A request that the hub does not know is sent again.
      if (error.note === "unknown" && request.state !== "cancelled") {
        Object.assign(request, { state: "sent", step: 0, backchannel: "" });
        this.#transmit(request);
      }
      return;
    }
    const note = readProgress(error);
    if (request.id === null || HIDDEN_KINDS.includes(note.kind)) return;
    const report = (value) => this.#conversation.listener.progressReceived(request.id, { value, ...note });
    this.#conversation.deliverResponse(request.id, () => decodeMarkers(d ?? null), report);
  }

  #onEnd(request, error, d, attachments) {
    this.#finish(request);
    if (request.id === null) return;
    if (error) {
      this.#fail(request, error, d);
      return;
    }
    const decode = () => ({ value: decodeMarkers(d), list: readMarkedAttachments(attachments) });
    const report = ({ value, list }) => this.#conversation.listener.resultReceived(request.id, value, list);
    this.#conversation.deliverResponse(request.id, decode, report);
  }

  #fail(request, error, d) {
    request.onFailure();
    const failure = toNqCallError(error, d);
    const { reason, message } = failure;
    const isUncertain = request.mayHaveRun && failure.ran === "no";
    const text = `${reason}: ${message}; the method may have run, because the hub has restarted since`;
    this.#conversation.listener.errorReceived(request.id, isUncertain ? new CallError("lost", text) : failure);
  }

  #onPart(request, backchannel, n, following, part) {
    if (!request || request.state === "cancelled") {
      this.#writer.send({ i: backchannel, o: n + 1 }); // the hub retransmits unacknowledged parts
      if (request && following === 0) this.#finish(request);
      return;
    }
    request.parts ??= new PartSequence();
    Object.assign(request, { backchannel, state: "accepted", step: 1, dueAt: now() + NQ_OPTIONS.firstPoll });
    const released = request.parts.add(n, following, part);
    const { listener } = this.#conversation;
    if (released === null) {
      listener.errorReceived(request.id, new CallError("raised", "the parts of the response contradict each other"));
      this.#cancel(request);
      return;
    }
    this.#partAcks.set(backchannel, request.parts);
    const { isComplete } = request.parts;
    if (isComplete) this.#finish(request);
    for (const { d, e } of released) {
      const report = (value) => listener.partReceived(request.id, value);
      if (e) this.#fail(request, e, d);
      else if (d !== undefined) this.#conversation.deliverResponse(request.id, () => decodeMarkers(d), report);
    }
    if (isComplete && request.id !== null) listener.streamEnded(request.id);
  }
}

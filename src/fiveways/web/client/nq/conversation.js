// NQ: messages may be lost, repeated and reordered, so both sides retransmit and deduplicate. The session belongs to an
// id that the hub assigns, and continues on the next transport.

import { isCount, isObject, isText, textOr } from "../checks.js";
import { Conversation } from "../conversation.js";
import { InvalidJson, ProtocolError } from "../errors.js";
import { nameStyle } from "../method_names.js";
import { LIMITS } from "../tables.js";
import { now, startTimer } from "../timing.js";
import { NQ_TOPICS } from "../topics.js";
import { attachmentBytes } from "../values/bytes.js";
import { parseJson } from "../values/json.js";
import { decodeMarkers } from "../values/markers.js";
import { IncomingCalls } from "./calls.js";
import { readErrorObject, readId, readIds, readMarkedAttachments, writeComplaint } from "./errors.js";
import { PacketWriter } from "./packets.js";
import { OutgoingRequests } from "./requests.js";

const HELLO = '{"e":{"type":"sys","fatal":false,"note":"hello"}}';
const CLOSED_TARGET = "hub-closed"; // the target of the event that a topic was closed
const TICK = 0.5; // seconds between two searches for overdue messages
const MAX_COMPLAINTS = 8; // error messages in response to one packet

export class NqConversation extends Conversation {
  static nameStyle = nameStyle("nq");
  static topicStyle = NQ_TOPICS;
  isResumable = true;
  /** The id of the session, by which the client resumes it. */
  peerId = "";
  #hubRun = ""; // the prefix of the hub's identifiers; another prefix is another hub process
  #restoredAt = ""; // the session id and hub process that have all registrations and subscriptions
  #isOpen = false;
  #subscriptions = new Map(); // targets of events -> names
  #timer = null;
  #writer = new PacketWriter(this);
  #requests = new OutgoingRequests(this, this.#writer, () => this.#scheduleTick());
  #calls = new IncomingCalls(this, this.#writer, () => this.#scheduleTick());

  start() {
    this.#isOpen = false;
    this.#requests.isOpen = false;
    this.#writer.clear();
    this.send(HELLO);
  }

  detach() {
    super.detach();
    clearTimeout(this.#timer);
    this.#timer = null;
  }

  restored() {
    this.#restoredAt = `${this.peerId} ${this.#hubRun}`;
  }

  goodbye() {
    this.#requests.cancelAll();
    this.#writer.send({ e: { type: "sys", fatal: true, note: "goodbye" } });
    this.#writer.flush(true);
  }

  ping() {
    this.send(HELLO);
  }

  /** Send queued messages; a polling transport calls this when it is ready. */
  flush() {
    this.#writer.flush();
  }

  reportFault(text) {
    this.#writer.send(writeComplaint(text));
  }

  // Requests of this client.

  call(id, name, body, { attachments }) {
    const { token, method } = this.targetOf(name);
    const list = attachmentBytes(attachments);
    const fields = list.length ? { attachments: list } : {};
    this.#requests.send(id, token === undefined ? method : `callback-${token}`, body, { fields });
  }

  subscribe(id, name, pattern, whenFull) {
    this.#endSubscriptions(name); // a hub that still has one must not deliver events twice
    const target = this.#writer.newId(); // a chosen one could be the name of a method
    const options = whenFull ? { when_full: whenFull } : {};
    const body = { topic: this.spellTopic(pattern, true), id: target, ...options };
    const onFailure = () => this.#subscriptions.delete(target);
    this.#requests.send(id, "hub-subscribe", body, { onFailure });
    this.#subscriptions.set(target, name);
  }

  unsubscribe(_id, name) {
    this.#endSubscriptions(name);
  }

  #endSubscriptions(name) {
    for (const [target, other] of this.#subscriptions) {
      if (other !== name) continue;
      this.#subscriptions.delete(target);
      this.#requests.send(null, "hub-unsubscribe", { id: target });
    }
  }

  cancel(id) {
    this.#requests.cancel(id);
  }

  // Responses of this client.

  respond(key, value, attachments) {
    this.#calls.respond(key, value, attachments);
  }

  sendError(key, failure) {
    this.#calls.sendError(key, failure);
  }

  sendProgress(key, value, text) {
    this.#calls.sendProgress(key, value, text);
  }

  sendPart(key, value) {
    return this.#calls.sendPart(key, value);
  }

  endStream(key) {
    this.#calls.endStream(key);
  }

  // Retransmission.

  #scheduleTick() {
    if (this.#timer === null && this.transport) this.#timer = startTimer(TICK, () => this.#tick());
  }

  #tick() {
    this.#timer = null;
    const time = now();
    this.#requests.retransmit(time);
    this.#calls.retransmit(time);
    if (this.#requests.size || this.#calls.size) this.#scheduleTick();
  }

  // Messages of the hub.

  receive(data) {
    let packet;
    try {
      if (!isText(data)) throw new InvalidJson("a packet is not a text");
      packet = parseJson(data, LIMITS.maxDepth + 2);
    } catch (error) {
      // The session does not depend on the transport, so it continues.
      this.reportFault(error.message);
      return;
    }
    let complaints = 0;
    for (const message of Array.isArray(packet) ? packet : [packet]) {
      try {
        this.#onMessage(message);
      } catch (error) {
        if (!(error instanceof ProtocolError)) throw error;
        complaints += 1;
        if (complaints <= MAX_COMPLAINTS) this.reportFault(error.message);
      }
    }
    this.#requests.sendAcks();
  }

  #onMessage(message) {
    if (!isObject(message)) throw new ProtocolError("a message that is not an object");
    const { r, p, a, i, e, o } = message;
    if (r !== undefined) this.#onRequest(message, readId(r));
    else if (p !== undefined) this.#calls.receivePoll(message, readId(p));
    else if (i === undefined) this.#onSystemMessage(readErrorObject(e));
    else if (a === undefined) {
      for (const id of readIds(i)) this.#calls.receiveAck(message, id, e === undefined ? null : readErrorObject(e));
    } else if (o === undefined) {
      for (const id of readIds(i)) this.#requests.receive(message, readId(a), id);
    } else readIds(i); // acknowledges parts of a streamed request, which this client never sends
  }

  #onSystemMessage(error) {
    if (error.type !== "sys") return; // a complaint, which is never answered
    if (error.isFatal) this.listener.ended(error.message, error.note === "denied");
    else if (error.note === "peer" && error.args.length) this.identify(error.args[0], error.args[1]);
  }

  /** Note the id of the session, and the hub process if the hub has sent it. */
  identify(peerId, hubRun) {
    const isOther = peerId !== this.peerId || (hubRun !== undefined && hubRun !== this.#hubRun);
    this.peerId = peerId;
    if (this.#isOpen && isOther) {
      this.listener.ended("another hub process has taken over", false);
      return;
    }
    if (hubRun === undefined || this.#isOpen) return;
    this.#isOpen = true;
    this.#hubRun = hubRun;
    this.isResumed = this.#restoredAt === `${peerId} ${hubRun}`;
    if (!this.isResumed) {
      this.#requests.restart();
      this.#calls.forgetUnanswered();
    }
    this.#requests.resume();
    this.#calls.resume();
    this.listener.opened("");
  }

  #onRequest(message, r) {
    const target = textOr(message.t, "");
    if (target !== CLOSED_TARGET && !this.#subscriptions.has(target)) this.#calls.receive(message, target, r);
    else if (this.#calls.receiveEvent(target, r)) this.#onEvent(target, message);
  }

  #onEvent(target, { d, topic, missed, attachments }) {
    if (target === CLOSED_TARGET) {
      const ended = isObject(d) ? textOr(d.id, "") : "";
      const name = this.#subscriptions.get(ended);
      this.#subscriptions.delete(ended);
      if (name !== undefined) this.listener.topicClosed(name);
      return;
    }
    this.deliverEvent(this.#subscriptions.get(target), () => ({
      topic: isText(topic) ? this.readTopic(topic) : "",
      data: decodeMarkers(d ?? null),
      missed: isCount(missed) ? missed : 0,
      attachments: readMarkedAttachments(attachments),
    }));
  }
}

// UMQ 1.0.0: a text frame is a type, an identifier, a line feed and a payload; attachments follow as binary frames.

import { isCount, isObject, isText, shorten, textOr } from "../checks.js";
import { Conversation } from "../conversation.js";
import { CallError, InvalidValue, ProtocolError, decodeOrNull } from "../errors.js";
import { nameStyle } from "../method_names.js";
import { LIMITS, UMQ_CODES } from "../tables.js";
import { attachmentBytes } from "../values/bytes.js";
import { writeJson } from "../values/json.js";
import { decodeText, encodeText } from "../values/text.js";
import { AttachmentQueue } from "./attachments.js";
import { readUmqError, splitCode, writeUmqError } from "./failures.js";

const VERSION = "1.0.0";

export class UmqConversation extends Conversation {
  static nameStyle = nameStyle("umq");
  #isOpen = false;
  #subscriptions = new Set(); // names, which are also the ids of the subscriptions at the hub
  #subscribing = new Map(); // ids of subscribe requests -> names
  #expected = new AttachmentQueue();

  start() {
    const { token } = this.settings;
    // A token such as 12345 would be read as a number.
    const login = token && encodeText(token) !== token ? writeJson({ token }) : token;
    this.send(`H${VERSION}\n${login}`);
  }

  goodbye() {
    this.send("E\n11 goodbye");
  }

  reportFault(text) {
    this.send(`E\n2 Message parse error: ${text}`);
  }

  detach() {
    super.detach();
    this.#expected.clear();
  }

  // Requests of this client.

  call(id, name, body, { attachments }) {
    const { token, method } = this.targetOf(name);
    const head = token === undefined ? `M${id}\n${method}` : `C${id}\n${token}`;
    this.#sendMessage(`${head}\n${encodeText(body ?? null)}`, attachments);
  }

  /** UMQ cannot cancel a request: its response is ignored. */
  cancel(id) {
    this.#subscriptions.delete(this.#subscribing.get(id));
    this.#subscribing.delete(id);
  }

  subscribe(id, name, pattern, whenFull) {
    const options = whenFull ? { when_full: whenFull } : {};
    // The envelope carries the topic and the number of missed events.
    this.call(id, "hub.subscribe", { topic: this.spellTopic(pattern, true), id: name, envelope: true, ...options }, {});
    this.#subscriptions.add(name);
    this.#subscribing.set(id, name);
  }

  unsubscribe(_id, name) {
    if (this.#subscriptions.delete(name)) this.send(`U${name}`);
  }

  // Responses of this client.

  respond(id, value, attachments) {
    this.#sendMessage(`R${id}\n${encodeText(value ?? null)}`, attachments);
  }

  /** UMQ has no progress notes. */
  sendProgress() {}

  sendError(id, failure) {
    this.send(writeUmqError(id, failure));
  }

  #sendMessage(text, attachments) {
    const list = attachmentBytes(attachments);
    // A browser sends each attachment as one frame.
    if (list.some((bytes) => bytes.length > LIMITS.maxFrame)) {
      throw new CallError("too_large", `an attachment has at most ${LIMITS.maxFrame} bytes`);
    }
    this.send(list.length ? `A${list.length}\n${text}` : text);
    for (const bytes of list) this.transport?.send(bytes);
  }

  // Messages of the hub.

  receive(data) {
    if (!isText(data)) {
      this.#expected.receive(data);
      return;
    }
    const { count, head, payload } = splitFrame(data);
    const [type, id] = [head[0], head.slice(1)];
    if (type === "-" && !id) this.#expected.receive(null);
    else if ((type === "E" || type === "!") && !id) this.#onFatalError(payload);
    else if (!this.#isOpen) this.#onWelcome(type, id, payload);
    else if (!id) throw new ProtocolError(`a message of unknown type ${JSON.stringify(shorten(head))}`);
    else this.#expected.add(count, head, (attachments) => this.#onMessage(type, id, payload, attachments));
  }

  #onWelcome(type, version, payload) {
    if (type !== "W") throw new ProtocolError(`a message of type ${JSON.stringify(type)} before the welcome`);
    if (!/^1(?:\.0)*$/.test(version)) {
      throw new ProtocolError(`the hub speaks version ${JSON.stringify(shorten(version))}, this client ${VERSION}`);
    }
    this.#isOpen = true;
    const body = decodeOrNull(() => decodeText(payload));
    this.listener.opened(isObject(body) ? textOr(body.session, "") : "");
  }

  #onFatalError(payload) {
    const { code, text } = splitCode(payload);
    this.listener.ended(shorten(text), code === UMQ_CODES.denied);
  }

  #onMessage(type, id, payload, attachments) {
    switch (type) {
      case "R":
        return this.#onResult(Number(id), payload, attachments);
      case "E":
      case "!":
        return this.#onError(type, Number(id), payload);
      case "T":
        return this.#onEvent(id, payload, attachments);
      case "M":
      case "C":
        return this.#onCall(type, id, payload, attachments);
      case "Z":
        if (this.#subscriptions.delete(id)) this.listener.topicClosed(id);
        return undefined;
      case "S":
        return this.listener.variableChanged(id, decodeOrNull(() => decodeText(payload)));
      case "X":
        return this.listener.variableChanged(id, undefined);
      case "?":
        return this.#onDiscover(id, payload);
      case "U":
        return undefined;
      default:
        throw new ProtocolError(`a message of unknown type ${JSON.stringify(type)}`);
    }
  }

  #onResult(id, payload, attachments) {
    this.#subscribing.delete(id);
    const report = (value) => this.listener.resultReceived(id, value, attachments);
    this.deliverResponse(id, () => decodeText(payload), report);
  }

  #onError(type, id, payload) {
    this.cancel(id);
    this.listener.errorReceived(id, readUmqError(type, payload));
  }

  #onEvent(id, payload, attachments) {
    if (!this.#subscriptions.has(id)) {
      this.send(`U${id}`);
      return;
    }
    this.deliverEvent(id, () => {
      const envelope = decodeText(payload);
      if (!isObject(envelope) || !isText(envelope.topic)) throw new InvalidValue("an update without its envelope");
      const missed = isCount(envelope.missed) ? envelope.missed : 0;
      return { topic: this.readTopic(envelope.topic), data: envelope.data ?? null, missed, attachments };
    });
  }

  #onCall(type, id, payload, attachments) {
    const [name, body] = splitLine(payload);
    const token = type === "C" ? name : null;
    this.deliverCall({ id, name, token, attachments, wantsParts: false }, () => decodeText(body));
  }

  #onDiscover(id, name) {
    const registrations = this.listener.registrations();
    const found = registrations.find((registration) => registration.name === name);
    if (!name) this.send(`R${id}\n${registrations.map((registration) => `M${registration.name}\n`).join("")}`);
    else if (found) this.send(`R${id}\nD${found.doc}`);
    else this.send(`E${id}\n${UMQ_CODES.no_such_method} there is no method ${name}`);
  }
}

/** Split a text frame into the count of its attachments, its first line and its payload. */
function splitFrame(data) {
  const [first, rest] = splitLine(data);
  if (!first.startsWith("A")) return { count: 0, head: first, payload: rest };
  const count = Number(first.slice(1));
  if (!/^A\d{1,9}$/.test(first) || count > LIMITS.maxExpectedAttachments) {
    throw new ProtocolError("an invalid count of attachments");
  }
  const [head, payload] = splitLine(rest);
  if (head.startsWith("A")) throw new ProtocolError("a count of attachments inside another");
  return { count, head, payload };
}

function splitLine(text) {
  const at = text.indexOf("\n");
  return at < 0 ? [text, ""] : [text.slice(0, at), text.slice(at + 1)];
}

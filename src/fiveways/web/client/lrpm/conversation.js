// LRPM in JSON: a message is an array of a kind, an id, the fields of the kind, and a map of extras.

import { isCount, isObject, isText, shorten, textOr } from "../checks.js";
import { Conversation, fillPlaceholders, toTemplate } from "../conversation.js";
import { ProtocolError, decodeOrNull } from "../errors.js";
import { nameStyle } from "../method_names.js";
import { LIMITS, LRPM_KINDS } from "../tables.js";
import { toMillis } from "../timing.js";
import { LRPM_TOPICS } from "../topics.js";
import { attachmentBytes, decodeBase64, encodeBase64, encodeUtf8, toHex } from "../values/bytes.js";
import { parseJson, writeJson } from "../values/json.js";
import { base64Marker, decodeMarkers } from "../values/markers.js";
import { readLrpmError, writeLrpmError } from "./failures.js";

const KIND_NUMBERS = new Map(Object.entries(LRPM_KINDS));
const FIRST_ID = 256; // some decoders read smaller numbers as another type
const PROOF_METHOD = "hmac-sha256";

export class LrpmConversation extends Conversation {
  static nameStyle = nameStyle("lrpm");
  static topicStyle = LRPM_TOPICS;
  sendsTimeouts = true;
  #isOpen = false;
  #names = new Map(); // subscription ids of the hub -> names
  #subscriptionIds = new Map(); // the reverse
  #subscribing = new Map(); // ids of subscribe requests -> names
  #calls = new Map(); // calls of methods of this client, by id

  start() {
    const { token, identity } = this.settings;
    this.#sendMessage(LRPM_KINDS.HELLO, identity ? { identity } : token ? { token } : null, {});
  }

  goodbye() {
    this.#sendMessage(LRPM_KINDS.GOODBYE, ".bye.normal", {});
  }

  reportFault(text) {
    this.#sendMessage(LRPM_KINDS.GOODBYE, ".err.protocol", { text });
  }

  // Requests of this client.

  call(id, name, body, { timeout, stream, progress, attachments }) {
    const { token, method } = this.targetOf(name);
    const meta = {};
    if (timeout !== undefined) meta.timeout = toMillis(timeout);
    if (stream) meta.stream = true;
    if (progress) meta.progress = true;
    const uri = token === undefined ? method : `callback.${token}`;
    this.#sendMessage(LRPM_KINDS.CALL, id + FIRST_ID, uri, body, withAttachments(meta, attachments));
  }

  cancel(id) {
    this.#subscribing.delete(id);
    this.#sendMessage(LRPM_KINDS.CANCEL, id + FIRST_ID, {});
  }

  publish(id, topic, data, { retain, attachments }) {
    const meta = withAttachments(retain ? { retain: true } : {}, attachments);
    this.#sendMessage(LRPM_KINDS.PUBLISH, id + FIRST_ID, this.spellTopic(topic), data, meta);
  }

  subscribe(id, name, pattern, whenFull) {
    const meta = whenFull ? { when_full: whenFull } : {};
    this.#sendMessage(LRPM_KINDS.SUBSCRIBE, id + FIRST_ID, this.spellTopic(pattern, true), meta);
    this.#subscribing.set(id, name);
  }

  unsubscribe(id, name) {
    const subscriptionId = this.#subscriptionIds.get(name);
    if (subscriptionId === undefined) return;
    this.#forgetSubscription(subscriptionId);
    this.#sendMessage(LRPM_KINDS.UNSUBSCRIBE, id + FIRST_ID, subscriptionId, {});
  }

  // Responses of this client.

  respond(id, value, attachments) {
    this.#sendMessage(LRPM_KINDS.RESULT, id, value, withAttachments({}, attachments));
    this.#calls.delete(id);
  }

  async sendPart(id, value) {
    const call = this.#calls.get(id);
    this.#sendMessage(LRPM_KINDS.RESULT, id, value, { part: call.parts + 1 });
    call.parts += 1;
    await this.transport?.drained();
  }

  endStream(id) {
    const part = this.#calls.get(id).parts + 1;
    this.#sendMessage(LRPM_KINDS.RESULT, id, null, { part, last: true, empty: true });
    this.#calls.delete(id);
  }

  sendProgress(id, value, text) {
    const meta = { progress: true, ...(text ? toTemplate(text) : {}) };
    if (this.#calls.get(id)?.wantsProgress) this.#sendMessage(LRPM_KINDS.RESULT, id, value, meta);
  }

  sendError(id, failure) {
    this.#sendMessage(LRPM_KINDS.ERROR, LRPM_KINDS.CALL, id, ...writeLrpmError(failure));
    this.#calls.delete(id);
  }

  #sendMessage(...fields) {
    this.send(writeJson(fields, base64Marker, LIMITS.maxDepth + 1));
  }

  // Messages of the hub.

  receive(data) {
    if (!isText(data)) throw new ProtocolError("a binary frame, but LRPM in JSON has only text frames");
    let message;
    try {
      message = parseJson(data, LIMITS.maxDepth + 1);
    } catch (error) {
      throw new ProtocolError(`a frame cannot be decoded: ${error.message}`);
    }
    if (!Array.isArray(message)) throw new ProtocolError("a frame is not an array");
    const [writtenKind, ...fields] = message;
    const kind = isText(writtenKind) ? KIND_NUMBERS.get(writtenKind) : writtenKind;
    const isHandshake = kind === LRPM_KINDS.HELLO || kind === LRPM_KINDS.PROVE;
    if (kind !== LRPM_KINDS.GOODBYE && isHandshake === this.#isOpen) {
      throw new ProtocolError(`an unexpected message of kind ${JSON.stringify(writtenKind)}`);
    }
    this.#onMessage(kind, fields);
  }

  #onMessage(kind, fields) {
    const requestId = () => checkedNumber(fields[0]) - FIRST_ID;
    switch (kind) {
      case LRPM_KINDS.GOODBYE:
        return this.#onGoodbye(...fields);
      case LRPM_KINDS.HELLO:
        return this.#onHello(fields[0]);
      case LRPM_KINDS.PROVE:
        return this.#onProve(fields[0]);
      case LRPM_KINDS.EVENT:
        return this.#onEvent(...fields);
      case LRPM_KINDS.ERROR:
        return this.#onError(checkedNumber(fields[1]) - FIRST_ID, ...fields.slice(2));
      case LRPM_KINDS.RESULT:
        return this.#onResult(requestId(), fields[1], asObject(fields[2]));
      case LRPM_KINDS.CALL:
        return this.#onCall(checkedNumber(fields[0]), fields[1], fields[2], asObject(fields[3]));
      case LRPM_KINDS.CANCEL:
        return this.listener.callCancelled(checkedNumber(fields[0]));
      case LRPM_KINDS.SUBSCRIBED:
        return this.#onSubscribed(requestId(), checkedNumber(fields[1]));
      case LRPM_KINDS.PUBLISHED:
      case LRPM_KINDS.UNSUBSCRIBED:
        return this.listener.resultReceived(requestId(), null, []);
      default:
        throw new ProtocolError(`a message of unknown kind ${JSON.stringify(kind)}`);
    }
  }

  #onGoodbye(reason, extras) {
    const ownText = reason === ".bye.normal" ? "" : shorten(textOr(reason, ""));
    if (this.#isOpen) this.goodbye();
    this.listener.ended(textOr(asObject(extras).text, "") || ownText, reason === ".err.auth");
  }

  #onHello(body) {
    this.#isOpen = true;
    this.listener.opened(isObject(body) ? textOr(body.session, "") : "");
  }

  #onProve(body) {
    const { secret } = this.settings;
    if (!secret) {
      this.listener.ended("the hub requires authentication: set `identity` and `secret`", true);
    } else if (!isObject(body) || body.method !== PROOF_METHOD || !isText(body.nonce)) {
      throw new ProtocolError(`the hub asks for a proof other than ${PROOF_METHOD}`);
    } else {
      const send = (mac) => this.#sendMessage(LRPM_KINDS.PROOF, { mac }, {});
      // Pages that are not served securely have no crypto.subtle.
      const fail = (error) => this.listener.ended(`the proof cannot be computed: ${error.message}`, true);
      computeProof(secret, body.nonce).then(send, fail);
    }
  }

  #onResult(id, body, meta) {
    const decode = () => decodeMarkers(body);
    if (meta.progress === true) {
      const note = readNote(meta);
      this.deliverResponse(id, decode, (value) => this.listener.progressReceived(id, { value, ...note }));
    } else if (isCount(meta.part) && meta.part > 0) {
      const isEmpty = meta.last === true && meta.empty === true;
      if (!isEmpty) this.deliverResponse(id, decode, (value) => this.listener.partReceived(id, value));
      if (meta.last === true) this.listener.streamEnded(id);
    } else {
      const report = (value) => this.listener.resultReceived(id, value, readAttachments(meta));
      this.deliverResponse(id, decode, report);
    }
  }

  #onError(id, uri, body, extras) {
    const error = readLrpmError(uri, body, asObject(extras));
    this.#subscribing.delete(id);
    this.listener.errorReceived(id, error);
  }

  #onSubscribed(id, subscriptionId) {
    const name = this.#subscribing.get(id);
    if (name === undefined) {
      // The request was cancelled meanwhile.
      this.#sendMessage(LRPM_KINDS.UNSUBSCRIBE, this.listener.newId() + FIRST_ID, subscriptionId, {});
      return;
    }
    this.#subscribing.delete(id);
    this.#names.set(subscriptionId, name);
    this.#subscriptionIds.set(name, subscriptionId);
    this.listener.resultReceived(id, null, []);
  }

  #forgetSubscription(subscriptionId) {
    this.#subscriptionIds.delete(this.#names.get(subscriptionId));
    this.#names.delete(subscriptionId);
  }

  #onEvent(_publicationId, subscriptionId, body, extras) {
    const name = this.#names.get(checkedNumber(subscriptionId));
    if (name === undefined) return;
    const meta = asObject(extras);
    if (meta.closed === true) {
      this.#forgetSubscription(subscriptionId);
      this.listener.topicClosed(name);
      return;
    }
    const topic = isText(meta.topic) ? this.readTopic(meta.topic) : "";
    const missed = isCount(meta.missed) ? meta.missed : 0;
    this.deliverEvent(name, () => ({ topic, data: decodeMarkers(body), missed, attachments: readAttachments(meta) }));
  }

  #onCall(id, uri, body, meta) {
    if (this.#calls.has(id)) throw new ProtocolError(`the id ${id} of a call is in use`);
    if (!isText(uri)) throw new ProtocolError("a call without a uri");
    this.#calls.set(id, { wantsProgress: meta.progress === true, parts: 0 });
    const token = uri.startsWith("callback.") ? uri.slice("callback.".length) : null;
    const call = { id, name: uri, token, attachments: readAttachments(meta), wantsParts: meta.stream === true };
    this.deliverCall(call, () => decodeMarkers(body));
  }
}

function checkedNumber(value) {
  if (!isCount(value)) throw new ProtocolError("a field that must be a number is none");
  return value;
}

const asObject = (value) => (isObject(value) ? value : {});

function readNote(meta) {
  const code = textOr(meta.code, "");
  const args = Array.isArray(meta.args) && meta.args.every(isText) ? meta.args : [];
  return { text: fillPlaceholders(textOr(meta.text, ""), { 0: code }, args), kind: textOr(meta.kind, "note"), code };
}

/** Return the attachments of a message; null for one that cannot be decoded. */
function readAttachments(meta) {
  if (!Array.isArray(meta.attachments)) return [];
  return meta.attachments.map((item) => (isText(item) ? decodeOrNull(() => decodeBase64(item)) : null));
}

function withAttachments(meta, attachments) {
  const list = attachmentBytes(attachments).map(encodeBase64);
  return list.length ? { ...meta, attachments: list } : meta;
}

async function computeProof(secret, nonce) {
  const algorithm = { name: "HMAC", hash: "SHA-256" };
  const key = await crypto.subtle.importKey("raw", encodeUtf8(secret), algorithm, false, ["sign"]);
  return toHex(new Uint8Array(await crypto.subtle.sign("HMAC", key, encodeUtf8(nonce))));
}

// The base class of the conversations, which encode requests and responses in one protocol each.
//
// A conversation reports to its listener, the peer, what it receives. `id` names a request of this client, `name` a
// subscription; the peer chooses both.
//
//     opened(session)  ended(text, isDenied)                                     the session at the hub
//     resultReceived(id, value, attachments)  errorReceived(id, error)           responses
//     partReceived(id, value)  streamEnded(id)  progressReceived(id, note)       streamed results and progress
//     eventReceived(name, event)  eventsMissed(name, count)  topicClosed(name)   subscriptions
//     variableChanged(name, value)                                               variables that the hub sets
//     callReceived(conversation, call)  callCancelled(id)                        calls of methods of this client
//
// A request that cannot be encoded throws a CallError or InvalidValue before anything is sent. `receive` throws a
// ProtocolError if the hub breaks the protocol.

import { isText } from "./checks.js";
import { CallError, decodeThen } from "./errors.js";
import { foldName, nameStyle, spellName } from "./method_names.js";
import { DOTTED_TOPICS, rewriteTopic } from "./topics.js";
import { utf8Length } from "./values/bytes.js";

export const MAX_UNSENT = 1 << 24; // bytes buffered by the transport before the client refuses to send more
const MAX_FILLED = 1 << 16;
const CALLBACK_PREFIX = /^callback[.:]/;

export class Conversation {
  static nameStyle = nameStyle("umq");
  static topicStyle = DOTTED_TOPICS;
  /** Whether the session survives its connection. */
  isResumable = false;
  /** Whether the hub already has all registrations and subscriptions of this session. */
  isResumed = false;
  /** Whether calls carry their timeouts, so that the hub reports when one is over. */
  sendsTimeouts = false;

  constructor(settings, listener) {
    this.settings = settings;
    this.listener = listener;
    this.transport = null;
  }

  /** Begin or resume the session over a transport. */
  attach(transport) {
    this.transport = transport;
    this.start();
  }

  /** Note that the transport has closed. */
  detach() {
    this.transport = null;
  }

  /** Send a keepalive, to which the hub responds. */
  ping(id) {
    this.call(id, "hub.ping", null, {});
  }

  /** Note that all registrations and subscriptions are restored. */
  restored() {}

  publish(id, topic, data, { retain = false, attachments = [] }) {
    const body = { topic: this.spellTopic(topic), data, ...(retain ? { retain } : {}) };
    this.call(id, "hub.publish", body, { attachments });
  }

  register(id, name, options) {
    this.call(id, "hub.register", { name: this.spellMethod(name), ...options }, {});
  }

  unregister(id, name) {
    this.call(id, "hub.unregister", { name: this.spellMethod(name) }, {});
  }

  /** Return a dotted topic or pattern as this protocol writes it. */
  spellTopic(text, isPattern = false) {
    return rewriteTopic(text, DOTTED_TOPICS, this.constructor.topicStyle, isPattern);
  }

  /** Return a topic of the hub in the dotted form; empty if it is invalid. */
  readTopic(text) {
    try {
      return rewriteTopic(text, this.constructor.topicStyle, DOTTED_TOPICS);
    } catch {
      return "";
    }
  }

  spellMethod(name) {
    return spellName(name, this.constructor.nameStyle);
  }

  /** Return the target of a call: the token of a callback, or the name of a method as this protocol writes it. */
  targetOf(name) {
    if (isText(name) && CALLBACK_PREFIX.test(name)) return { token: name.replace(CALLBACK_PREFIX, "").toLowerCase() };
    try {
      foldName(name);
      return { method: this.spellMethod(name) };
    } catch (error) {
      throw new CallError("no_such_method", error.message);
    }
  }

  /** Send a text or bytes. A message over the limit is refused here, because the hub would close the connection. */
  send(data) {
    this.checkSize(data);
    if (this.transport !== null && this.transport.bufferedBytes > MAX_UNSENT) {
      throw new CallError("overloaded", "the hub does not read, and the send buffer is full");
    }
    this.transport?.send(data);
  }

  checkSize(data) {
    const { maxText } = this.settings;
    // UTF-8 takes at most 3 bytes per UTF-16 unit, so most texts need not be encoded to be measured.
    if (isText(data) && data.length * 3 > maxText && (data.length > maxText || utf8Length(data) > maxText)) {
      throw new CallError("too_large", `a message has at most ${maxText} bytes`);
    }
  }

  /** Decode a response and report it; if it cannot be decoded, the request fails. */
  deliverResponse(id, decode, report) {
    const fail = (why) => {
      this.listener.errorReceived(id, new CallError("raised", `the response cannot be decoded: ${why}`));
    };
    decodeThen(decode, report, fail);
  }

  /** Decode and report an event; one that cannot be decoded counts as missed. */
  deliverEvent(name, decode) {
    const report = (event) => this.listener.eventReceived(name, event);
    decodeThen(decode, report, () => this.listener.eventsMissed(name, 1));
  }

  /** Decode the body of a call and report the call; if the body cannot be decoded, the call fails. */
  deliverCall(call, decode) {
    const report = (body) => this.listener.callReceived(this, { ...call, body });
    decodeThen(decode, report, (text) => this.sendError(call.id, { reason: "bad_arguments", text }));
  }
}

/** Fill the placeholders of a text: `{0}` is the code, `{1}` the first argument. Missing ones become empty. */
export function fillPlaceholders(text, codes, args) {
  const argument = (name) => (/^\d{1,4}$/.test(name) ? (args[name - 1] ?? "") : "");
  const replace = (_, name) => (Object.hasOwn(codes, name) ? codes[name] : argument(name));
  return text.replace(/\{(\w+)\}/g, replace).slice(0, MAX_FILLED);
}

/** Return a text as `fillPlaceholders` restores it. Braces have no escape: a text with braces becomes an argument. */
export function toTemplate(text, args = []) {
  if (text.includes("{")) return { text: `{${args.length + 1}}`, args: [...args, text] };
  return args.length ? { text, args } : { text };
}

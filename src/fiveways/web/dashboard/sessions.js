// Sessions, from `hub.peers`: where they come from, and what they registered and subscribed to. Names are chosen by
// clients, and may be anything.

import { colourOf } from "./charts.js";
import { Details, terms } from "./details.js";
import { byId, h, Table } from "./dom.js";
import { count, duration, exactly, moment } from "./format.js";

const MOST_PEERS = 50;
const FEW = 3;

/** Applications in the hub's own process have neither an identity nor an address. */
const isInHub = (session) => session.protocol === "app";
const identityOf = (session) => session.identity || (isInHub(session) ? "–" : "anonymous");
const addressOf = (session) => session.address || (isInHub(session) ? "in the hub" : "–");

/** The first names of a list, and how many more there are. */
function some(names, total) {
  const shown = names.slice(0, FEW);
  const rest = total - shown.length;
  if (!total) return "–";
  return shown.length ? `${shown.join(", ")}${rest > 0 ? ` and ${count(rest)} more` : ""}` : count(total);
}

/** All names of a list, one below the other. */
function all(names, total) {
  if (!total) return "none";
  const rest = total - names.length;
  return h("ul", {}, ...names.map((each) => h("li", {}, h("code", {}, each))), rest > 0 ? h("li", {}, `and ${count(rest)} more`) : null);
}

export class Sessions {
  #known = new Map();

  /** `ask` gets the answer of `hub.peers` about one session. */
  constructor(ask) {
    this.ask = ask;
    this.table = new Table("Sessions", [
      { title: "Session" }, { title: "Name", kind: "words" }, { title: "Protocol" }, { title: "Identity", kind: "words", extra: true },
      { title: "Address", kind: "unbroken", extra: true }, { title: "Connected since", kind: "unbroken", extra: true }, { title: "Registered", kind: "words roomy" },
      { title: "Subscribed", kind: "words roomy" },
    ], "No open sessions.");
    byId("peers").append(this.table.element);
    this.details = new Details("peers", "Session");
  }

  /** Returns the session with this public name, or null. */
  find(peer) {
    return this.#known.get(peer) ?? null;
  }

  /** Show an answer of `hub.peers`. */
  show(told) {
    this.#known = new Map(told.peers.map((each) => [each.peer, each]));
    const rows = told.peers.slice(0, MOST_PEERS).map((each) => [
      { text: each.peer, kind: "code", key: each.peer, isOpen: each.peer === this.details.key, press: (opener) => this.#open(each, opener) },
      each.name || "–", { text: each.protocol, kind: `proto ${colourOf(each.protocol)}` }, identityOf(each), addressOf(each),
      { text: moment(each.since), title: exactly(each.since) }, some(each.registered, each.methods), some(each.subscribed, each.subscriptions),
    ]);
    const hidden = told.sessions - rows.length;
    this.table.show(rows, { more: hidden > 0 ? `${count(hidden)} more sessions are not listed.` : "" });
  }

  refuse(sentence) {
    this.#known.clear();
    this.details.close();
    this.table.show([], { empty: sentence });
  }

  async #open(session, opener) {
    this.details.toggle(session.peer, opener, ...this.#about(session));
    if (this.details.key !== session.peer) return;
    const whole = await this.ask(session.peer);
    if (whole) this.details.update(session.peer, ...this.#about(whole));
    else this.details.update(session.peer, ...this.#about(session), h("p", { class: "hint" }, "This session has ended."));
  }

  #about(session) {
    const { peer, name, protocol, since, observer } = session;
    return [
      h("h4", { class: "name" }, name || peer),
      terms([
        ["Session", h("code", {}, peer)], ["Name", name], ["Protocol", protocol], ["Identity", identityOf(session)],
        ["Address", addressOf(session)], ["Connected since", `${exactly(since)} (${duration(Math.max(0, Math.floor(Date.now() / 1000 - since)))})`],
        ["Traffic", observer ? "not counted: this session observes the hub" : ""],
        ["Registered methods", all(session.registered, session.methods)], ["Subscribed topics", all(session.subscribed, session.subscriptions)],
      ]),
    ];
  }
}

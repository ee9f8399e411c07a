// Tiles and tables of the traffic: protocols, calls between protocols, slow consumers.

import { colourOf, inOrder } from "./charts.js";
import { byId, h, say, show, Table } from "./dom.js";
import { byteRate, bytes, count, duration, rate, short } from "./format.js";
import { frames } from "./history.js";
import { HUB } from "./place.js";

const isOwn = (method) => method.startsWith("hub.");
/** All calls but those of the hub's own methods; some were counted by names that have made room for others since. */
const called = (told, column) => (
  told.methods.reduce((sum, each) => sum + (isOwn(each.method) ? 0 : each[column]), told.forgotten?.[column] ?? 0)
);
/** Topics make room for others as well, so that only protocols have all that there was. */
const passed = (told, column) => Object.values(told.protocols).reduce((sum, each) => sum + each[column], 0);
const many = (number, what) => `${count(number)} ${what}${number === 1 ? "" : "s"}`;
/** More columns than this need more room than half of the page. */
const MANY = 6;

/** A list of names and values, which are used again. */
class Tiles {
  constructor(place, names) {
    this.values = new Map();
    for (const [name, title] of names) {
      const value = h("dd", {}, "–");
      const below = h("dd", { class: "below" });
      place.append(h("div", {}, h("dt", {}, title), value, below));
      this.values.set(name, { value, below });
    }
  }

  say(name, value, below = "", kind = "") {
    const tile = this.values.get(name);
    say(tile.value, value);
    say(tile.below, below);
    tile.value.className = kind;
  }
}

export class Panels {
  constructor(history) {
    this.history = history;
    this.tiles = new Tiles(byId("tiles"), [
      ["sessions", "Sessions"], ["calls", "Calls"], ["failures", "Failed calls"], ["p95", "Latency p95"],
      ["publications", "Publications"], ["deliveries", "Deliveries"], ["bytes", "Bytes"], ["open", "Open calls"],
    ]);
    this.protocols = this.#table("protocols", "Traffic by protocol", [
      { title: "Protocol" }, { title: "Sessions", number: true }, { title: "Frames/s in", number: true }, { title: "out", number: true },
      { title: "Bytes/s in", number: true, extra: true }, { title: "out", number: true, extra: true }, { title: "Calls/s", number: true },
      { title: "Pub/s", number: true, extra: true },
    ], "No sessions yet.");
    this.slow = this.#table("slow", "Slow consumers", [
      { title: "Session" }, { title: "Protocol" }, { title: "Missed events", number: true }, { title: "Unread", number: true },
    ], "No slow consumers.");
    this.bridges = byId("bridges");
  }

  #table(place, label, columns, empty) {
    const table = new Table(label, columns, empty);
    byId(place).append(table.element);
    return table;
  }

  /** Show an answer of `hub.stats`. */
  stats(told) {
    const waiting = Object.values(told.queues ?? {}).reduce((sum, each) => sum + each, 0);
    const also = [told.owed ? `${count(told.owed)} durable` : "", waiting ? `${count(waiting)} queued` : ""].filter(Boolean);
    this.tiles.say("open", count(told.open_calls), also.join(", ") || "none queued");
    this.tiles.say("sessions", count(told.sessions), `${many(told.offers, "method")}, ${many(told.subscriptions, "subscription")}`);
  }

  /** Show the latest answer of `hub.traffic`. */
  traffic() {
    const told = this.history.latest;
    this.#totals(told);
    this.#protocols(told);
    this.#bridges(told.bridges);
    this.slow.show(told.slow.map((each) => [
      { text: each.peer, kind: "code" }, each.protocol, { text: count(each.missed), kind: each.missed ? "bad" : "" }, bytes(each.waiting_bytes),
    ]));
    const observed = this.history.rate((each) => frames(each.observers));
    say(byId("observers"), observed === null ? "" : ` (now ${short(observed)} frames/s)`);
  }

  #totals(told) {
    const { history } = this;
    const failed = history.rate((each) => called(each, "failures"));
    const recent = history.latency();
    const sizes = (each) => passed(each, "bytes_in") + passed(each, "bytes_out");
    const all = (sum, column) => [rate(history.rate((each) => sum(each, column))), `${count(sum(told, column))} total`];
    this.tiles.say("calls", ...all(called, "calls"));
    this.tiles.say("failures", ...all(called, "failures"), failed > 0 ? "bad" : "");
    this.tiles.say("p95", duration(recent.p95), recent.p95 === null || recent.p95 === undefined ? "no calls in the last 5 s" : `p50 ${duration(recent.p50)}, p99 ${duration(recent.p99)}`);
    this.tiles.say("publications", ...all(passed, "publications"));
    this.tiles.say("deliveries", ...all(passed, "deliveries"));
    this.tiles.say("bytes", byteRate(history.rate(sizes)), `${bytes(sizes(told))} total`);
  }

  #protocols(told) {
    const names = inOrder(Object.keys(told.protocols));
    const of = (name, column) => this.history.rate((each) => each.protocols[name]?.[column] ?? 0);
    this.protocols.show(names.filter((name) => told.protocols[name].sessions || frames(told.protocols[name]) || told.protocols[name].calls).map((name) => [
      { text: name, kind: `proto ${colourOf(name)}` }, count(told.protocols[name].sessions), short(of(name, "frames_in")), short(of(name, "frames_out")),
      bytes(of(name, "bytes_in")), bytes(of(name, "bytes_out")), short(of(name, "calls")), short(of(name, "publications")),
    ]));
  }

  #bridges(bridges) {
    if (!bridges.length) {
      this.bridges.replaceChildren(h("p", { class: "empty" }, "No calls yet. Try ", h("code", {}, `fiveways call ${HUB} hub.ping`), "."));
      return;
    }
    const callers = inOrder(new Set(bridges.map((each) => each.caller)));
    const last = (each) => (each === "hub" ? 1 : 0);
    const callees = inOrder(new Set(bridges.map((each) => each.callee))).sort((a, b) => last(a) - last(b));
    const shape = [...callers, "|", ...callees].join(" ");
    if (this.shape !== shape) this.#drawBridges(callers, callees, shape);
    // Calls that the hub answers itself are often the most, and must not make the rest look pale.
    const most = Math.max(...bridges.map((each) => (each.callee === "hub" ? 0 : each.calls)));
    const found = new Map(bridges.map((each) => [`${each.caller} ${each.callee}`, each]));
    for (const [key, cell] of this.cells) {
      const each = found.get(key);
      // By the root, so that one busy pair does not make all others look alike.
      const share = each ? Math.sqrt(Math.min(1, each.calls / Math.max(most, 20))) : 0;
      const heat = each ? 1 + Math.round((each.callee === "hub" ? 2 : 5) * share) : 0;
      cell.className = `h${heat}`;
      say(cell.children[0], each ? short(each.calls) : "");
      say(cell.children[1], each && each.p95 !== null ? duration(each.p95) : "");
      say(cell.children[2].firstChild, each?.failures ? short(each.failures) : "");
      show(cell.children[2], Boolean(each?.failures));
      const words = each ? `: ${many(each.calls, "call")}, ${count(each.failures)} failed, p95 ${duration(each.p95)}` : ": none";
      cell.title = key.replace(" ", " → ") + words;
    }
  }

  #drawBridges(callers, callees, shape) {
    this.shape = shape;
    this.cells = new Map();
    const head = h("tr", {}, h("th", { scope: "col" }, "from \\ to"), ...callees.map((each) => h("th", { scope: "col" }, h("span", {}, each))));
    const rows = callers.map((caller) => h("tr", {}, h("th", { scope: "row", class: `proto ${colourOf(caller)}` }, caller), ...callees.map((callee) => {
      const cell = h("td", {}, h("b"), h("span"), h("em", {}, h("i"), h("span", {}, " failed")));
      this.cells.set(`${caller} ${callee}`, cell);
      return cell;
    })));
    const table = h("table", { class: callees.length > MANY ? "heat many" : "heat", "aria-label": "Calls by caller and callee protocol" }, h("thead", {}, head), h("tbody", {}, ...rows));
    const time = h("span", { class: "extra" }, "p95 latency and ");
    const note = h("p", { class: "more" }, "Calls since the hub started, with ", time, "failures", callees.length > MANY ? h("span", { class: "extra" }, " (✗)") : null, ".");
    this.bridges.replaceChildren(h("div", { class: "scroll", tabIndex: 0, role: "region", "aria-label": "Calls between protocols" }, table), note);
  }

  /** Say why nothing is shown. */
  refuse(sentence) {
    for (const each of [this.protocols, this.slow]) each.show([], { empty: sentence });
    this.shape = "";
    this.bridges.replaceChildren(h("p", { class: "empty" }, sentence));
  }
}

// What the pipeline found last, from `hub.results`.

import { byId, h, say, Table } from "./dom.js";
import { count, duration, reasonText, timeOfDay } from "./format.js";

const percent = (part, whole) => (whole ? `${((100 * part) / whole).toFixed(part && part / whole < 0.01 ? 2 : 1)} %` : "–");
const pair = (each) => `${each.caller || "unknown"} → ${each.callee || "hub"}`;

const SHOWN = 10;
const TABLES = [
  ["slo", "Slowest methods", [{ title: "Method", kind: "wide name" }, { title: "Calls", number: true }, { title: "Failed", number: true }, { title: "p99", number: true }],
    (each) => [each.method || "unknown", count(each.calls), percent(each.errors, each.calls), duration(each.p99)], "No calls were recorded."],
  ["errors", "Most frequent errors", [{ title: "Method", kind: "wide name" }, { title: "Reason" }, { title: "Caller → callee", extra: true }, { title: "Calls", number: true }, { title: "Last", extra: true }],
    (each) => [each.method || "unknown", each.reason ? reasonText(each.reason) : "no response", pair(each), count(each.calls), timeOfDay(each.last_at)], "No failures."],
  ["starved", "Accepted requests without a response", [{ title: "Method", kind: "wide name" }, { title: "Caller" }, { title: "Deliveries", number: true }, { title: "Waiting for", number: true }],
    (each) => [each.method || "unknown", each.caller || "unknown", count(each.forwards), duration(each.waited)], "All accepted requests were answered."],
  ["slow_consumers", "Slow consumers", [{ title: "Session", kind: "wide name" }, { title: "Protocol" }, { title: "Dropped", number: true }, { title: "Queued p95", number: true }],
    (each) => [each.peer || each.session, each.protocol, `${count(each.dropped)} of ${count(each.events)}`, duration(each.queued_p95)], "No events were dropped."],
  ["bridge_matrix", "Calls between protocols", [{ title: "Caller → callee", kind: "wide" }, { title: "Calls", number: true }, { title: "Failed", number: true }, { title: "p95", number: true }],
    (each) => [pair(each), count(each.calls), percent(each.errors, each.calls), duration(each.p95)], "No calls were recorded."],
];

export class Results {
  constructor() {
    this.note = h("p", { class: "empty" });
    this.summary = h("p", { class: "lead" });
    this.tables = new Map();
    this.grid = h("div", { class: "grid" });
    for (const [name, title, columns, , empty] of TABLES) {
      const table = new Table(title, columns, empty);
      this.tables.set(name, table);
      this.grid.append(h("div", {}, h("h3", {}, title), table.element));
    }
    this.report = h("p", {}, h("a", { href: "/report" }, "Full report"), " (if it was generated)");
    byId("results-body").append(this.note, this.summary, this.grid, this.report);
    this.show(null);
  }

  /** Show an answer of `hub.results`. */
  show(told) {
    const isThere = told !== null && told.trouble === undefined;
    for (const each of [this.summary, this.grid, this.report]) each.hidden = !isThere;
    this.note.hidden = isThere;
    if (told === null) {
      this.note.replaceChildren("To see results here, start the hub with ",
        h("code", {}, "fiveways serve --journal journal --set dashboard.tables=tables"), " and run ", h("code", {}, "fiveways pipeline run --journal journal --out tables"), ".");
      return;
    }
    if (!isThere) return say(this.note, `The tables cannot be read. ${told.trouble}`);
    const made = told.finished_at.replace("T", " ").replace(/\.\d+|\+00:00|Z$/g, "");
    say(this.summary, [
      `Tables built at ${made} UTC from ${count(told.segments)} journal segments`, told.day ? `day ${told.day}` : "",
      `${count(told.rows.calls ?? 0)} calls and ${count(told.rows.messages ?? 0)} messages in total`, `${count(told.quarantined)} unreadable`, `${count(told.late)} late`,
    ].filter(Boolean).join(" · "));
    for (const [name, , , cells] of TABLES) {
      const rows = told[name] ?? [];
      this.tables.get(name).show(rows.slice(0, SHOWN).map(cells), { more: rows.length > SHOWN ? `The first ${SHOWN} of ${count(rows.length)}.` : "" });
    }
  }

  refuse(sentence) {
    this.show(null);
    say(this.note, sentence);
  }
}

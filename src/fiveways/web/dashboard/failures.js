// The latest failures, and for each of them its details: the legs of the call, and the command that traces it.

import { command, Details, terms } from "./details.js";
import { byId, cut, h, Table } from "./dom.js";
import { count, duration, exactly, reasonText, timeOfDay } from "./format.js";
import { inARow } from "./history.js";

const NO_OPERATION = "none: the hub refused the call before routing it";
const NO_JOURNAL = ["The hub writes no journal, so this call cannot be traced. Start the hub with ", h("code", {}, "--journal DIR"), "."];

export class Failures {
  /** `describe` gives what is known of a session by its public name: `{name, address}`, or null. */
  constructor(describe) {
    this.describe = describe;
    this.table = new Table("Latest failures", [
      { title: "Time" }, { title: "Method", kind: "words" }, { title: "Caller → callee", kind: "unbroken", extra: true }, { title: "Count", number: true },
      { title: "Reason", kind: "wide name" },
    ], "No call has failed since the hub started.");
    byId("failures").append(this.table.element);
    this.details = new Details("failures", "Failed call");
  }

  /** Show the failures of an answer of `hub.traffic`. */
  show(told) {
    this.table.show(inARow(told.failures).map((each) => {
      const key = `${each.at} ${each.op} ${each.method}`;
      return [
        { text: timeOfDay(each.at), key, isOpen: key === this.details.key, press: (opener) => this.details.toggle(key, opener, ...this.#about(each, told.journal)) },
        cut(each.method, 100), `${each.caller} → ${each.callee}`, count(each.times), each.text ? `${reasonText(each.reason)}: ${each.text}` : reasonText(each.reason),
      ];
    }));
  }

  refuse(sentence) {
    this.table.show([], { empty: sentence });
  }

  #about(failure, isJournaled) {
    const { op = "", method, reason, text, trace, seconds, at, times } = failure;
    const caller = this.#party(failure.caller, failure.caller_peer);
    const callee = failure.callee_peer ? this.#party(failure.callee, failure.callee_peer) : "";
    const began = at - (seconds ?? 0);
    const legs = h("ol", { class: "legs", "aria-label": "Legs of the call" },
      h("li", {}, h("time", {}, exactly(began)), ` ${caller} called ${cut(method, 100)}`),
      callee ? h("li", {}, `The hub forwarded the call to ${callee}`) : null,
      h("li", {}, h("time", {}, exactly(at)), ` The call failed after ${duration(seconds ?? 0)}: ${reasonText(reason)}`));
    const earlier = times > 1 ? `${count(times)} equal failures in a row; this is the latest` : "";
    const traced = op === "" ? "" : isJournaled ? [command(`fiveways trace ${op}`), h("span", { class: "hint" }, "Append the journal directory (journal.path) if it is not journal.")] : NO_JOURNAL;
    return [
      h("h4", { class: "name" }, `${cut(method, 100)}: ${reasonText(reason)}`),
      terms([
        ["Operation", op || NO_OPERATION], ["Caller", caller], ["Callee", callee || "none"], ["Reason", reasonText(reason)], ["Text", text],
        ["Time", exactly(at)], ["Duration", op ? duration(seconds) : ""], ["Trace id", trace], ["Count", earlier], ["Trace", traced],
      ]),
      legs,
    ];
  }

  /** A session in words: its protocol and public name, and what else is known of it. */
  #party(protocol, peer) {
    const found = this.describe(peer);
    const more = [found?.name ? `“${found.name}”` : "", found?.address ?? ""].filter(Boolean).join(", ");
    return [protocol, peer ? `session ${peer}` : "", more ? `(${more})` : ""].filter(Boolean).join(" ");
  }
}

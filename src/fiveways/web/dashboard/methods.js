// Methods: which there are, what they do, and a form to call the one that was chosen.

import { CallError } from "/fiveways.js";
import { byId, cut, h, say, show } from "./dom.js";
import { asJson, count, duration, fromJson, pretty, rate, reasonText } from "./format.js";
import { Picker } from "./picker.js";
import { HUB } from "./place.js";

/** Built-ins that are about the session that calls them: this page would not know what to do with them. */
const ABOUT_ITSELF = new Set(["callback", "pull", "register", "set", "subscribe", "unregister", "unset", "unsubscribe"].map((each) => `hub.${each}`));
/** What is counted together, and is no method. */
const TOGETHER = new Map([
  ["(other)", "All methods that exceed [metrics] max_methods, counted together."],
  ["(unknown)", "All calls of methods that are not registered."],
  ["(callback)", "All calls of callbacks, counted together."],
]);
/** What the names of methods are made of in LRPM, which this page speaks. */
const UNSPELLED = /[^A-Za-z0-9_.:\- ]/;
const SELECT = "Select a method to read its documentation and to call it.";
const MOST_SHOWN = 20_000;
const MOST_PARTS = 200;
const MOST_REMEMBERED = 100;

export class Methods {
  #running = null;
  #bodies = new Map();
  #docs = 0;

  constructor(history, session) {
    this.history = history;
    this.session = session;
    this.names = [];
    this.routes = [];
    /** Names that are offered; null as long as not all of them are known. */
    this.offered = null;
    this.why = "";
    this.chosen = "";
    const line = `fiveways call ${HUB} hub.echo '"hello"'`;
    this.picker = new Picker({
      name: "method", label: "Find a method", hint: "name", order: "sorted by total calls", columns: ["calls", "failed", "p95"], choose: (name) => this.choose(name),
      empty: ["No methods are registered yet. A worker registers one with ", h("code", {}, "peer.register(...)"), ". The hub itself answers ", h("code", {}, line), "."],
      extra: (typed) => (this.routes.some((each) => typed.startsWith(each) && typed !== each) ? { name: typed, cells: ["", "", ""], says: "served by a route" } : null),
    });
    this.trouble = h("p", { class: "problem", role: "status" });
    byId("method-list").append(this.picker.element, this.trouble);
    show(this.trouble, false);
    this.#build(byId("method-one"));
  }

  #build(place) {
    this.title = h("h3", { class: "name" }, "No method selected");
    this.doc = h("p", { class: "doc" }, SELECT);
    this.body = h("textarea", { id: "call-body", rows: 4, spellcheck: false, "aria-describedby": "call-problem", placeholder: "JSON, such as [2, 3]; empty for no arguments", oninput: () => this.#check(), onkeydown: (event) => this.#key(event) });
    this.problem = h("p", { id: "call-problem", class: "problem", role: "status" });
    this.timeout = h("input", { id: "call-timeout", type: "number", min: "0.1", max: "3600", step: "any", value: "10", required: true });
    this.asStream = h("input", { id: "call-stream", type: "checkbox" });
    this.button = h("button", { type: "submit", class: "main" }, "Call");
    this.stop = h("button", { type: "button", onclick: () => this.#running?.abort() }, "Cancel");
    this.form = h("form", { "aria-label": "Call a method", onsubmit: (event) => { event.preventDefault(); this.#call(); } },
      h("label", { for: "call-body" }, "Arguments"), this.body, this.problem,
      h("div", { class: "line" },
        h("label", { for: "call-timeout" }, "Timeout"), this.timeout, h("span", {}, "s"),
        h("label", { class: "tick" }, this.asStream, "Stream the result"), this.button, this.stop));
    this.outcome = h("p", { class: "outcome" });
    this.result = h("pre", { tabIndex: 0, "aria-label": "Result" });
    this.answer = h("div", { class: "answer", role: "status", id: "call-answer" }, this.outcome, this.result);
    place.append(this.title, this.doc, this.form, this.answer);
    show(this.form, false);
    show(this.answer, false);
    show(this.stop, false);
  }

  /** Take the lists of `hub.discover`; `more` is how many did not fit in its answer. */
  listed(methods, routes, more = 0) {
    this.names = methods.filter((each) => !ABOUT_ITSELF.has(each));
    this.routes = routes;
    this.offered = more ? null : new Set(methods);
    this.say(more ? `${count(more)} more methods are not listed.` : "", "more");
    this.draw();
  }

  /** Say what is to be known about the list, or nothing. */
  say(text, kind = "problem") {
    this.trouble.className = kind;
    say(this.trouble, text);
    show(this.trouble, text !== "");
  }

  /** What was called once and is not there any more. Of what one may not call, nothing is known. */
  #isGone(name) {
    if (this.offered === null || this.offered.has(name) || name.startsWith("hub.") || name.startsWith("(")) return false;
    return !UNSPELLED.test(name) && this.session.rights.may("call", name) && !this.routes.some((each) => name.startsWith(each));
  }

  /** Why a method cannot be called from here, or nothing. */
  #why(name) {
    if (name === "" || name.startsWith("(")) return "";
    if (UNSPELLED.test(name)) return "This page uses LRPM, which cannot encode this name. Call the method with a client of another protocol.";
    return this.#isGone(name) ? "This method is no longer registered." : "";
  }

  /** Show what there is with the latest numbers: the most called first, the hub's own last. Rates would make rows jump. */
  draw() {
    const told = this.history.latest?.methods ?? [];
    const seen = new Map(told.map((each) => [each.method, each]));
    const rates = this.history.rates("methods", "method", "calls");
    const isOwn = (name) => (TOGETHER.has(name) ? 2 : Number(name.startsWith("hub.")));
    const names = [...new Set([...this.names, ...told.map((each) => each.method).filter((each) => !ABOUT_ITSELF.has(each))])];
    const gone = new Set(names.filter((each) => this.#isGone(each)));
    names.sort((a, b) => gone.has(a) - gone.has(b) || isOwn(a) - isOwn(b) || (seen.get(b)?.calls ?? 0) - (seen.get(a)?.calls ?? 0) || (a < b ? -1 : 1));
    this.picker.show(names.map((name) => {
      const numbers = seen.get(name);
      if (!numbers) return { name, cells: ["", "", ""], says: "not called yet" };
      const calls = rate(rates.get(name) ?? 0);
      const failed = numbers.failures ? `${Math.ceil((100 * numbers.failures) / numbers.calls)} %` : "";
      const p95 = numbers.p95 === null ? "" : duration(numbers.p95);
      if (gone.has(name)) return { name, cells: ["gone", failed, p95], kind: "gone", says: "no longer registered" };
      return { name, cells: [calls, failed, p95], kind: numbers.failures ? "failing" : "", says: `${calls} calls, ${failed || "none"} failed, p95 ${p95 || "unknown"}` };
    }));
    this.#allow();
  }

  /** Show one method, and its form if it may be called. */
  async choose(name) {
    if (this.chosen !== name) {
      this.#remember();
      this.#running?.abort();
      this.body.value = this.#bodies.get(name) ?? "";
      show(this.answer, false);
    }
    this.chosen = name;
    say(this.title, name);
    this.why = this.#why(name);
    say(this.doc, this.why || "…");
    this.#check();
    this.#allow();
    if (this.why) return void (this.#docs += 1);
    const asked = ++this.#docs;
    let text = TOGETHER.get(name);
    if (text) return say(this.doc, text);
    try {
      text = (await this.session.peer.discover(name)).doc || "No documentation.";
    } catch (error) {
      text = error instanceof CallError && error.reason === "denied" ? "You are not allowed to call this method." : `No documentation: ${error.message}`;
    }
    if (asked === this.#docs) say(this.doc, text);
  }

  #remember() {
    if (!this.chosen) return;
    this.#bodies.delete(this.chosen);
    this.#bodies.set(this.chosen, this.body.value);
    if (this.#bodies.size > MOST_REMEMBERED) this.#bodies.delete(this.#bodies.keys().next().value);
  }

  /** Offer only what the hub would not refuse. */
  #allow() {
    const { rights } = this.session;
    const why = this.#why(this.chosen);
    if (why !== this.why) return void this.choose(this.chosen);
    if (why) return show(this.form, false);
    show(this.form, this.chosen !== "" && !TOGETHER.has(this.chosen) && rights.may("call", this.chosen));
    if (this.chosen) return;
    const may = rights.mayAny("call");
    say(this.doc, may ? SELECT : "You have no permission to call methods.");
  }

  #check() {
    const [, problem] = fromJson(this.body.value);
    say(this.problem, problem);
    this.body.setAttribute("aria-invalid", String(problem !== ""));
    this.button.disabled = problem !== "";
  }

  #key(event) {
    // Enter makes a new line here, as everywhere where one writes.
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.form.requestSubmit();
  }

  async #call() {
    const [body, problem] = fromJson(this.body.value);
    if (problem || this.#running) return;
    const abort = new AbortController();
    this.#running = abort;
    this.#remember();
    show(this.answer, true);
    show(this.stop, true);
    this.button.disabled = true;
    this.answer.className = "answer";
    say(this.outcome, "Waiting for the response");
    say(this.result, "");
    show(this.result, false);
    const begun = performance.now();
    const took = () => duration((performance.now() - begun) / 1000);
    const options = { timeout: this.timeout.valueAsNumber, signal: abort.signal };
    try {
      if (this.asStream.checked) await this.#stream(body, options, took);
      else {
        const value = await this.session.peer.call(this.chosen, body, options);
        this.#settle("good", `Result after ${took()}`, pretty(value, MOST_SHOWN));
      }
    } catch (error) {
      this.#failed(error, took());
    } finally {
      this.#running = null;
      show(this.stop, false);
      this.#check();
    }
  }

  async #stream(body, options, took) {
    const parts = [];
    let number = 0;
    for await (const part of this.session.peer.stream(this.chosen, body, options)) {
      number += 1;
      parts.push(`${number}: ${cut(asJson(part), 2000)}`);
      if (parts.length > MOST_PARTS) parts.shift();
      this.#settle("good", `${number} ${number === 1 ? "part" : "parts"} so far, ${took()}`, parts.join("\n"));
    }
    const left = number > MOST_PARTS ? `, the last ${MOST_PARTS} shown` : "";
    this.#settle("good", `Stream ended after ${took()}: ${number} ${number === 1 ? "part" : "parts"}${left}`, parts.join("\n"));
  }

  #failed(error, took) {
    if (!(error instanceof CallError)) {
      this.#settle("bad", `Failed after ${took}: ${error.message}`, "");
      return;
    }
    const ran = { no: "it did not run", yes: "it ran", unknown: "it may have run" }[error.ran] ?? "";
    const wait = error.retryAfter ? `, retry after ${duration(error.retryAfter)}` : "";
    const data = error.data === null || error.data === undefined ? "" : `\n${pretty(error.data, MOST_SHOWN)}`;
    this.#settle("bad", `Failed after ${took}: ${reasonText(error.reason)}${ran ? `, ${ran}` : ""}${wait}`, `${error.message}${data}`);
  }

  #settle(kind, outcome, text) {
    this.answer.className = `answer ${kind}`;
    say(this.outcome, outcome);
    say(this.result, text);
    show(this.result, text !== "");
  }
}

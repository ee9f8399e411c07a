// Topics: which there are, what is published on those that one watches, and a form to publish.

import { byId, cut, h, say, show, Table } from "./dom.js";
import { asJson, count, fromJson, rate, timeOfDay } from "./format.js";
import { Picker } from "./picker.js";
import { HUB } from "./place.js";

const MOST_EVENTS = 50;
const MOST_WATCHES = 8;
const LONGEST_DATA = 240;
const SELECT = "Select a topic, or enter a pattern: * matches any characters within a segment.";

export class Topics {
  #events = [];
  #watches = new Map();
  #isDue = false;
  #number = 0;

  constructor(history, session) {
    this.history = history;
    this.session = session;
    const line = `fiveways publish ${HUB} sensors.roof.temperature 21.5`;
    this.picker = new Picker({
      name: "topic", label: "Find a topic", hint: "name, or a pattern such as sensors.*", order: "sorted by total publications", columns: ["published", "missed"], choose: (name) => this.choose(name),
      empty: ["Nothing published yet. Try ", h("code", {}, line), "."], extra: (typed) => ({ name: typed, cells: ["", ""], says: "as typed" }),
    });
    byId("topic-list").append(this.picker.element);
    this.#build(byId("topic-one"));
  }

  #build(place) {
    this.pattern = h("input", { id: "watch-pattern", type: "text", placeholder: "sensors.*.temperature", autocomplete: "off", spellcheck: false, required: true, "aria-describedby": "watch-problem" });
    this.problem = h("p", { id: "watch-problem", class: "problem", role: "status" });
    this.form = h("form", { "aria-label": "Watch a topic", onsubmit: (event) => { event.preventDefault(); this.#watch(this.pattern.value.trim()); } },
      h("label", { for: "watch-pattern" }, "Topic or pattern"),
      h("div", { class: "line" }, this.pattern, h("button", { type: "submit", class: "main" }, "Watch")), this.problem);
    this.chips = h("ul", { class: "chips", "aria-label": "Watched" });
    this.events = new Table("Events", [{ title: "Time" }, { title: "Topic", kind: "name" }, { title: "Data", kind: "wide name code" }], SELECT);
    this.topic = h("input", { id: "publish-topic", type: "text", placeholder: "sensors.roof.temperature", autocomplete: "off", spellcheck: false, required: true, oninput: () => this.#check() });
    this.data = h("textarea", { id: "publish-data", rows: 2, spellcheck: false, placeholder: "JSON, such as 21.5", oninput: () => this.#check() });
    this.retain = h("input", { type: "checkbox", id: "publish-retain" });
    this.button = h("button", { type: "submit" }, "Publish");
    this.said = h("p", { class: "problem", role: "status" });
    this.publish = h("details", { class: "publish" }, h("summary", {}, "Publish"),
      h("form", { "aria-label": "Publish", onsubmit: (event) => { event.preventDefault(); this.#publish(); } },
        h("label", { for: "publish-topic" }, "Topic"), this.topic, h("label", { for: "publish-data" }, "Data"), this.data,
        h("div", { class: "line" }, h("label", { class: "tick" }, this.retain, "Retain the value for later subscribers"), this.button), this.said));
    place.append(this.form, this.chips, this.events.element, this.publish);
  }

  /** Show what there is with the latest numbers. */
  draw() {
    const rates = this.history.rates("topics", "topic", "publications");
    this.picker.show((this.history.latest?.topics ?? []).map((each) => {
      const cells = [rate(rates.get(each.topic) ?? 0), each.missed ? count(each.missed) : ""];
      return { name: each.topic, cells, kind: each.missed ? "failing" : "", says: `${cells[0]} published, ${cells[1] || "none"} missed` };
    }));
    this.allow();
  }

  /** Offer only what the hub would not refuse. */
  allow() {
    const { rights } = this.session;
    show(this.form, rights.mayAny("subscribe"));
    show(this.publish, rights.mayAny("publish"));
    if (!rights.mayAny("subscribe") && this.#watches.size === 0) this.events.show([], { empty: "You have no permission to subscribe." });
  }

  choose(name) {
    this.pattern.value = name;
    this.topic.value = name.includes("*") ? this.topic.value : name;
    this.#check();
    if (this.session.rights.mayAny("subscribe")) this.#watch(name);
  }

  async #watch(pattern) {
    say(this.problem, "");
    if (!pattern || this.#watches.has(pattern)) return;
    if (this.#watches.size >= MOST_WATCHES) {
      say(this.problem, `At most ${MOST_WATCHES} topics can be watched. Stop watching one first.`);
      return;
    }
    this.#watches.set(pattern, null);
    try {
      const events = await this.session.peer.subscribe(pattern);
      if (!this.#watches.has(pattern)) return void events.close();
      this.#watches.set(pattern, events);
      this.#follow(pattern, events);
    } catch (error) {
      this.#watches.delete(pattern);
      say(this.problem, `Cannot watch ${pattern}: ${error.message}`);
    }
    this.#drawWatches();
  }

  async #follow(pattern, events) {
    try {
      for await (const event of events) this.#took(event);
    } catch (error) {
      say(this.problem, `Stopped watching ${pattern}: ${error.message}`);
    }
    if (this.#watches.get(pattern) === events) this.#unwatch(pattern);
  }

  #unwatch(pattern) {
    this.#watches.get(pattern)?.close();
    this.#watches.delete(pattern);
    this.#drawWatches();
  }

  #took(event) {
    this.#number += 1;
    const missed = event.missed ? ` (${count(event.missed)} missed before)` : "";
    const text = asJson(event.data);
    this.#events.unshift([timeOfDay(Date.now() / 1000), `${event.topic}${missed}`, { text: cut(text, LONGEST_DATA), title: text.length > LONGEST_DATA ? `${count(text.length)} characters` : "" }]);
    this.#events.length = Math.min(this.#events.length, MOST_EVENTS);
    // However many come, the page is drawn a few times a second.
    if (this.#isDue) return;
    this.#isDue = true;
    setTimeout(() => { this.#isDue = false; this.#drawEvents(); }, 150);
  }

  #drawEvents() {
    const more = this.#number > MOST_EVENTS ? `The last ${MOST_EVENTS} of ${count(this.#number)} events.` : "";
    const empty = this.#watches.size ? "No events yet." : SELECT;
    this.events.show(this.#events, { more, empty });
  }

  #drawWatches() {
    this.chips.replaceChildren(...[...this.#watches.keys()].map((each) => h("li", {},
      h("span", { class: "name" }, each), h("button", { type: "button", "aria-label": `Stop watching ${each}`, onclick: () => this.#unwatch(each) }, "×"))));
    show(this.chips, this.#watches.size > 0);
    this.#drawEvents();
  }

  #check() {
    const topic = this.topic.value.trim();
    const [, problem] = fromJson(this.data.value);
    const denied = topic && !this.session.rights.may("publish", topic) ? `You are not allowed to publish on ${cut(topic, 80)}.` : "";
    say(this.said, denied || problem);
    this.button.disabled = Boolean(denied || problem);
  }

  async #publish() {
    const [data, problem] = fromJson(this.data.value);
    if (problem) return;
    try {
      await this.session.peer.publish(this.topic.value.trim(), data, { retain: this.retain.checked });
      say(this.said, `Published at ${timeOfDay(Date.now() / 1000)}.`);
    } catch (error) {
      say(this.said, `Publishing failed: ${error.message}`);
    }
  }
}

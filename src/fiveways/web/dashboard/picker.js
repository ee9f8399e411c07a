// A list to choose from, with a field to search it. It is one stop for the tab key: arrows move in it, Enter chooses.
// However long the list is, only its first rows are in the page; whoever wants others types.

import { cut, h, plain, say, show } from "./dom.js";
import { count } from "./format.js";

const ROWS = 100;
const LONGEST_NAME = 160;

export class Picker {
  /**
   * @param {{name: string, label: string, hint: string, order: string, columns: string[], empty: Node[], choose: (name: string) => void,
   *   extra?: (search: string) => object | null}} given
   *   `extra` makes a row of what was typed, if that can be chosen too.
   */
  constructor(given) {
    this.given = given;
    this.chosen = "";
    this.active = -1;
    this.shown = [];
    this.items = [];
    const { name, label, hint, columns } = given;
    this.search = h("input", {
      type: "search", id: `${name}-search`, placeholder: hint, autocomplete: "off", spellcheck: false, "aria-controls": `${name}-options`,
      oninput: () => { this.active = -1; this.list.scrollTop = 0; this.#draw(); }, onkeydown: (event) => this.#key(event),
    });
    this.list = h("ul", {
      role: "listbox", id: `${name}-options`, tabIndex: 0, "aria-label": label, onkeydown: (event) => this.#key(event),
      onclick: (event) => this.#click(event), onfocus: () => this.#activate(Math.max(this.active, this.#place())), onblur: () => this.#activate(-1),
    });
    this.heads = h("div", { class: "heads", "aria-hidden": "true" }, ...[given.order, ...columns].map((each) => h("span", {}, each)));
    this.note = h("div", { class: "empty" }, ...given.empty);
    this.more = h("p", { class: "more" });
    this.element = h("div", { class: "picker" }, h("label", { for: this.search.id }, label), this.search, this.heads, this.list, this.note, this.more);
    this.#draw();
  }

  /** Show these: `{name, cells, kind, says}`, in this order; `says` is what the cells mean, for those who hear the page. */
  show(items) {
    this.items = items;
    this.#draw();
  }

  /** Mark one as chosen. */
  mark(name) {
    this.chosen = name;
    this.#draw();
  }

  #draw() {
    const wanted = this.search.value.trim().toLowerCase();
    const found = wanted ? this.items.filter((each) => each.name.toLowerCase().includes(wanted)) : this.items;
    const typed = this.search.value.trim();
    const extra = typed && !found.some((each) => each.name === typed) ? this.given.extra?.(typed) ?? null : null;
    this.shown = found.slice(0, ROWS);
    if (extra) this.shown.push(extra);
    const rows = this.list.children;
    while (rows.length > this.shown.length) this.list.lastElementChild.remove();
    this.shown.forEach((item, index) => this.#row(rows[index] ?? this.#added(index), item, index));
    const hasRows = this.shown.length > 0;
    show(this.list, hasRows);
    show(this.heads, hasRows);
    show(this.note, this.items.length === 0 && !extra);
    const hidden = found.length - ROWS;
    const none = this.items.length && !hasRows ? `No match among ${count(this.items.length)}.` : "";
    say(this.more, hidden > 0 ? `Showing the first ${ROWS} of ${count(found.length)}. Type to filter.` : none);
    show(this.more, this.more.textContent !== "");
  }

  #added(index) {
    const cells = ["", ...this.given.columns].map((_, place) => h("span", { class: place ? "n" : "name" }));
    const row = h("li", { role: "option", id: `${this.given.name}-option-${index}` }, ...cells);
    this.list.append(row);
    return row;
  }

  #row(row, item, index) {
    [cut(item.name, LONGEST_NAME), ...item.cells].forEach((text, place) => say(row.children[place], text));
    const name = plain(cut(item.name, LONGEST_NAME));
    const label = item.says ? `${name}, ${item.says}` : name;
    if (row.getAttribute("aria-label") !== label) row.setAttribute("aria-label", label);
    if (row.title !== plain(item.name)) row.title = plain(item.name);
    row.setAttribute("aria-selected", String(item.name === this.chosen));
    const kind = [item.kind ?? "", index === this.active ? "active" : ""].filter(Boolean).join(" ");
    if (row.className !== kind) row.className = kind;
  }

  #place() {
    return Math.max(0, this.shown.findIndex((each) => each.name === this.chosen));
  }

  #activate(index) {
    this.active = Math.min(index, this.shown.length - 1);
    [...this.list.children].forEach((row, place) => row.classList.toggle("active", place === this.active));
    const row = this.list.children[this.active];
    if (row) {
      this.list.setAttribute("aria-activedescendant", row.id);
      row.scrollIntoView({ block: "nearest" });
    } else this.list.removeAttribute("aria-activedescendant");
  }

  #key(event) {
    const last = this.shown.length - 1;
    const steps = { ArrowDown: this.active + 1, ArrowUp: this.active - 1, Home: 0, End: last, PageDown: this.active + 10, PageUp: this.active - 10 };
    const isTyping = event.target === this.search;
    if (event.key in steps && !(isTyping && ["Home", "End"].includes(event.key))) {
      event.preventDefault();
      this.#activate(Math.min(last, Math.max(0, steps[event.key])));
    } else if (event.key === "Enter" || (event.key === " " && !isTyping)) {
      event.preventDefault();
      const item = this.shown[isTyping ? Math.max(0, this.active) : this.active];
      if (item) this.#choose(item.name);
    }
  }

  #click(event) {
    const row = event.target.closest("li");
    const item = row && this.shown[[...this.list.children].indexOf(row)];
    if (item) this.#choose(item.name);
  }

  #choose(name) {
    this.mark(name);
    this.given.choose(name);
  }
}

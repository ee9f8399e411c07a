// Details of one row of a table, shown below the table. The table is redrawn all the time; the details stay.

import { byId, h, show } from "./dom.js";

/** A list of terms and values; entries without a value are left out. Values are texts, nodes, or lists of both. */
export function terms(entries) {
  const shown = entries.filter(([, value]) => value !== "" && value !== null && value !== undefined);
  return h("dl", {}, ...shown.flatMap(([term, value]) => [h("dt", {}, term), h("dd", {}, ...[value].flat())]));
}

/** A command to type, with a button that copies it. */
export function command(text) {
  const button = h("button", { type: "button", onclick: () => navigator.clipboard?.writeText(text) }, "Copy");
  // Browsers have a clipboard only for pages from this machine or over TLS.
  show(button, navigator.clipboard !== undefined);
  return h("span", { class: "command" }, h("code", {}, text), button);
}

export class Details {
  /** The row that is shown; empty if none is. */
  key = "";

  constructor(place, label) {
    this.body = h("div");
    this.element = h("div", { class: "details", role: "region", "aria-label": label, tabIndex: -1 },
      h("button", { type: "button", class: "close", "aria-label": "Close details", onclick: () => this.close() }, "×"), this.body);
    show(this.element, false);
    byId(place).append(this.element);
  }

  /** Show the details of a row, or hide them if they are shown. `opener` gets the focus back when they are closed. */
  toggle(key, opener, ...content) {
    if (this.key === key) return this.close();
    this.key = key;
    this.opener = opener;
    this.body.replaceChildren(...content);
    show(this.element, true);
    this.#mark();
    this.element.focus({ preventScroll: true });
    this.element.scrollIntoView({ block: "nearest" });
  }

  /** Replace the content, if this row is still shown. */
  update(key, ...content) {
    if (this.key === key) this.body.replaceChildren(...content);
  }

  close() {
    this.key = "";
    show(this.element, false);
    this.#mark();
    if (this.opener?.isConnected) this.opener.focus({ preventScroll: true });
  }

  #mark() {
    for (const each of this.element.parentElement.querySelectorAll("button.row")) {
      each.setAttribute("aria-expanded", String(this.key !== "" && each.dataset.key === this.key));
    }
  }
}

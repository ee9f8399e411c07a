// Elements from data. Whatever comes from the hub goes into text nodes and attributes: never into markup.

/** What is not seen, or turns the text around it: controls but for tabs and ends of lines, and marks of direction. */
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;

/** A text that shows all that is in it: what would not be seen, or would mislead, as `\u202e`. */
export function plain(text) {
  return text.replace(UNSEEN, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/**
 * Make an element.
 * @param {string} name
 * @param {Record<string, unknown>} [given] properties; `class`, `aria-*`, `role` and other names with a dash are attributes
 * @param {...(Node | string | null)} children
 */
export function h(name, given = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(given)) {
    if (value === undefined || value === null) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), /** @type {EventListener} */ (value));
    else if (key === "class" || key === "role" || key === "for" || key.includes("-")) made.setAttribute(key, plain(String(value)));
    else made[key] = value;
  }
  made.append(...children.filter((each) => each !== null).map((each) => (typeof each === "string" ? plain(each) : each)));
  return made;
}

/** Return the element of that name, which the page has. */
export function byId(name) {
  const found = document.getElementById(name);
  if (found === null) throw new Error(`the page has no #${name}`);
  return found;
}

/** Say something in an element; what says it already is left alone, so that a selection in it stays. */
export function say(element, text) {
  const shown = plain(text);
  if (element.textContent !== shown) element.textContent = shown;
}

/** Show or hide, and touch nothing if it is so already. */
export function show(element, isShown) {
  if (element.hidden === isShown) element.hidden = !isShown;
}

/**
 * A table whose rows change all the time: cells are used again, and only what differs is written.
 * Columns are `{title, number, extra}`: numbers stand right, and what is extra is left out on narrow screens.
 * Cells are texts, or `{text, kind, title}` with a class and the whole of what is cut. A cell with `press` is a button,
 * which gets itself; `key` names its row and `isOpen` says whether the details of that row are shown.
 */
export class Table {
  constructor(label, columns, empty) {
    this.columns = columns;
    const heads = columns.map((each) => h("th", { scope: "col", class: this.#kind(each).replace("code", "") }, each.title));
    this.body = h("tbody");
    this.table = h("table", { "aria-label": label }, h("thead", {}, h("tr", {}, ...heads)), this.body);
    this.note = h("p", { class: "empty" }, empty);
    this.more = h("p", { class: "more" });
    this.element = h("div", { class: "table" }, this.table, this.note, this.more);
    this.show([]);
  }

  #kind(column, extra = "") {
    return [column.number ? "n" : "", column.extra ? "extra" : "", column.kind ?? "", extra].filter(Boolean).join(" ");
  }

  /** Show these rows; `more` is a sentence below them, `empty` one in place of none. */
  show(rows, { more = "", empty = "" } = {}) {
    show(this.table, rows.length > 0);
    show(this.note, rows.length === 0);
    if (empty) say(this.note, empty);
    say(this.more, more);
    show(this.more, more !== "");
    while (this.body.rows.length > rows.length) this.body.lastElementChild.remove();
    rows.forEach((cells, index) => this.#row(this.body.rows[index] ?? this.#added(), cells));
  }

  #added() {
    const row = h("tr", {}, ...this.columns.map((each, index) => {
      const kind = this.#kind(each);
      return index === 0 ? h("th", { scope: "row", class: kind }) : h("td", { class: kind });
    }));
    this.body.append(row);
    return row;
  }

  #row(row, cells) {
    cells.forEach((cell, index) => {
      const { text, kind = "", title = "", press = null, key = "", isOpen = false } = typeof cell === "object" ? cell : { text: cell };
      const place = row.cells[index];
      if (press) this.#button(place, text, press, key, isOpen);
      else say(place, text);
      const wanted = this.#kind(this.columns[index], kind);
      if (place.className !== wanted) place.className = wanted;
      if (place.title !== plain(title)) place.title = plain(title);
    });
  }

  #button(place, text, press, key, isOpen) {
    if (!place.firstElementChild) place.replaceChildren(h("button", { type: "button", class: "row" }));
    const button = place.firstElementChild;
    say(button, text);
    button.dataset.key = key;
    button.onclick = () => press(button);
    if (button.getAttribute("aria-expanded") !== String(isOpen)) button.setAttribute("aria-expanded", String(isOpen));
  }
}

/** A text that is not longer than this, and what is left out is marked. */
export function cut(text, most) {
  return text.length <= most ? text : `${text.slice(0, most - 1)}…`;
}

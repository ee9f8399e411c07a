"""Script of the page: values under the pointer, sortable tables, and links that open collapsed details.

It inserts text only by `textContent`. The page is complete without it.
"""

from typing import Final

SCRIPT: Final = """
"use strict";
const make = (name, kind, text) => {
  const element = document.createElement(name);
  if (kind) element.className = kind;
  if (text !== undefined) element.textContent = text;
  return element;
};
for (const area of document.querySelectorAll(".area[data-table]")) {
  const table = document.getElementById(area.dataset.table);
  if (!table) continue;
  const heads = [...table.tHead.rows[0].cells].map(cell => cell.textContent);
  const rows = table.tBodies[0].rows;
  const rule = make("div", "rule"), tip = make("div", "tip");
  let at = -1;
  const hide = () => { rule.remove(); tip.remove(); at = -1; };
  const show = index => {
    if (index < 0 || index >= rows.length) return hide();
    if (index === at) return;
    at = index;
    const cells = rows[index].cells;
    const list = make("dl");
    for (let column = 1; column < cells.length; column++) {
      list.append(make("dt", "", heads[column]), make("dd", "", cells[column].textContent));
    }
    tip.replaceChildren(make("b", "", cells[0].textContent + " UTC"), list);
    area.append(rule, tip);
    const left = (index + .5) / rows.length * area.clientWidth;
    rule.style.left = left + "px";
    const fits = left + 14 + tip.offsetWidth <= area.clientWidth;
    tip.style.left = Math.max(0, fits ? left + 14 : left - 14 - tip.offsetWidth) + "px";
  };
  area.tabIndex = 0;
  area.setAttribute("role", "group");
  area.setAttribute("aria-label", "Chart; use the arrow keys to show values");
  area.addEventListener("pointermove", event => {
    const box = area.getBoundingClientRect();
    show(Math.min(rows.length - 1, Math.max(0, Math.floor((event.clientX - box.left) / box.width * rows.length))));
  });
  area.addEventListener("pointerleave", hide);
  area.addEventListener("blur", hide);
  area.addEventListener("keydown", event => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === "Escape") hide();
    if (!step) return;
    event.preventDefault();
    show(at < 0 ? (step > 0 ? 0 : rows.length - 1) : Math.min(rows.length - 1, Math.max(0, at + step)));
  });
}
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    if (!head.textContent || head.dataset.fixed) return;
    const button = make("button", "", head.textContent);
    button.type = "button";
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const isNumber = head.classList.contains("n");
      const before = head.getAttribute("aria-sort");
      const isFalling = before ? before === "ascending" : isNumber;
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", isFalling ? "descending" : "ascending");
      const key = row => isNumber ? Number(row.cells[column].dataset.v ?? -Infinity) : row.cells[column].textContent;
      const order = (a, b) => isNumber ? key(a) - key(b) || 0 : key(a).localeCompare(key(b), "en", { numeric: true });
      const rows = [...table.tBodies[0].rows].sort((a, b) => isFalling ? order(b, a) : order(a, b));
      table.tBodies[0].append(...rows);
    });
  });
}
const open = () => {
  const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
  if (target && target.tagName === "DETAILS") target.open = true;
};
addEventListener("hashchange", open);
open();
"""

// The document's parts: elements, cells that are redrawn only when what they show has changed, and tables of them.
// Law: data reaches the document only as text (textContent, replaceChildren with strings) or as a property, never as markup.
import { ago, duration, local, now, number } from "./words.js";

export const byId = (id) => document.getElementById(id);

// ---- elements

export function element(tag, className, ...children) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.replaceChildren(...children.map((child) => (child instanceof Node ? child : String(child))));
  return made;
}

export function timeElement(iso) {
  const relative = element("span", "ago", ago(iso));
  relative.dataset.since = iso;
  return Object.assign(element("time", "", local(iso), relative), { dateTime: iso, title: iso });
}

// How long something lasts: from `from` to `to`, either of which is now where it is not given; but now is never later than `until`.
export function lasting({ from = null, to = null, until = null }) {
  const made = element("span", "lasting");
  made.between = [from, to, until].map((iso) => (iso === null ? null : Date.parse(iso)));
  retell(made);
  return made;
}

export function retell(lasting) {
  const [from, to, until] = lasting.between;
  const present = Math.min(now(), until ?? Infinity);
  const words = duration(Math.max(0, ((to ?? present) - (from ?? present)) / 1000));
  if (lasting.textContent !== words) lasting.textContent = words;
}

// ---- cells: what a cell shows as plain data (compared to decide on a redraw), and how to make it

export const cell = (className, shows, make) => ({ className, key: JSON.stringify([className, shows]), make });
export const text = (value, className = "word") => cell(className, value ?? "", () => [String(value ?? "–")]);
export const mono = (value, className = "word mono") => text(value, className);
export const num = (value, heat = "") => cell(`n ${value ? heat : "zero"}`, value, () => [number(value)]);
export const plain = (value, className = "n") => cell(className, value, () => [value]);
export const time = (iso, className = "fit") => cell(className, iso, () => [iso ? timeElement(iso) : "–"]);
export const badge = (word, level, className = "fit") => cell(className, [word, level], () => [element("span", `badge ${level}`, word)]);
export const long = (value) => cell("", value, () => [value ? withTitle(element("div", "clamp", value), value) : ""]);

export const withTitle = (node, title) => Object.assign(node, { title });

export function opener(label, open, look = "", of = "") {
  const button = Object.assign(element("button", look, label), { type: "button" });
  if (of) button.setAttribute("aria-label", `${label}: show ${of}`);
  button.addEventListener("click", open);
  return button;
}

export const opens = (label, open, className = "n", look = "", of = "") => cell(className, [label, of], () => [opener(label, open, look, of)]);

export function draw(row, cells, labels) {
  cells.forEach((shown, index) => {
    let td = row.cells[index];
    if (!td) {
      td = document.createElement(index === labels ? "th" : "td");
      if (index === labels) td.scope = "row";
      row.append(td);
    }
    if (td.shownKey === shown.key) return;
    td.shownKey = shown.key;
    td.className = shown.className;
    td.replaceChildren(...shown.make());
  });
}

export function greet(row) {
  row.classList.add("new");
  row.addEventListener("animationend", () => row.classList.remove("new"), { once: true });
}

// Puts `items` into `parent` in their order, keeping the child that already stands for an item's key.
export function arrange(parent, items, keyOf, make, update) {
  const kept = new Map([...parent.children].map((child) => [child.itemKey, child]));
  const first = kept.size === 0;
  items.forEach((item, index) => {
    const key = String(keyOf(item));
    let child = kept.get(key);
    if (!child) {
      child = make();
      child.itemKey = key;
      if (!first) greet(child);
    }
    kept.delete(key);
    update(child, item);
    if (parent.children[index] !== child) parent.insertBefore(child, parent.children[index] ?? null);
  });
  for (const child of kept.values()) child.remove();
}

export function table(section, items, keyOf, cellsOf, { labels = 0, total = items.length } = {}) {
  const home = byId(section);
  const opt = [...home.querySelectorAll("thead th")].map((th) => (th.classList.contains("opt") ? " opt" : ""));
  home.querySelector(".empty").hidden = items.length > 0;
  home.querySelector(".scroll").hidden = items.length === 0;
  home.querySelector(".count").textContent = total > items.length ? `${number(items.length)} of ${number(total)}` : items.length ? number(items.length) : "";
  arrange(home.querySelector("tbody"), items, keyOf, () => document.createElement("tr"), (row, item) =>
    draw(row, cellsOf(item).map((shown, i) => (opt[i] ? { ...shown, className: shown.className + opt[i] } : shown)), labels));
}

// The document's parts: elements, cells that are redrawn only when what they show has changed, and tables of them.
// Law: data reaches the document only as text (textContent, replaceChildren with strings) or as a property, never as markup.
import { ago, duration, local, now, number } from "./words.js";

export const byId = (id) => document.getElementById(id);

// ---- elements

export function element(tag, className, ...children) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  node.replaceChildren(...children.map((child) => (child instanceof Node ? child : String(child))));
  return node;
}

export function timeElement(iso) {
  const relative = element("span", "ago", ago(iso));
  relative.dataset.since = iso;
  return Object.assign(element("time", "", local(iso), relative), { dateTime: iso, title: iso });
}

// How long something lasts: from `from` to `to`, either of which is now where it is not given; but now is never later than `until`.
export function lasting({ from = null, to = null, until = null }) {
  const node = element("span", "lasting");
  node.between = [from, to, until].map((iso) => (iso === null ? null : Date.parse(iso)));
  retell(node);
  return node;
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
  cells.forEach((content, index) => {
    let td = row.cells[index];
    if (!td) {
      td = document.createElement(index === labels ? "th" : "td");
      if (index === labels) td.scope = "row";
      row.append(td);
    }
    if (td.renderedKey === content.key) return;
    td.renderedKey = content.key;
    td.className = content.className;
    td.replaceChildren(...content.make());
  });
}

export function greet(row) {
  row.classList.add("new");
  row.addEventListener("animationend", () => row.classList.remove("new"), { once: true });
}

// Puts `items` into `parent` in their order, keeping the child that already stands for an item's key.
export function arrange(parent, items, keyOf, make, update) {
  const children = new Map([...parent.children].map((child) => [child.itemKey, child]));
  const first = children.size === 0;
  items.forEach((item, index) => {
    const key = String(keyOf(item));
    let child = children.get(key);
    if (!child) {
      child = make();
      child.itemKey = key;
      if (!first) greet(child);
    }
    children.delete(key);
    update(child, item);
    if (parent.children[index] !== child) parent.insertBefore(child, parent.children[index] ?? null);
  });
  for (const child of children.values()) child.remove();
}

export function table(section, items, keyOf, cellsOf, { labels = 0, total = items.length } = {}) {
  const home = byId(section);
  const opt = [...home.querySelectorAll("thead th")].map((th) => (th.classList.contains("opt") ? " opt" : ""));
  home.querySelector(".empty").hidden = items.length > 0;
  home.querySelector(".scroll").hidden = items.length === 0;
  home.querySelector(".count").textContent = total > items.length ? `${number(items.length)} of ${number(total)}` : items.length ? number(items.length) : "";
  arrange(home.querySelector("tbody"), items, keyOf, () => document.createElement("tr"), (row, item) =>
    draw(row, cellsOf(item).map((content, i) => (opt[i] ? { ...content, className: content.className + opt[i] } : content)), labels));
}

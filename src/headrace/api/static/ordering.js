// The ordering: who waits for whom in each scope, how long events were held, and the batch that each pipeline is at.
// Law: data reaches the document only as text, never as markup.
import { openEvent } from "./detail.js";
import { arrange, byId, cell, draw, element, lasting, num, opener, plain, text, time, table } from "./parts.js";
import { WHY, now, number, duration, plural } from "./words.js";

const BOUNDS = [0.1, 1, 5, 15, 60, 300, 900]; // as HOLD_BUCKETS of the api
const LABELS = ["≤ 100 ms", "≤ 1 s", "≤ 5 s", "≤ 15 s", "≤ 1 min", "≤ 5 min", "≤ 15 min", "longer"];


// ---- the batch that a scope is at

const stopped = (scope) => !scope.running_since;
const rate = (events, seconds) => (events && seconds ? events / seconds : null);
export const perSecond = (value) => (value === null ? "–" : number(value < 10 ? Number(value.toFixed(1)) : Math.round(value)));
export const rateOf = (run) => rate(run.events, run.finished ? (Date.parse(run.finished) - Date.parse(run.started)) / 1000 : 0);

function batch(scope) {
  const { running_batch: runningBatch } = scope;
  if (scope.kind !== "pipeline") return text("–", "n zero");
  return cell("n", [scope.batch, runningBatch], () =>
    runningBatch ? [element("span", "badge good", "running"), ` ${number(runningBatch.batch)}`, element("div", "since", lasting({ from: runningBatch.since }))] : [number(scope.batch)]);
}

function batchLine() {
  return element("li", "", element("span", "badge"), element("strong", ""), element("span", ""));
}

function drawBatch(line, scope) {
  const [state, name, words] = line.children;
  const { running_batch: runningBatch } = scope;
  const is = runningBatch ? "running" : stopped(scope) ? "stopped" : "idle";
  const last = rate(scope.read, scope.seconds);
  state.textContent = is;
  state.className = `badge ${{ running: "good", stopped: "warn" }[is] ?? ""}`;
  name.textContent = scope.scope;
  const key = JSON.stringify([runningBatch, scope.batch, last, scope.lag, scope.open_runs]);
  if (words.renderedKey === key) return;
  words.renderedKey = key;
  const head = runningBatch ? [`batch ${number(runningBatch.batch)} with ${plural(runningBatch.events, "event")} for `, lasting({ from: runningBatch.since })] : [`batch ${number(scope.batch)} is the last`];
  const speed = last === null ? "" : `, ${perSecond(last)} events/s of late`;
  const open = scope.open_runs ? ` · ${plural(scope.open_runs, "open run")}` : "";
  words.replaceChildren(...head, speed, open, scope.lag ? ` · ${plural(scope.lag, "event")} behind` : " · nothing behind");
}

// ---- cards: what waits and how long events were held

function histogram() {
  const bars = element("tbody", "");
  return element("figure", "holds", element("figcaption", "", element("h4", "", "How long events were held"), element("span", "muted")), element("table", "", bars));
}

function bar(share) {
  const [drawn, filled] = ["svg", "rect"].map((name) => document.createElementNS("http://www.w3.org/2000/svg", name));
  const set = (node, attributes) => Object.entries(attributes).forEach(([name, value]) => node.setAttribute(name, value));
  set(drawn, { class: "bar", viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" });
  set(filled, { width: share === 0 ? 0 : Math.max(1, 100 * share), height: 10 });
  drawn.append(filled);
  return drawn;
}

function drawHistogram(figure, scope) {
  const held = scope.holds.reduce((sum, count) => sum + count, 0);
  const maxCount = Math.max(...scope.holds, 1);
  figure.hidden = held === 0;
  figure.querySelector(".muted").textContent = held ? `${plural(held, "event")} had to wait, ${duration(scope.hold_seconds / held)} on average` : "";
  const rows = [...BOUNDS, null].map((bound, index) => ({ bound, label: LABELS[index], count: scope.holds[index] ?? 0 }));
  arrange(figure.querySelector("tbody"), rows, (row) => row.bound, () => document.createElement("tr"), (tr, row) =>
    draw(tr, [plain(row.label, "fit"), cell("", row.count / maxCount, () => [bar(row.count / maxCount)]), num(row.count)], 0));
}

function scopeCard() {
  const heads = ["Who waits for whom", "For", "Lost in"].map((name) => Object.assign(element("th", "", name), { scope: "col" }));
  const waits = element("table", "", element("thead", "", element("tr", "", ...heads)), element("tbody", ""));
  const scroll = Object.assign(element("div", "lanes", waits), { tabIndex: 0 });
  scroll.setAttribute("role", "region");
  const list = element("div", "waits", element("h4", ""), scroll, element("p", "muted", ""));
  return element("article", "scope", element("div", "scope-top", element("h3", ""), element("span", "muted")), element("div", "scope-body", list, histogram()));
}

function drawWait(row, wait, scope) {
  const until = scope.clock_until;
  draw(row, [
    cell("", [wait.id, wait.follows, wait.leader], () => [opener(wait.id, () => openEvent(wait.seq), "mono"), " waits for ", element("span", "mono", wait.follows), element("span", "muted", ` (${WHY[wait.leader]})`)]),
    cell("fit", [wait.since, until], () => [lasting({ from: wait.since, until })]),
    cell("fit", [wait.lost_at, until], () => [wait.lost_at ? lasting({ to: wait.lost_at, until }) : "–"]),
  ], 0);
}

function drawScope(card, scope) {
  const [name, about] = card.querySelector(".scope-top").children;
  const waits = scope.waits;
  name.textContent = scope.scope;
  about.textContent = `${number(scope.lost)} lost, ${number(scope.late)} late, ${plural(scope.cycles, "cycle")}${scope.held ? `, ${plural(scope.held, "event")} held for a window` : ""}`;
  card.querySelector(".waits h4").textContent = scope.waiting ? `${plural(scope.waiting, "event")} ${scope.waiting === 1 ? "waits" : "wait"}` : "Nothing waits";
  const scroll = card.querySelector(".lanes");
  scroll.hidden = waits.length === 0;
  scroll.setAttribute("aria-label", `Who waits for whom in ${scope.scope}`);
  arrange(card.querySelector(".waits tbody"), waits, (wait) => wait.seq, () => document.createElement("tr"), (row, wait) => drawWait(row, wait, scope));
  const rest = scope.waiting - waits.length;
  card.querySelector(".waits p").textContent = rest > 0 ? `and ${number(rest)} more: headrace events waiting --scope ${scope.scope}` : "";
  drawHistogram(card.querySelector(".holds"), scope);
}

export function drawOrdering(scopes) {
  table("ordering", scopes, (scope) => scope.scope, (scope) => [text(scope.scope), num(scope.cursor), num(scope.lag, "busy"), num(scope.open_runs, "busy"), num(scope.held, "busy"), num(scope.waiting, "busy"), num(scope.ordered), num(scope.lost, "warm"),
    num(scope.late), num(scope.cycles, "warm"), batch(scope), plain(perSecond(rate(scope.read, scope.seconds))), time(scope.updated)]);
  const withWaits = scopes.filter((scope) => scope.waiting || scope.holds.some((count) => count));
  arrange(byId("scope-cards"), withWaits, (scope) => scope.scope, scopeCard, drawScope);
  arrange(byId("batches"), scopes.filter((scope) => scope.kind === "pipeline"), (scope) => scope.scope, batchLine, drawBatch);
}

// The status page: draws each status that /api/v1/stream sends.
// Law: data reaches the document only as text (textContent, replaceChildren with strings) or as a property, never as markup.
// A cell is redrawn only when what it shows has changed, so that selection, focus and open details survive an update.
import { ago, duration, few, local, now, number, plural, setClock } from "./words.js";

const byId = (id) => document.getElementById(id);

// ---- elements

function element(tag, className, ...children) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.replaceChildren(...children.map((child) => (child instanceof Node ? child : String(child))));
  return made;
}

function timeElement(iso) {
  const relative = element("span", "ago", ago(iso));
  relative.dataset.since = iso;
  return Object.assign(element("time", "", local(iso), relative), { dateTime: iso, title: iso });
}

// ---- cells: what a cell shows as plain data (compared to decide on a redraw), and how to make it

const cell = (className, shows, make) => ({ className, key: JSON.stringify([className, shows]), make });
const text = (value, className = "word") => cell(className, value ?? "", () => [String(value ?? "–")]);
const mono = (value, className = "word mono") => text(value, className);
const num = (value, heat = "") => cell(`n ${value ? heat : "zero"}`, value, () => [number(value)]);
const plain = (value, className = "n") => cell(className, value, () => [value]);
const time = (iso, className = "fit") => cell(className, iso, () => [iso ? timeElement(iso) : "–"]);
const badge = (word, level, className = "fit") => cell(className, [word, level], () => [element("span", `badge ${level}`, word)]);
const long = (value) => cell("", value, () => [value ? withTitle(element("div", "clamp", value), value) : ""]);

const withTitle = (node, title) => Object.assign(node, { title });

function opens(label, open, className = "n", look = "") {
  return cell(className, label, () => {
    const button = Object.assign(element("button", look, label), { type: "button" });
    button.addEventListener("click", open);
    return [button];
  });
}

function draw(row, cells, labels) {
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

function greet(row) {
  row.classList.add("new");
  row.addEventListener("animationend", () => row.classList.remove("new"), { once: true });
}

// Puts `items` into `parent` in their order, keeping the child that already stands for an item's key.
function arrange(parent, items, keyOf, make, update) {
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

function table(section, items, keyOf, cellsOf, { labels = 0, total = items.length } = {}) {
  const home = byId(section);
  const opt = [...home.querySelectorAll("thead th")].map((th) => (th.classList.contains("opt") ? " opt" : ""));
  home.querySelector(".empty").hidden = items.length > 0;
  home.querySelector(".scroll").hidden = items.length === 0;
  home.querySelector(".count").textContent = total > items.length ? `${number(items.length)} of ${number(total)}` : items.length ? number(items.length) : "";
  arrange(home.querySelector("tbody"), items, keyOf, () => document.createElement("tr"), (row, item) =>
    draw(row, cellsOf(item).map((shown, i) => (opt[i] ? { ...shown, className: shown.className + opt[i] } : shown)), labels));
}

// ---- levels: what deserves a colour, and what deserves a line in the verdict

const LATELY = 900; // seconds for which a failure that is over is still told
const LEVELS = {
  good: ["running", "succeeded", "polling"],
  warn: ["starting", "waiting", "ending", "ended", "stopped"],
  bad: ["failed", "parked", "silent", "lost"],
};
const levelOf = (state) => Object.keys(LEVELS).find((level) => LEVELS[level].includes(state)) ?? "";

function findings(status) {
  const found = [];
  const [bad, warn] = ["bad", "warn"].map((level) => (words, where) => found.push({ level, words, where }));
  const running = (kind) => status.jobs.some((job) => job.kind === kind && job.state === "running");
  if (status.triggers.length && !running("triggerer")) bad("No triggerer is running, so nothing is read: start one with headrace triggerer.", "processes");
  if (status.pipelines.length && !running("pipeline")) warn("No pipeline process is running, so events wait in the log: start one with headrace pipeline.", "processes");
  for (const job of status.jobs) if (job.state === "silent") bad(`The ${job.kind} on ${job.hostname} (job ${job.id}) stopped answering ${ago(job.last_heartbeat)}.`, "processes");
  for (const job of status.jobs) if (job.blocked) warn(blockedWords(job), "blocked");
  for (const trigger of status.triggers) if (trigger.state === "failed") bad(`Trigger ${trigger.name} failed: ${trigger.failure ?? "no reason given"}`, "triggers");
  for (const trigger of status.triggers) if (trigger.state === "parked") bad(`Trigger ${trigger.name} failed too often and is parked: ${trigger.failure ?? "no reason given"} Start it again with headrace triggers resume ${trigger.name}`, "triggers");
  for (const trigger of status.triggers) if (trigger.state === "running" && trigger.failed && between(trigger.failed, now()) < LATELY) warn(`Trigger ${trigger.name} failed ${ago(trigger.failed)} and runs again: ${trigger.failure}`, "triggers");
  for (const trigger of status.triggers) if (trigger.unserved && running("triggerer")) bad(`Nobody runs trigger ${trigger.name}: ${trigger.unserved}.`, "triggers");
  for (const stream of status.streams) {
    if (levelOf(stream.state) === "bad") bad(`Stream ${stream.stream} is ${stream.state}.`, "streams");
    const stuck = stream.lanes.filter((lane) => lane.error);
    if (stuck.length) bad(`Stream ${stream.stream} cannot advance ${stuck.length === 1 ? `lane ${stuck[0].lane}` : plural(stuck.length, "lane")}: ${firstLine(stuck[0].error)}`, "streams");
    if (stream.oldest_unresolved > 60) warn(`Stream ${stream.stream} has waited ${duration(stream.oldest_unresolved)} for ${stream.held_by ?? "an answer"}.`, "streams");
  }
  for (const kept of status.backlogs) warn(`${plural(kept.depth, "raw event")} wait in the backlog of ${kept.trigger}.`, "backlog");
  const judged = new Set();
  for (const run of status.runs) {
    if (judged.has(run.pipeline) || run.state === "running") continue;
    judged.add(run.pipeline);
    if (run.state === "failed") bad(`The last run of ${run.pipeline} failed: ${firstLine(run.error) ?? "no reason given"}`, "runs");
  }
  if (status.totals.lost) warn(`${plural(status.totals.lost, "follower")} went on without the leader: it did not come within the lookback.`, "ordering");
  if (status.totals.cycles) warn(`${plural(status.totals.cycles, "event")} in a cycle: they follow one another, so no order is right.`, "ordering");
  if (status.dead_letters) warn(`${plural(status.dead_letters, "dead letter")}: raw events that were given up on. Redrive or discard them with headrace dead-letters.`, "dead-letters");
  return found.sort((one, other) => (one.level === "bad" ? 0 : 1) - (other.level === "bad" ? 0 : 1));
}

function blockedWords(job) {
  const { trigger, seconds } = job.blocked;
  return `${trigger === null ? "Something" : `Trigger ${trigger}`} blocks the triggerer on ${job.hostname} (job ${job.id}) for ${duration(seconds)}: no other trigger runs there meanwhile.`;
}

function blockedCard() {
  const card = element("article", "banner warn", element("p", ""), element("details", "", element("summary", "", "Where it is"), element("pre", "")));
  card.append(element("p", "muted", "Use await there, or asyncio.to_thread for what cannot wait."));
  return card;
}

function drawBlocked(jobs) {
  const blocked = jobs.filter((job) => job.blocked);
  byId("blocked").hidden = blocked.length === 0;
  arrange(byId("blocked"), blocked, (job) => job.id, blockedCard, (card, job) => {
    card.querySelector("p").textContent = blockedWords(job);
    const stack = job.blocked.stack.join("\n");
    card.querySelector("details").hidden = !stack;
    if (card.querySelector("pre").textContent !== stack) card.querySelector("pre").textContent = stack;
  });
}

const firstLine = (words) => (words ? words.trim().split("\n")[0] : null);
function drawVerdict(status) {
  const found = findings(status);
  const bare = !status.jobs.length && !status.triggers.length && !status.head;
  const worst = found.some((finding) => finding.level === "bad") ? "bad" : found.length ? "warn" : bare ? "quiet" : "good";
  const wrong = found.filter((finding) => finding.level === "bad").length;
  const line = {
    bad: `${plural(wrong, "thing")} ${wrong === 1 ? "needs" : "need"} you.`,
    warn: `Running, with ${plural(found.length, "thing")} to know.`,
    good: "All is well.",
    quiet: "Nothing is running yet: start with headrace standalone.",
  }[worst];
  byId("verdict").dataset.level = worst;
  if (byId("verdict-line").textContent !== line) byId("verdict-line").textContent = line;
  arrange(byId("verdict-list"), found, (finding) => finding.where + finding.words.replace(/\d.*/, ""), () => document.createElement("li"), (li, finding) => {
    const link = element("a", "", finding.words);
    link.href = `#${finding.where}`;
    if (li.textContent.endsWith(finding.words)) return;
    li.replaceChildren(element("span", `badge ${finding.level}`, finding.level === "bad" ? "Broken" : "Note"), link);
  });
  document.title = wrong ? `(${wrong}) Headrace` : "Headrace";
}

// ---- sections

function drawHeadline(status) {
  for (const dd of document.querySelectorAll("[data-total]")) {
    const value = status.totals[dd.dataset.total];
    dd.textContent = number(value);
    dd.classList.toggle("some", dd.dataset.total === "waiting" && value > 0);
  }
  const rate = status.events.per_second;
  byId("rate").textContent = rate > 0 ? ` · ${rate < 10 ? rate.toFixed(1) : number(Math.round(rate))}/s` : "";
  byId("version").textContent = status.version;
}

function streamCard() {
  const card = element("article", "stream");
  const lanes = element("table", "", element("thead", "", element("tr", "",
    ...["Lane", "Done"].map((name) => columnHead(name, "")), ...["Read to", "Advanced to", "End", "Lag", "Outstanding"].map((name) => columnHead(name, "n")), columnHead("Advance error", ""))), element("tbody", ""));
  const details = element("details", "", element("summary", ""), element("div", "lanes", lanes));
  details.open = true;
  card.append(element("div", "stream-top", element("h3", ""), element("span", "badge"), element("span", "muted")), element("dl", "facts"), details);
  return card;
}

const columnHead = (name, className) => Object.assign(element("th", className, name), { scope: "col" });

const lagOf = (lane) => (lane.end === null ? null : Math.max(0, lane.end - (lane.advanced ?? 0)));

function progress(lane) {
  return cell("", [lane.advanced, lane.end], () => {
    if (lane.end === null) return ["–"];
    const made = Object.assign(element("progress", ""), { max: lane.end || 1, value: lane.end ? (lane.advanced ?? 0) : 1 });
    made.setAttribute("aria-label", `lane ${lane.lane} done`);
    return [made];
  });
}

function drawStream(card, stream, jobs) {
  const [name, state, holder] = card.querySelector(".stream-top").children;
  const job = jobs.get(stream.job_id);
  name.textContent = stream.stream;
  state.textContent = stream.state;
  state.className = `badge ${levelOf(stream.state)}`;
  holder.textContent = `job ${stream.job_id}${job ? ` on ${job.hostname}` : ""}`;
  const waits = stream.oldest_unresolved === null ? "none" : `${duration(stream.oldest_unresolved)}${stream.held_by ? `, held by ${stream.held_by}` : ""}`;
  const facts = [["Read", number(stream.read)], ["Advanced", number(stream.advanced)], ["Outstanding", number(stream.outstanding)], ["Not wanted", number(stream.filtered)],
    ["Rejected", number(stream.rejected), stream.rejected && "warm"], ["Failed", number(stream.failed), stream.failed && "hot"], ["Spilled", number(stream.spilled)],
    ["Advance errors", number(stream.advance_errors), stream.advance_errors && "warm"], ["Mean advance", mean(stream.advance_seconds, stream.advances)], ["Mean answer", mean(stream.ack_seconds, stream.resolved)],
    ["Oldest unresolved", waits, stream.oldest_unresolved > 60 && "warm"]];
  card.querySelector(".facts").replaceChildren(...facts.map(([label, value, heat]) => element("div", "", element("dt", "", label), element("dd", heat || "", value))));
  const behind = stream.lanes.reduce((sum, lane) => sum + (lagOf(lane) ?? 0), 0);
  const more = stream.lanes_open > stream.lanes.length ? `, the ${stream.lanes.length} furthest behind` : "";
  card.querySelector("summary").textContent = `${plural(stream.lanes_open, "lane")}${more}${behind ? `, ${number(behind)} behind the end` : ""}`;
  card.querySelector("details").hidden = stream.lanes.length === 0;
  arrange(card.querySelector("tbody"), stream.lanes, (lane) => lane.lane, () => document.createElement("tr"), (row, lane) =>
    draw(row, [mono(lane.lane), progress(lane), num(lane.read), num(lane.advanced), num(lane.end), num(lagOf(lane), "busy"), num(lane.outstanding), long(lane.error)], 0));
}

function drawStreams(status, jobs) {
  const home = byId("streams");
  home.querySelector(".empty").hidden = status.streams.length > 0;
  home.querySelector(".count").textContent = status.streams.length || "";
  arrange(byId("stream-cards"), status.streams, (stream) => stream.stream, streamCard, (card, stream) => drawStream(card, stream, jobs));
}

const mean = (seconds, times) => (times ? duration(seconds / times) : "–");
const between = (from, to) => (to - Date.parse(from)) / 1000;
const took = (run) => (run.finished ? duration(between(run.started, Date.parse(run.finished))) : `${duration(Math.floor(between(run.started, now())))} so far`);

function runError(run) {
  if (!run.error) return text("", "");
  return opens(firstLine(run.error), () => show(`Run of ${run.pipeline}`, { Run: run.run_id, Scope: run.scope, Batch: run.batch, Attempt: run.attempt, Started: moment(run.started) }, { Error: run.error }), "hot", "clamp");
}

function lastFailure(trigger) { // it stays on show when the trigger runs again, but alarms nobody then
  if (!trigger.failure) return text("", "");
  const again = trigger.state === "running";
  return cell(again ? "muted" : "", [trigger.failure, trigger.failed, again], () => {
    const since = again && trigger.since ? [", running since ", timeElement(trigger.since)] : [];
    return [element("span", "", "failed ", timeElement(trigger.failed), ...since), withTitle(element("div", "clamp", trigger.failure), trigger.failure)];
  });
}

function drawTables(status, jobs) {
  const holder = (id) => (id === null ? "nobody" : `job ${id}${jobs.has(id) ? ` on ${jobs.get(id).hostname}` : ""}`);
  table("triggers", status.triggers, (trigger) => trigger.id, (trigger) => [logOf(trigger.name, `trigger ${trigger.name}`, `triggers/${trigger.id}`), badge(trigger.state, levelOf(trigger.state)), num(trigger.fired), num(trigger.rejected, "warm"),
    mono(trigger.stream ?? "polls alone"), text(holder(trigger.job_id), "fit"), lastFailure(trigger)]);
  const known = new Map(status.triggers.map((trigger) => [trigger.id, trigger]));
  table("backlog", status.backlogs, (kept) => kept.trigger_id, (kept) => [text(kept.trigger), num(kept.depth, "busy"), time(kept.oldest),
    badge(known.get(kept.trigger_id)?.state ?? "removed", levelOf(known.get(kept.trigger_id)?.state ?? "removed")), num(known.get(kept.trigger_id)?.spilled ?? null), mono(kept.stream)]);
  table("ordering", status.scopes, (scope) => scope.scope, (scope) => [text(scope.scope), num(scope.cursor), num(scope.lag, "busy"), num(scope.waiting, "busy"), num(scope.ordered), num(scope.lost, "warm"),
    num(scope.late), num(scope.cycles, "warm"), num(scope.batch), time(scope.updated)]);
  table("pipelines", status.pipelines, (pipeline) => pipeline.name, (pipeline) => [text(pipeline.name), mono(pipeline.on.join(", ")), mono(pipeline.table), num(pipeline.runs), num(pipeline.failed, "hot"),
    num(pipeline.events), num(pipeline.rows), time(pipeline.last_run)]);
  table("runs", status.runs, (run) => run.run_id, (run) => [time(run.started), logOf(run.pipeline, `the run of ${run.pipeline} that started ${local(run.started)}`, `runs/${encodeURIComponent(run.run_id)}`), badge(run.state, run.state === "running" ? "" : levelOf(run.state)), num(run.events), num(run.rows),
    plain(took(run)), num(run.batch), num(run.attempt), runError(run)], { labels: 1, total: status.totals.runs });
  table("task-runs", status.task_runs, (run) => run.run_id, (run) => [time(run.changed), logOf(run.task, `run ${run.run_id} of ${run.task}`, `runs/${encodeURIComponent(run.run_id)}`), badge(run.state, levelOf(run.state)), mono(run.waits_for && run.waits_for.classpath.split(".").pop()),
    time(run.timeout), mono(run.run_id), num(run.attempt), long(firstLine(run.error))]);
  table("events", status.recent, (event) => event.seq, (event) => [opens(number(event.seq), () => openEvent(event.seq)), time(event.received), mono(event.type), mono(event.subject), mono(event.id),
    follows(event), text(few(event.triggers))], { total: status.events.total });
  table("processes", status.jobs, (job) => job.id, (job) => [num(job.id), text(job.kind, "fit"), badge(job.blocked ? "blocked" : job.state, job.blocked ? "warn" : levelOf(job.state)), text(job.hostname), plain(String(job.pid)), time(job.started), time(job.last_heartbeat)]);
}

function follows(event) {
  return cell("word mono", [event.follows, event.leader_seq], () => {
    if (event.follows === null) return ["–"];
    const known = event.leader_seq >= 0 ? ` ↳ ${number(event.leader_seq)}` : " (not here before it)";
    return [event.follows, element("span", "muted", known)];
  });
}

let lettersShown = null; // how many dead letters there were in each state when the list was last fetched

async function drawDeadLetters(counts) {
  const seen = JSON.stringify(counts);
  if (lettersShown === seen) return;
  lettersShown = seen;
  const total = Object.values(counts).reduce((sum, n) => sum + n, 0);
  try {
    const answer = await fetch("/api/v1/dead-letters?limit=20");
    if (!answer.ok) throw new Error(`the api answered ${answer.status}`);
    const { dead_letters: letters } = await answer.json();
    table("dead-letters", letters, (letter) => letter.id, (letter) => [opens(letter.reason, () => openLetter(letter.id), "", "clamp"), badge(letter.state, letter.state === "open" ? "warn" : ""), plain(letter.kind.replace("_", " "), "fit"), num(letter.attempts), time(letter.received),
      mono([letter.stream, letter.lane, letter.position].filter((part) => part !== null).join(" / ")), text(few(letter.triggers))], { total });
  } catch {
    lettersShown = null; // asked again with the next status
  }
}

// ---- one event or dead letter in full

function indent(json) { // works on the text alone, so that no number is rounded and no name reordered
  let depth = 0;
  const line = () => `\n${"  ".repeat(depth)}`;
  return json.replace(/"(?:\\.|[^"\\])*"|[[{]\s*[\]}]|[[\]{},:]|\s+/g, (token) => {
    if (/^\s/.test(token)) return "";
    if (token === "{" || token === "[") return token + (depth++, line());
    if (token === "}" || token === "]") return (depth = Math.max(0, depth - 1), line()) + token;
    return token === "," ? token + line() : token === ":" ? ": " : token;
  });
}

const moment = (iso) => element("span", "", timeElement(iso), element("span", "muted", ` · ${iso}`));
function show(title, facts, texts) {
  byId("detail-h").textContent = title;
  const known = Object.entries(facts).filter(([, value]) => value !== null && value !== "");
  byId("detail-facts").replaceChildren(...known.flatMap(([label, value]) => [element("dt", "", label), element("dd", "", value)]));
  byId("detail").scrollTop = 0;
  byId("detail-texts").replaceChildren(...Object.entries(texts).filter(([, words]) => words).flatMap(([label, words]) => [element("h3", "", label), element("pre", "", words)]));
  if (!byId("detail").open) byId("detail").showModal();
}

async function openFrom(path, title, parts) {
  try {
    const answer = await fetch(path);
    if (!answer.ok) throw new Error(`the api answered ${answer.status}`);
    show(title, ...parts(await answer.json()));
  } catch (error) {
    show(title, { "Cannot be shown now": error.message }, {});
  }
}

const openEvent = (seq) => openFrom(`/api/v1/events/${seq}`, `Event ${number(seq)}`, (event) => [
  { Type: event.type, Id: event.id, Source: event.source, Subject: event.subject, Follows: event.follows, "Leader's seq": event.leader_seq < 0 ? null : number(event.leader_seq), Occurred: moment(event.occurred), Received: moment(event.received),
    Stream: event.stream, Lane: event.lane, Position: event.position, "Fired by": event.triggers.join(", "), Trace: event.trace }, { Payload: indent(event.payload) }]);

const openLetter = (id) => openFrom(`/api/v1/dead-letters/${encodeURIComponent(id)}`, `Dead letter ${id}`, (letter) => [
  { State: letter.state, Kind: letter.kind.replace("_", " "), Reason: letter.reason, Received: moment(letter.received), Stream: letter.stream, Lane: letter.lane, Position: letter.position, Triggers: letter.triggers.join(", "), Attempts: letter.attempts },
  { "What came": letter.raw, Traceback: letter.traceback.join("\n") }]);

// ---- a log, as it grows

const LOG_LINES = 2_000; // how many lines a log shows at most: the last ones
let following = null; // what ends the log that is shown now

function logOf(label, of, path) {
  return cell("word", [label, path], () => {
    const button = Object.assign(element("button", "", label), { type: "button", title: `Log of ${of}` });
    button.setAttribute("aria-label", `${label}: show the log`);
    button.addEventListener("click", () => openLog(`Log of ${of}`, path));
    return [button];
  });
}

async function openLog(title, path) {
  following?.abort();
  const mine = following = new AbortController();
  const state = element("span", "", "connecting");
  const lines = Object.assign(element("div", "log"), { tabIndex: 0 });
  lines.setAttribute("role", "log");
  lines.setAttribute("aria-label", title);
  show(title, { State: state }, {});
  byId("detail-texts").replaceChildren(lines);
  try {
    const answer = await fetch(`/api/v1/logs/${path}?follow=1&last=500`, { signal: mine.signal });
    if (!answer.ok) {
      const problem = await answer.json().catch(() => ({}));
      throw new Error([problem.detail ?? `the api answered ${answer.status}`, problem.hint].filter(Boolean).join(" "));
    }
    const job = answer.headers.get("Headrace-Log-Job");
    state.textContent = job ? `live, from job ${job} on` : "live; nothing is logged before the first line";
    await readLines(answer.body, (more) => addLines(lines, more));
    state.textContent = "ended";
  } catch (error) {
    if (!mine.signal.aborted) state.textContent = error.message;
  }
}

async function readLines(body, take) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    const whole = (rest + part.value).split("\n");
    rest = whole.pop();
    take(whole);
  }
}

function addLines(lines, more) {
  const atEnd = lines.scrollHeight - lines.scrollTop - lines.clientHeight < 40;
  lines.append(...more.slice(-LOG_LINES).map(logLine));
  while (lines.childElementCount > LOG_LINES) lines.firstElementChild.remove();
  if (atEnd) lines.scrollTop = lines.scrollHeight;
}

function logLine(line) {
  let fields;
  try {
    fields = JSON.parse(line);
  } catch {
    return element("div", "line", line);
  }
  const { timestamp, level, event, logger, exception, stack, trigger, trigger_id: id, run_id: run, ...rest } = fields;
  const heat = { warning: "warm", error: "hot", critical: "hot" }[level] ?? "muted";
  const known = Object.entries(rest).map(([name, value]) => `${name}=${typeof value === "string" ? value : JSON.stringify(value)}`).join(" ");
  const parts = [element("span", "muted", local(timestamp ?? "")), " ", element("span", heat, level ?? ""), " ", element("strong", "", event), " ", element("span", "muted", known)];
  return withTitle(element("div", "line", ...parts, ...[exception, stack].filter(Boolean).map((words) => element("div", heat, words))), [timestamp, logger, trigger && `trigger ${id}`, run].filter(Boolean).join(" · "));
}

byId("detail").addEventListener("close", () => following?.abort());

// ---- the connection

const SILENCE = 15_000; // milliseconds: the api beats every 5 s, so this much silence is a lost connection
let source = null;
let heard = 0;
let retry = null;
let tries = 0;

function linkState(state, words) {
  const pill = document.querySelector(".link");
  if (pill.dataset.state === state) return;
  pill.dataset.state = state;
  byId("link").textContent = words;
  document.body.classList.toggle("stale", state === "lost");
  byId("lost").hidden = state !== "lost";
  if (state === "lost") byId("lost-since").replaceChildren(heard ? timeElement(new Date(now() - Date.now() + heard).toISOString()) : "before this page was opened");
}

function alive(moment) {
  heard = Date.now();
  tries = 0;
  setClock(moment);
  linkState("live", "Live");
}

function lost() {
  source.close();
  clearTimeout(retry);
  linkState("lost", "Connection lost, retrying");
  tries += 1;
  retry = setTimeout(connect, Math.min(10_000, 500 * 2 ** Math.min(tries, 5)) * (0.75 + Math.random() / 2));
}

function connect() {
  source = new EventSource("/api/v1/stream");
  source.addEventListener("status", (message) => drawStatus(JSON.parse(message.data)));
  source.addEventListener("beat", (message) => alive(JSON.parse(message.data).now));
  source.addEventListener("error", lost);
  const opened = source;
  setTimeout(() => opened === source && opened.readyState === EventSource.CONNECTING && lost(), SILENCE);
}

function drawStatus(status) {
  alive(status.now);
  const jobs = new Map(status.jobs.map((job) => [job.id, job]));
  drawVerdict(status);
  drawBlocked(status.jobs);
  drawHeadline(status);
  drawStreams(status, jobs);
  drawTables(status, jobs);
  drawDeadLetters(status.letters);
  document.body.classList.remove("loading");
}

setInterval(() => {
  for (const node of document.querySelectorAll("[data-since]")) {
    const words = ago(node.dataset.since);
    if (node.textContent !== words) node.textContent = words;
  }
  if (document.querySelector(".link").dataset.state === "live" && Date.now() - heard > SILENCE) lost();
}, 1000);

byId("detail").addEventListener("click", (press) => press.target === byId("detail") && byId("detail").close());
connect();

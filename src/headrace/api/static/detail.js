// The dialog: one event, trigger, dead letter or run in full, or a log as it grows. An event leads to the runs that took it, and a run to its events.
// Law: data reaches the document only as text, never as markup.
import { byId, element, timeElement, cell, withTitle, opener } from "./parts.js";
import { WHY, duration, number, local } from "./words.js";

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

export const moment = (iso) => element("span", "", timeElement(iso), element("span", "muted", ` · ${iso}`));

function show(title, facts, texts, ...more) {
  byId("detail-h").textContent = title;
  const known = Object.entries(facts).filter(([, value]) => value !== null && value !== "");
  byId("detail-facts").replaceChildren(...known.flatMap(([label, value]) => [element("dt", "", label), element("dd", "", value)]));
  byId("detail").scrollTop = 0;
  byId("detail-texts").replaceChildren(...Object.entries(texts).filter(([, words]) => words).flatMap(([label, words]) => [element("h3", "", label), element("pre", "", words)]), ...more);
  if (!byId("detail").open) byId("detail").showModal();
  else if (!byId("detail").contains(document.activeElement)) byId("detail").querySelector("button").focus(); // the element with the focus was removed
}

async function fetchJson(path) {
  const answer = await fetch(path);
  if (!answer.ok) throw new Error(`the api answered ${answer.status}`);
  return answer.json();
}

async function openFrom(path, title, parts) {
  try {
    show(title, ...parts(await fetchJson(path)));
  } catch (error) {
    show(title, { "Cannot be shown now": error.message }, {});
  }
}

const heading = (words) => element("h3", "", words);
const row = (...cells) => element("tr", "", ...cells.map((content) => element("td", "", ...content)));
const list = (columns, rows) => element("div", "lanes", element("table", "", element("thead", "", element("tr", "", ...columns.map((name) => Object.assign(element("th", "", name), { scope: "col" })))), element("tbody", "", ...rows)));

const labelled = (fields) => Object.fromEntries(Object.entries(fields).map(([name, value]) => [name[0].toUpperCase() + name.slice(1).replaceAll("_", " "), value]));

const MARKS = { lost: "as lost: its leader did not arrive within the lookback", late: "as late: it arrived after a follower of it was released as lost", cycle: "as part of a cycle: it follows itself through others" };
const STATES = { in_progress: ", to be handled", dead: ", given up" };

function inScope({ state, at, position, mark, wait }) {
  if (wait) return `waits for ${wait.follows} (${WHY[wait.leader]}) for ${duration((Date.parse(at) - Date.parse(wait.since)) / 1000)}, since ${local(wait.since)}${wait.lost_at ? `; counts as lost at ${local(wait.lost_at)}` : ""}`;
  if (state === "waiting") return "waits for its leader; not among the 100 longest waits, which the scope reports";
  return state === "unread" ? "not read yet" : `released at position ${number(position)}${mark ? ` ${MARKS[mark]}` : ""}${STATES[state] ?? ""}`;
}

const leaderOf = (leader) => (leader.state === "missing" ? "not in the log" : leader.state === "pruned" ? `event ${number(leader.seq)}, which is pruned` : opener(`event ${number(leader.seq)}`, () => openEvent(leader.seq), "", "this event"));

export const openEvent = (seq) => openFrom(`/api/v1/events/${seq}`, `Event ${number(seq)}`, ({ type, id, source, leader_seq: _, leader, occurred, received, triggers, payload, runs, scopes, ...others }) => [
  { ...labelled({ type, id, source, ...others, seq: null }), Leader: leader && leaderOf(leader), ...Object.fromEntries(scopes.map((scope) => [`Scope ${scope.scope}`, inScope(scope)])), Occurred: moment(occurred), Received: moment(received), "Fired by": triggers.join(", ") },
  { Payload: indent(payload) }, heading(runs.length ? "Runs that took it" : "No run took it yet"),
  ...(runs.length ? [list(["Pipeline", "State", "Started", "Batch", "Attempt"], runs.map((run) =>
    row([opener(run.pipeline, () => openRun(run.run_id), "", "this run")], [run.state], [timeElement(run.started)], [number(run.batch)], [run.attempt])))] : [])]);

// ---- a trigger, with the pattern of a watch

const samplesOf = ({ samples, matched, leaves, updated }) => [heading("How often each field of the pattern failed"),
  list(["Field", "Failed", "Sampled"], leaves.map(({ path, failed }) => row([element("code", "", path)], [`${Math.round((100 * failed) / Math.max(1, samples))} %`], [number(samples)]))),
  element("p", "muted", `${number(matched)} of ${number(samples)} sampled raw events match. The newest: `, timeElement(updated))];

export const openTrigger = (id) => openFrom(`/api/v1/triggers/${id}`, "Trigger", (trigger) => [
  { Trigger: trigger.name, Project: trigger.project, State: trigger.state, Stream: trigger.stream ?? "polls alone", Class: trigger.classpath, Queue: trigger.queue, Fired: number(trigger.fired), Rejected: number(trigger.rejected), Conflicts: number(trigger.conflicts),
    Backlog: number(trigger.backlog), Failures: number(trigger.failures), "Last failed": trigger.failed && moment(trigger.failed), Failure: trigger.failure,
    Pattern: trigger.pattern_hidden ? `not shown: ${trigger.pattern_hidden}` : trigger.is_watch && !trigger.pattern ? "none: it fires on all raw events" : null },
  { "Event pattern": trigger.pattern && indent(trigger.pattern), Traceback: trigger.traceback.join("\n"), "It blocks its process here": trigger.stack.join("\n") },
  ...(trigger.sampled ? samplesOf(trigger.sampled) : []),
  element("p", "", opener("Show its log", () => openLog(`Log of trigger ${trigger.name}`, `triggers/${id}`)))]);

// ---- a run, with its events page by page

export const openRun = (id) => openFrom(`/api/v1/runs/${encodeURIComponent(id)}`, "Run", (run) => {
  const events = element("div", "", heading(run.events ? `Its ${number(run.events)} events, the newest first` : "It took no events"));
  if (run.events) moreEvents(events, id, null);
  const log = element("p", "", opener("Show its log", () => openLog(`Log of the run ${id}`, `runs/${encodeURIComponent(id)}`)));
  return [{ Pipeline: run.pipeline, State: run.state, Scope: run.scope, Batch: number(run.batch), Attempt: run.attempt, Started: moment(run.started), Took: run.finished && duration((Date.parse(run.finished) - Date.parse(run.started)) / 1000),
    "Rows written": run.rows === null ? null : number(run.rows), Run: run.run_id }, { Error: run.error }, log, events];
});

const eventRow = (event) => row([opener(number(event.seq), () => openEvent(event.seq), "", "this event")], [event.type], [event.subject ?? "–"], [event.id], [event.follows ?? "–"]);

async function moreEvents(home, id, before) {
  try {
    const page = await fetchJson(`/api/v1/runs/${encodeURIComponent(id)}/events?limit=50${before ? `&before=${before}` : ""}`);
    const rows = page.events.map(eventRow);
    if (before) home.querySelector("tbody").append(...rows);
    else home.append(list(["Seq", "Type", "Subject", "Id", "Follows"], rows));
    if (page.before) {
      const more = opener("Show older ones", () => { more.remove(); moreEvents(home, id, page.before); });
      home.append(more);
    }
  } catch (error) {
    home.append(element("p", "hot", `Cannot be shown now: ${error.message}`));
  }
}

const MAX_RAW_CHARS = 64 * 1024; // `headrace dead-letters show` prints all

const metadataFacts = ({ key, headers }) => ({
  ...(key === undefined ? {} : { Key: key }),
  ...(headers === undefined ? {} : { Headers: Object.entries(headers).map(([name, value]) => `${name}: ${value}`).join(", ") }) });

export const openDeadLetter = (id) => openFrom(`/api/v1/dead-letters/${encodeURIComponent(id)}`, `Dead letter ${id}`, (deadLetter) => [
  { "Short id": deadLetter.short, State: deadLetter.state, Kind: deadLetter.kind.replace("_", " "), Reason: deadLetter.reason, Received: moment(deadLetter.received), Stream: deadLetter.stream, Lane: deadLetter.lane, Position: deadLetter.position, Triggers: deadLetter.triggers.join(", "), Attempts: deadLetter.attempts, ...metadataFacts(deadLetter.metadata) },
  { "What came": deadLetter.raw.length > MAX_RAW_CHARS ? `${deadLetter.raw.slice(0, MAX_RAW_CHARS)} […]` : deadLetter.raw, Traceback: deadLetter.traceback.join("\n") }]);

// ---- a log, as it grows

const LOG_LINES = 2_000; // how many lines a log shows at most: the last ones
let following = null; // what ends the log that is shown now

export function logOf(label, of, path) {
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
  const none = element("p", "empty", "Nothing is logged here yet.");
  lines.append(none);
  byId("detail-texts").replaceChildren(lines);
  try {
    const answer = await fetch(`/api/v1/logs/${path}?follow=1&last=500`, { signal: mine.signal });
    if (!answer.ok) {
      const problem = await answer.json().catch(() => ({}));
      throw new Error([problem.detail ?? `the api answered ${answer.status}`, problem.hint].filter(Boolean).join(" "));
    }
    const job = answer.headers.get("Headrace-Log-Job");
    state.textContent = job ? `live, from job ${job} on` : "live; nothing is logged before the first line";
    await readLines(answer.body, (more) => {
      if (more.length) none.remove();
      addLines(lines, more);
    });
    state.textContent = "ended";
    none.textContent = "Nothing was logged here.";
  } catch (error) {
    if (!mine.signal.aborted) {
      state.textContent = error.message;
      none.textContent = "The log cannot be shown.";
    }
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
byId("detail").addEventListener("click", (press) => press.target === byId("detail") && byId("detail").close());

// The dialog: one event, dead letter or failed run in full, or a log as it grows.
// Law: data reaches the document only as text, never as markup.
import { byId, element, timeElement, cell, text, withTitle } from "./parts.js";
import { now, number, local } from "./words.js";

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
export function show(title, facts, texts) {
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

export const openEvent = (seq) => openFrom(`/api/v1/events/${seq}`, `Event ${number(seq)}`, (event) => [
  { Type: event.type, Id: event.id, Source: event.source, Subject: event.subject, Follows: event.follows, "Leader's seq": event.leader_seq < 0 ? null : number(event.leader_seq), Occurred: moment(event.occurred), Received: moment(event.received),
    Stream: event.stream, Lane: event.lane, Position: event.position, "Fired by": event.triggers.join(", "), Trace: event.trace }, { Payload: indent(event.payload) }]);

export const openLetter = (id) => openFrom(`/api/v1/dead-letters/${encodeURIComponent(id)}`, `Dead letter ${id}`, (letter) => [
  { State: letter.state, Kind: letter.kind.replace("_", " "), Reason: letter.reason, Received: moment(letter.received), Stream: letter.stream, Lane: letter.lane, Position: letter.position, Triggers: letter.triggers.join(", "), Attempts: letter.attempts },
  { "What came": letter.raw, Traceback: letter.traceback.join("\n") }]);

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
byId("detail").addEventListener("click", (press) => press.target === byId("detail") && byId("detail").close());

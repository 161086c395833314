// The status page: draws each status that /api/v1/stream sends.
// Law: data reaches the document only as text (textContent, replaceChildren with strings) or as a property, never as markup.
// A cell is redrawn only when what it shows has changed, so that selection, focus and open details survive an update.
import { openEvent, openDeadLetter, openRun, openTrigger, logOf } from "./detail.js";
import { drawOrdering, perSecond, rateOf } from "./ordering.js";
import { byId, element, timeElement, cell, text, mono, num, plain, time, badge, long, withTitle, opens, draw, arrange, table, lasting, retell } from "./parts.js";
import { now, setClock, number, duration, ago, local, summarizeNames, plural } from "./words.js";

// ---- levels: what deserves a colour, and what deserves an alert

const LEVELS = {
  good: ["running", "succeeded", "polling"],
  warn: ["starting", "waiting", "ending", "ended", "stopped", "interrupted"],
  bad: ["failed", "parked", "silent", "lost"],
};
const levelOf = (state) => Object.keys(LEVELS).find((level) => LEVELS[level].includes(state)) ?? "";

function blockedWords(job) {
  const { trigger, seconds } = job.blocked;
  return `${trigger === null ? "Something" : `Trigger ${trigger}`} blocks its process on ${job.hostname} (job ${job.id}) for ${duration(seconds)}: it does nothing else meanwhile.`;
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
function drawAlerts(status) {
  const alerts = status.alerts;
  const bare = !status.jobs.length && !status.triggers.length && !status.head;
  const worst = alerts.some((alert) => alert.severity === "error") ? "bad" : alerts.length ? "warn" : bare ? "quiet" : "good";
  const wrong = alerts.filter((alert) => alert.severity === "error").length;
  const line = {
    bad: `${plural(wrong, "thing")} ${wrong === 1 ? "needs" : "need"} you.`,
    warn: `Running, with ${plural(alerts.length, "thing")} to know.`,
    good: "All is well.",
    quiet: "Nothing is running yet: start with headrace standalone.",
  }[worst];
  byId("alerts").dataset.level = worst;
  if (byId("alerts-summary").textContent !== line) byId("alerts-summary").textContent = line;
  const positions = new Map(); // a line keeps its element by its position among the alerts of its section: words change, and two may be alike
  const keyOf = ({ about }) => `${about} ${positions.set(about, (positions.get(about) ?? 0) + 1).get(about)}`;
  arrange(byId("alerts-list"), alerts, keyOf, () => document.createElement("li"), (li, alert) => {
    const key = JSON.stringify([alert.severity, alert.summary, alert.section, alert.since]);
    if (li.renderedKey === key) return;
    li.renderedKey = key;
    const link = element("a", "", alert.summary);
    link.href = `#${alert.section}`;
    const bad = alert.severity === "error";
    const since = alert.since ? [element("span", "muted", " since ", timeElement(alert.since))] : [];
    li.replaceChildren(element("span", `badge ${bad ? "bad" : "warn"}`, bad ? "Broken" : "Note"), element("span", "", link, ...since));
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
    const bar = Object.assign(element("progress", ""), { max: lane.end || 1, value: lane.end ? (lane.advanced ?? 0) : 1 });
    bar.setAttribute("aria-label", `lane ${lane.lane} done`);
    return [bar];
  });
}

// All counters of the registry: numbers as they are, sums of seconds as means if MEANS names what they are of.
const MEANS = { ack_seconds: ["Mean answer", "resolved"], advance_seconds: ["Mean advance", "advances"] };
const HEAT = { rejected: "warm", failed: "hot", advance_errors: "warm" };
const title = (name) => name[0].toUpperCase() + name.slice(1).replaceAll("_", " ");

const counterFacts = (counters) => Object.entries(counters).map(([name, value]) =>
  (name in MEANS ? [MEANS[name][0], mean(value, counters[MEANS[name][1]])]
    : name.endsWith("_seconds") ? [title(name.slice(0, -"_seconds".length)), duration(value)]
      : [title(name), number(value), value && HEAT[name]]));

function drawStream(card, stream, jobs) {
  const [name, state, holder] = card.querySelector(".stream-top").children;
  const job = jobs.get(stream.job_id);
  name.textContent = stream.stream;
  state.textContent = stream.state;
  state.className = `badge ${levelOf(stream.state)}`;
  holder.textContent = `job ${stream.job_id}${job ? ` on ${job.hostname}` : ""}`;
  const waits = stream.oldest_unresolved === null ? "none" : `${duration(stream.oldest_unresolved)}${stream.held_by ? `, held by ${stream.held_by}` : ""}`;
  const facts = [...counterFacts(stream.counters), ["Outstanding", number(stream.outstanding)],
    ["Oldest unresolved", waits, stream.oldest_unresolved > 60 && "warm"],
    ...(stream.lanes_retrying ? [["Retrying", `${plural(stream.lanes_retrying, "lane")}, the next in ${duration(stream.retrying[0].seconds)}`, "warm"]] : [])];
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
const took = (run) => cell("n", [run.started, run.finished], () => [lasting({ from: run.started, to: run.finished }), ...(run.finished ? [] : [" so far"])]);
const eventsOf = (run) => opens(number(run.events), () => openRun(run.run_id), "n", "", `the ${plural(run.events, "event")} of this run`);
const runError = (run) => (run.error ? opens(firstLine(run.error), () => openRun(run.run_id), "hot", "clamp") : text("", ""));

function failureCell(trigger) { // the failure stays visible after a restart, in a muted colour
  if (trigger.unserved) return long(trigger.unserved);
  if (!trigger.failure) return text("", "");
  const again = trigger.state === "running";
  return cell(again ? "muted" : "", [trigger.failure, trigger.failed, again], () => {
    const since = again && trigger.since ? [", running since ", timeElement(trigger.since)] : [];
    return [element("div", "since", "failed ", timeElement(trigger.failed), ...since), withTitle(element("div", "clamp", trigger.failure), trigger.failure)];
  });
}

function drawTables(status, jobs) {
  const holder = (id) => (id === null ? "no triggerer" : `job ${id}${jobs.has(id) ? ` on ${jobs.get(id).hostname}` : ""}`);
  table("triggers", status.triggers, (trigger) => trigger.id, (trigger) => [logOf(trigger.name, `trigger ${trigger.name}`, `triggers/${trigger.id}`), badge(trigger.state, levelOf(trigger.state)), opens(number(trigger.fired), () => openTrigger(trigger.id), "n", "", `the trigger ${trigger.name}`), num(trigger.rejected, "warm"),
    mono(trigger.stream ?? "polls alone"), text(holder(trigger.job_id), "fit"), failureCell(trigger)]);
  const known = new Map(status.triggers.map((trigger) => [trigger.id, trigger]));
  table("backlog", status.backlogs, (backlog) => backlog.trigger_id, (backlog) => [text(backlog.trigger), num(backlog.depth, "busy"), time(backlog.oldest),
    badge(known.get(backlog.trigger_id)?.state ?? "removed", levelOf(known.get(backlog.trigger_id)?.state ?? "removed")), num(known.get(backlog.trigger_id)?.spilled ?? null), mono(backlog.stream)]);
  table("pipelines", status.pipelines, (pipeline) => pipeline.name, (pipeline) => [text(pipeline.on_failure === "hold" ? `${pipeline.name} (holds followers)` : pipeline.name), mono(pipeline.on.join(", ")), mono(pipeline.table), num(pipeline.runs), num(pipeline.failed, "hot"),
    num(pipeline.events), num(pipeline.rows), time(pipeline.last_run)]);
  table("runs", status.runs, (run) => run.run_id, (run) => [time(run.started), logOf(run.pipeline, `the run of ${run.pipeline} that started ${local(run.started)}`, `runs/${encodeURIComponent(run.run_id)}`), badge(run.state, run.state === "running" ? "" : levelOf(run.state)), eventsOf(run), num(run.rows),
    took(run), plain(perSecond(rateOf(run))), num(run.batch), num(run.attempt), runError(run)], { labels: 1, total: status.totals.runs });
  table("task-runs", status.task_runs, (run) => run.run_id, (run) => [time(run.changed), logOf(run.task, `run ${run.run_id} of ${run.task}`, `runs/${encodeURIComponent(run.run_id)}`), badge(run.state, levelOf(run.state)), mono(run.waits_for_event ? `event of ${run.waits_for_event.on.join(", ")}` : run.waits_for && run.waits_for.classpath.split(".").pop()),
    time(run.timeout), mono(run.run_id), num(run.attempt), long(firstLine(run.error))], { labels: 1 });
  table("events", status.recent, (event) => event.seq, (event) => [opens(number(event.seq), () => openEvent(event.seq)), time(event.received), mono(event.type), mono(event.subject), mono(event.id),
    follows(event), text(summarizeNames(event.triggers))], { total: status.events.total });
  table("processes", status.jobs, (job) => job.id, (job) => [num(job.id), text(job.kind, "fit"), badge(job.blocked ? "blocked" : job.state, job.blocked ? "warn" : levelOf(job.state)), text(job.hostname), plain(String(job.pid)), time(job.started), time(job.last_heartbeat), long(job.reason)]);
}

function follows(event) {
  return cell("word mono", [event.follows, event.leader_seq], () => {
    if (event.follows === null) return ["–"];
    const known = event.leader_seq >= 0 ? ` ↳ ${number(event.leader_seq)}` : " (not here before it)";
    return [event.follows, element("span", "muted", known)];
  });
}

let drawnCounts = null; // the dead letters in each state when the list was last fetched

async function drawDeadLetters(counts) {
  const seen = JSON.stringify(counts);
  if (drawnCounts === seen) return;
  drawnCounts = seen;
  const total = Object.values(counts).reduce((sum, n) => sum + n, 0);
  try {
    const answer = await fetch("/api/v1/dead-letters?limit=20");
    if (!answer.ok) throw new Error(`the api answered ${answer.status}`);
    const { dead_letters: deadLetters } = await answer.json();
    table("dead-letters", deadLetters, (deadLetter) => deadLetter.id, (deadLetter) => [opens(deadLetter.reason, () => openDeadLetter(deadLetter.id), "", "clamp"), badge(deadLetter.state, deadLetter.state === "open" ? "warn" : ""), plain(deadLetter.kind.replace("_", " "), "fit"), num(deadLetter.attempts), time(deadLetter.received),
      mono([deadLetter.stream, deadLetter.lane, deadLetter.position].filter((part) => part !== null).join(" / ")), text(summarizeNames(deadLetter.triggers))], { total });
  } catch {
    drawnCounts = null; // fetched again with the next status
  }
}

// ---- the connection

const BEAT_TIMEOUT_MS = 15_000; // the api sends a beat each 5 s, so a longer pause is a lost connection
let source = null;
let lastMessage = 0;
let retry = null;
let tries = 0;

function linkState(state, words) {
  const pill = document.querySelector(".link");
  if (pill.dataset.state === state) return;
  pill.dataset.state = state;
  byId("link").textContent = words;
  document.body.classList.toggle("stale", state === "lost");
  byId("lost").hidden = state !== "lost";
  if (state === "lost") byId("lost-since").replaceChildren(lastMessage ? timeElement(new Date(now() - Date.now() + lastMessage).toISOString()) : "before this page was opened");
}

function alive(moment) {
  lastMessage = Date.now();
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
  setTimeout(() => opened === source && opened.readyState === EventSource.CONNECTING && lost(), BEAT_TIMEOUT_MS);
}

function drawStatus(status) {
  alive(status.now);
  const jobs = new Map(status.jobs.map((job) => [job.id, job]));
  drawAlerts(status);
  drawBlocked(status.jobs);
  drawHeadline(status);
  drawStreams(status, jobs);
  drawOrdering(status.scopes);
  drawTables(status, jobs);
  drawDeadLetters(status.dead_letter_counts);
  document.body.classList.remove("loading");
}

setInterval(() => {
  for (const node of document.querySelectorAll("[data-since]")) {
    const words = ago(node.dataset.since);
    if (node.textContent !== words) node.textContent = words;
  }
  document.querySelectorAll(".lasting").forEach(retell);
  if (document.querySelector(".link").dataset.state === "live" && Date.now() - lastMessage > BEAT_TIMEOUT_MS) lost();
}, 1000);

connect();

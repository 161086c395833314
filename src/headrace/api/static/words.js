// Words for numbers, times and lists, in the reader's own language and time zone; "now" is by the api's clock.

const count = new Intl.NumberFormat();
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const day = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });
const oldDay = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", year: "numeric" });

let skew = 0; // milliseconds: the api's clock minus this browser's
export const now = () => Date.now() + skew;
export const setClock = (iso) => { skew = Date.parse(iso) - Date.now(); };

export const number = (value) => (value === null || value === undefined ? "–" : count.format(value));

export function duration(seconds) {
  if (seconds < 0) return "–";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 60) return `${Math.round(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${String(Math.floor(seconds % 60)).padStart(2, "0")} s`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${String(Math.floor((seconds % 3600) / 60)).padStart(2, "0")} min`;
  if (seconds < 31557600) return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
  return `${(seconds / 31557600).toFixed(1)} years`;
}

export function ago(iso) {
  const seconds = Math.floor((now() - Date.parse(iso)) / 1000);
  if (seconds < -5) return `in ${duration(-seconds).replace(/\.\d s$/, " s")}`;
  return seconds < 2 ? "just now" : `${duration(seconds).replace(/\.\d s$/, " s")} ago`;
}

export function local(iso) {
  const moment = new Date(iso);
  const today = new Date(now());
  if (today.toDateString() === moment.toDateString()) return clock.format(moment);
  return `${(today.getFullYear() === moment.getFullYear() ? day : oldDay).format(moment)} ${clock.format(moment)}`;
}

export const WHY = { missing: "not in the log", waiting: "waits itself", in_progress: "in progress", dead: "given up on" }; // by the state of a leader

export const summarizeNames = (names) => (names.length > 3 ? `${names[0]} and ${names.length - 1} more` : names.join(", "));
export const plural = (n, one, many = `${one}s`) => `${count.format(n)} ${n === 1 ? one : many}`;

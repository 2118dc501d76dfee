// The stream of events: the newest first, at most 300 on the page, searched as one types.

import { openTimeline, undoButton } from "./dialogs.js";
import { byId, clock, make } from "./dom.js";
import { fileLink } from "./panels.js";

const MOST = 300;
/** @type {any[]} newest first */
let known = [];
let isPaused = false;

/** @param {{from_start: boolean, skipped: number, newest_first: any[]}} told */
export function take(told) {
  known = told.from_start ? told.newest_first : [...told.newest_first, ...known];
  known.length = Math.min(known.length, MOST);
  if (isPaused) return;
  if (told.from_start || told.skipped || wanted()) show();
  else add(told.newest_first);
}

/** @param {boolean} paused */
export function pause(paused) {
  isPaused = paused;
  if (!paused) show();
}

const wanted = () => /** @type {HTMLInputElement} */ (byId("filter")).value.trim().toLowerCase();

export function show() {
  const words = wanted().split(/\s+/).filter(Boolean);
  const fits = known.filter((event) => {
    const text = `${event.text} ${event.kind} ${event.group} ${event.outcome} ${event.file} ${event.who.session}`.toLowerCase();
    return words.every((word) => text.includes(word));
  });
  byId("events").replaceChildren(...fits.map((event) => row(event, "")));
  sayIfEmpty(words.length > 0);
}

/** @param {any[]} newest */
function add(newest) {
  const list = byId("events");
  list.prepend(...newest.map((event) => row(event, " new")));
  while (list.children.length > MOST) list.lastElementChild?.remove();
  sayIfEmpty(false);
}

/** @param {boolean} isSearch */
function sayIfEmpty(isSearch) {
  const empty = byId("events-empty");
  empty.hidden = byId("events").children.length > 0;
  empty.textContent = isSearch ? "None of the last events has these words." : "Nothing is on record yet. `noclobber install` guards coding agents, `noclobber run -- COMMAND` guards a command.";
}

/** @param {any} event @param {string} look */
function row(event, look) {
  const file = event.group === "lock" ? "" : event.file; // A locked folder has no timeline.
  const at = file ? event.text.indexOf(file) : -1;
  const what = at < 0 ? [event.text] : [event.text.slice(0, at), fileLink(file), event.text.slice(at + file.length)];
  return make(
    "li",
    { class: `event${look}`, "data-file": file, "data-seq": String(event.seq) },
    make("time", { datetime: event.time, title: event.time }, clock(event.time)),
    make("span", { class: `group ${event.group}` }, event.group),
    make("span", { class: "what" }, ...what),
    undoButton(event),
  );
}

/** @param {number} step */
export function choose(step) {
  const rows = /** @type {HTMLElement[]} */ ([...byId("events").children]);
  if (!rows.length) return;
  const at = rows.findIndex((each) => each.getAttribute("aria-current") === "true");
  const next = rows[Math.max(0, Math.min(rows.length - 1, at < 0 ? 0 : at + step))];
  for (const each of rows) each.removeAttribute("aria-current");
  next.setAttribute("aria-current", "true");
  next.tabIndex = -1;
  next.focus({ preventScroll: true });
  next.scrollIntoView({ block: "nearest" });
}

export function openChosen() {
  const row = byId("events").querySelector("[aria-current]");
  const file = row?.getAttribute("data-file");
  if (file) openTimeline(file);
}

// Actions behind a confirmation, and the timeline of one file.

import { button, byId, clock, make, showDiff } from "./dom.js";
import { ask, post } from "./server.js";

/**
 * @typedef {{action: string, kind?: string, name?: string, file?: string, version?: string, scope?: string, id?: string}} Asked
 */

/** @param {string} id @returns {HTMLDialogElement} */
const dialog = (id) => /** @type {HTMLDialogElement} */ (byId(id));
/** @param {string} id @returns {HTMLButtonElement} */
const pressed = (id) => /** @type {HTMLButtonElement} */ (byId(id));
/** @param {string} id @returns {HTMLSelectElement} */
const chosen = (id) => /** @type {HTMLSelectElement} */ (byId(id));

/** @type {Asked | null} */
let asked = null;
/** @type {string} */
let file = "";
let compared = 0;

/** @param {string} word */
const capital = (word) => word.charAt(0).toUpperCase() + word.slice(1);

/** What each action does, for who is about to say yes. @type {Record<string, string>} */
const EFFECTS = {
  restore: "The file gets the content below; what is there now becomes a past version.",
  drop: "What was kept is removed for good. Below is what you would lose.",
  retry: "The command is run again, on the files as they are now. Below is what it had changed.",
};

/**
 * Ask about something that needs a person.
 * @param {string} action
 * @param {any} item
 */
export function decide(action, item) {
  const text = `${capital(item.title)}. ${EFFECTS[action] ?? ""}`;
  confirm(`${capital(action)} this?`, text, { action, kind: item.kind, name: item.name });
}

/**
 * Show what an action would change, and wait for a yes.
 * @param {string} title
 * @param {string} text
 * @param {Asked} what
 */
export async function confirm(title, text, what) {
  asked = what;
  byId("confirm-title").textContent = title;
  byId("confirm-text").textContent = text;
  byId("confirm-result").textContent = "";
  byId("confirm-no").textContent = "Cancel";
  byId("confirm-yes").textContent = capital(what.action);
  pressed("confirm-yes").disabled = true;
  pressed("confirm-yes").hidden = false;
  showDiff("confirm-diff", "…");
  dialog("confirm").showModal();
  byId("confirm-no").focus();
  try {
    const query = Object.fromEntries(Object.entries(what).filter(([, value]) => value));
    const { diff } = await ask("/api/preview", query);
    if (asked !== what) return;
    showDiff("confirm-diff", diff);
    pressed("confirm-yes").disabled = false;
  } catch (error) {
    showDiff("confirm-diff", String(error instanceof Error ? error.message : error));
  }
}

async function doIt() {
  if (!asked) return;
  const what = asked;
  pressed("confirm-yes").disabled = true;
  byId("confirm-result").textContent = "at work …";
  let told;
  try {
    const done = await post("/api/action", what);
    told = `${done.done ? "Done. " : "Not done. "}${done.text}`;
  } catch (error) {
    told = `Not done. ${error instanceof Error ? error.message : error}`;
  }
  if (asked !== what) return;
  byId("confirm-result").textContent = told;
  pressed("confirm-yes").hidden = true;
  byId("confirm-no").textContent = "Close";
  byId("confirm-no").focus();
}

/** @param {string} name */
export async function openTimeline(name) {
  file = name;
  byId("timeline-title").textContent = name;
  byId("timeline-note").textContent = "looking …";
  byId("timeline-events").replaceChildren();
  byId("timeline-diff").replaceChildren();
  if (!dialog("timeline").open) dialog("timeline").showModal();
  try {
    const found = await ask("/api/timeline", { file: name });
    if (file === name) show(found);
  } catch (error) {
    byId("timeline-note").textContent = String(error instanceof Error ? error.message : error);
  }
}

/** @param {any} found */
function show(found) {
  const kept = new Set(found.kept);
  const part = found.is_whole ? "" : " Only the newest part of the ledger is shown.";
  byId("timeline-note").textContent = `${found.events.length} ${found.events.length === 1 ? "event" : "events"}.${part}`;
  const versions = versionsOf(found, kept);
  for (const id of ["from", "to"]) {
    chosen(id).replaceChildren(...versions.map(({ value, label }) => make("option", { value }, label)));
  }
  // From what an agent wrote last, of what is kept and is not there now.
  const wrote = found.events.find((/** @type {any} */ event) => isWrite(event) && event.after !== found.current && kept.has(event.after));
  if (versions.length > 1) chosen("from").value = wrote?.after ?? versions[1].value;
  byId("timeline-events").replaceChildren(
    ...found.events.map((/** @type {any} */ event) =>
      make(
        "li",
        { class: "event" },
        make("time", { datetime: event.time }, clock(event.time)),
        make("span", { class: `group ${event.group}` }, event.group),
        make("span", { class: "what" }, event.text),
        make("span", { class: "mono" }, event.after.slice(0, 8)),
      ),
    ),
  );
  if (versions.length > 1) compare();
}

/** @param {any} event */
const isWrite = (event) => event.group === "write" || event.group === "merge";

/**
 * The versions of a file, the newest first: what is there now, and each that was written or found.
 * @param {any} found
 * @param {Set<string>} kept
 */
function versionsOf(found, kept) {
  const listed = [{ value: "now", label: `now (${found.current.slice(0, 8) || "no file"})` }];
  /** @type {Map<string, any>} who wrote a version; the newest write of it */
  const writes = new Map();
  for (const event of found.events) if (isWrite(event) && !writes.has(event.after)) writes.set(event.after, event);
  const seen = new Set();
  for (const event of found.events) {
    for (const version of isWrite(event) ? [event.after, event.before] : [event.before]) {
      if (!/^[0-9a-f]{64}$/.test(version) || seen.has(version)) continue;
      seen.add(version);
      const write = writes.get(version);
      const by = write ? `by ${write.who.agent || "somebody"} ${write.who.session.slice(0, 8)}, ${clock(write.time)}` : `from outside, before ${clock(event.time)}`;
      listed.push({ value: version, label: `${version.slice(0, 8)} ${by}${kept.has(version) ? "" : " (bytes not kept)"}` });
    }
  }
  return listed;
}

async function compare() {
  const mine = ++compared; // An answer that comes late must not replace a newer one.
  showDiff("timeline-diff", "…");
  pressed("put-back").disabled = chosen("to").value === "now";
  try {
    const { diff } = await ask("/api/diff", { file, from: chosen("from").value, to: chosen("to").value });
    if (mine === compared) showDiff("timeline-diff", diff);
  } catch (error) {
    if (mine === compared) showDiff("timeline-diff", String(error instanceof Error ? error.message : error));
  }
}

/** Connect the buttons, once. */
export function prepare() {
  byId("confirm-yes").addEventListener("click", doIt);
  byId("confirm-no").addEventListener("click", () => dialog("confirm").close());
  dialog("confirm").addEventListener("close", () => {
    asked = null;
    if (dialog("timeline").open) openTimeline(file);
  });
  byId("from").addEventListener("change", compare);
  byId("to").addEventListener("change", compare);
  byId("put-back").addEventListener("click", () => {
    const version = chosen("to").value;
    confirm(`Restore ${file}?`, `It gets version ${version.slice(0, 12)} again. What is there now stays a version.`, { action: "restore", file, version });
  });
}

/**
 * @param {any} event
 * @returns {Node}
 */
export function undoButton(event) {
  const scope = event.call ? "call" : "turn";
  const id = event.call || event.turn;
  if (!id || (event.group !== "write" && event.group !== "merge")) return make("span");
  return button(
    "undo",
    () => confirm(`Undo this write of ${event.who.agent || "somebody"}?`, `${event.text}. Only this ${scope} is undone; changes of others stay.`, { action: "undo", scope, id }),
    { class: "small", "data-key": `undo ${event.seq}`, "aria-label": `undo event ${event.seq}` },
  );
}

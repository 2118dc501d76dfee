// The page: takes what the server tells, hands each part to its panel, and listens to keys.

import { prepare } from "./dialogs.js";
import { byId } from "./dom.js";
import * as events from "./events.js";
import * as panels from "./panels.js";
import { enter, follow, post } from "./server.js";

const THEME = "noclobber-theme";
/** @type {Record<string, any>} everything that was told, by section */
const all = {};
let toldAtMs = Date.now();

/** @param {Record<string, any>} news */
function take(news) {
  const { events: told, ...sections } = news;
  Object.assign(all, sections);
  if (sections.locks || sections.at_work) toldAtMs = Date.now();
  if (told) events.take(told);
  requestAnimationFrame(() => draw(new Set(Object.keys(sections))));
}

/** @param {Set<string>} changed */
function draw(changed) {
  if (changed.has("project")) {
    byId("project").textContent = all.project.name;
    document.title = `${all.project.name} · noclobber`;
  }
  if (["project", "checks", "chain", "totals", "ledger"].some((name) => changed.has(name))) panels.facts(all);
  if (changed.has("attention")) panels.attention(all.attention);
  if (changed.has("totals")) panels.totals(all.totals);
  if (changed.has("minutes")) panels.minutes(all.minutes);
  if (changed.has("hottest")) panels.hottest(all.hottest);
  tick();
  banner();
}

function tick() {
  if (all.at_work) panels.work(all.at_work, Date.now());
  if (all.locks) panels.locks(all.locks, all.project?.root ?? "", (Date.now() - toldAtMs) / 1000);
}

function banner() {
  const told = [
    ...(all.gone ? ["The project's folder is gone. What you see is the last that was known."] : []),
    ...(all.feed_troubles ?? []),
    ...(all.state_troubles ?? []),
  ];
  const place = byId("banner");
  place.hidden = !told.length;
  if (place.textContent !== told.join("\n")) place.textContent = told.join("\n");
}

/** @param {"live" | "lost" | "refused"} state @param {string} why */
function connection(state, why) {
  const place = byId("connection");
  place.dataset.state = state === "live" ? "live" : "lost";
  place.textContent = state === "live" ? "live" : why;
}

/** @param {string} name */
function theme(name) {
  document.documentElement.dataset.theme = name;
  byId("theme").setAttribute("aria-pressed", String(name === "dark"));
  localStorage.setItem(THEME, name);
}

function otherTheme() {
  theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
}

function otherPause() {
  const paused = byId("pause").getAttribute("aria-pressed") !== "true";
  byId("pause").setAttribute("aria-pressed", String(paused));
  events.pause(paused);
}

function help() {
  /** @type {HTMLDialogElement} */ (byId("key-help")).showModal();
}

/** @type {Record<string, () => void>} */
const KEYS = {
  "/": () => byId("filter").focus(),
  j: () => events.choose(1),
  k: () => events.choose(-1),
  p: otherPause,
  t: otherTheme,
  n: () => (byId("attention-list").querySelector("button") ?? byId("attention")).focus(),
  "?": help,
};

document.addEventListener("keydown", (pressed) => {
  if (pressed.ctrlKey || pressed.metaKey || pressed.altKey || document.querySelector("dialog[open]")) return;
  const target = /** @type {HTMLElement} */ (pressed.target);
  if (["INPUT", "SELECT", "TEXTAREA"].includes(target.tagName)) {
    if (pressed.key === "Escape") target.blur();
    return;
  }
  if (pressed.key === "Enter" && target.matches(".event")) {
    pressed.preventDefault(); // Or the same key would press the button that gets the focus.
    events.openChosen();
  } else if (KEYS[pressed.key]) {
    pressed.preventDefault();
    KEYS[pressed.key]();
  }
});

theme(localStorage.getItem(THEME) ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
prepare();
byId("theme").addEventListener("click", otherTheme);
byId("pause").addEventListener("click", otherPause);
byId("keys").addEventListener("click", help);
byId("check").addEventListener("click", () => post("/api/check", {}));
byId("find").addEventListener("submit", (sent) => sent.preventDefault());
byId("filter").addEventListener("input", events.show);
setInterval(tick, 1000);
try {
  await enter();
  await follow(take, connection);
} catch (error) {
  connection("refused", error instanceof Error ? error.message : String(error));
}

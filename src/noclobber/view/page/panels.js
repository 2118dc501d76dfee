// One function for each part of the page: from what the server tells to what is seen.

import { draw } from "./chart.js";
import { decide, openTimeline } from "./dialogs.js";
import { button, byId, clock, fill, lasting, make, near } from "./dom.js";

/** @param {string} id @param {boolean} isEmpty */
const say = (id, isEmpty) => { byId(id).hidden = !isEmpty; };
/** @param {string | Node} text @param {Record<string, string>} [attributes] */
const cell = (text, attributes = {}) => make("td", attributes, text);

/** @param {string} file @param {string} [shown] */
export function fileLink(file, shown = file) {
  return button(shown, () => openTimeline(file), { class: "link file", "data-key": file, title: file });
}

/** @param {any} all */
export function facts(all) {
  const findings = all.checks?.findings ?? [];
  const level = findings.find((/** @type {any} */ each) => each.name === "level");
  const hooks = findings.filter((/** @type {any} */ each) => each.name.startsWith("hooks of") && !each.detail.startsWith("not installed"));
  const bad = hooks.filter((/** @type {any} */ each) => !each.ok);
  const isRunning = all.checks?.state === "running";
  const unknown = isRunning ? "being checked …" : all.checks?.state ?? "";
  const checked = findings.find((/** @type {any} */ each) => each.name === "ledger");
  const rows = [
    ["folder", all.project?.root ?? "", ""],
    ["level", level ? level.detail.split(":")[0] : unknown, level ? (level.ok ? "good" : "bad") : "warn"],
    ["hooks", hooks.length ? (bad.length ? `${bad.length} of ${hooks.length} broken` : `${hooks.length} ok`) : findings.length ? "none" : unknown, bad.length ? "bad" : hooks.length ? "good" : "warn"],
    ["chain", chainOf(all, checked), all.chain?.ok === false || checked?.ok === false ? "bad" : "good"],
    ["events", `${(all.totals?.events ?? 0).toLocaleString()}${all.totals?.counted_share < 1 ? ` (counting, ${Math.floor(all.totals.counted_share * 100)} %)` : ""}`, ""],
  ];
  byId("check").textContent = isRunning ? "Checking …" : "Check again";
  fill("facts", rows, () => rows.map(([name, value, look]) => make("div", {}, make("dt", {}, name), make("dd", look ? { class: look } : {}, value))));
}

/** @param {any} all @param {any} checked */
function chainOf(all, checked) {
  if (all.chain?.ok === false) return all.chain.detail;
  if (checked?.ok === false) return checked.detail;
  const head = all.chain?.head ? `, head ${all.chain.head.slice(7, 19)}` : "";
  if (!all.ledger?.exists) return "nothing recorded yet";
  return checked ? `whole${head}` : `followed${head}`;
}

/** @param {any[]} items */
export function attention(items) {
  byId("attention-count").textContent = String(items.length);
  byId("attention-count").dataset.some = items.length ? "yes" : "no";
  say("attention-empty", !items.length);
  fill("attention-list", items, () =>
    items.map((item) =>
      make(
        "li",
        {},
        make("strong", {}, item.title),
        make("p", {}, `${item.detail}${item.time ? ` · ${clock(item.time)}` : ""}`),
        make(
          "div",
          { class: "buttons" },
          ...item.actions.map((/** @type {string} */ action) =>
            button(action, () => decide(action, item), {
              class: "small",
              "data-key": `${action} ${item.kind} ${item.name}`,
              "aria-label": `${action}: ${item.title}`,
            }),
          ),
        ),
      ),
    ),
  );
}

/** @param {any[]} rows @param {number} nowMs */
export function work(rows, nowMs) {
  say("work-empty", !rows.length);
  const shown = rows.map((row) => [row.agent || "somebody", row.host, row.session, row.doing, row.file, `${lasting((nowMs - Date.parse(row.since)) / 1000)} ago`]);
  fill("work-rows", shown, () =>
    shown.map(([agent, host, session, doing, file, since]) =>
      make(
        "tr",
        {},
        make("td", { class: "name" }, make("strong", {}, agent), make("span", { class: "narrow" }, `${host} ${session}`.trim())),
        cell(host, { class: "name wide" }),
        cell(session, { class: "mono wide" }),
        cell(doing, { class: doing === "refused" ? "bad" : doing === "writing" ? "good" : "" }),
        cell(file ? fileLink(file, near(file)) : "", { class: "file" }),
        cell(since, { class: "number" }),
      ),
    ),
  );
}

/** @param {any[]} rows @param {string} root @param {number} passedS since the server looked */
export function locks(rows, root, passedS) {
  say("locks-empty", !rows.length);
  const shown = rows.map((lock) => [
    lock.folder === root ? "." : lock.folder.startsWith(`${root}/`) ? lock.folder.slice(root.length + 1) : lock.folder,
    lock.holder ?? "",
    lock.state,
    lock.lease_remaining_s === null || lock.lease_remaining_s === undefined ? "" : `, ${lasting(lock.lease_remaining_s - passedS)} left`,
  ]);
  fill("lock-rows", shown, () =>
    shown.map(([folder, holder, state, left]) =>
      make("tr", {}, cell(folder, { class: "file" }), make("td", { class: "name" }, make("strong", {}, holder)), cell(`${state}${left}`, { class: state === "live" ? "good" : "warn" })),
    ),
  );
}

/** @param {any} totals */
export function totals(totals) {
  const names = { write: "writes", merge: "merges", conflict: "conflicts", refused: "other refusals", race: "races" };
  const rows = Object.entries(names).map(([group, name]) => [group, name, (totals.groups[group] ?? 0).toLocaleString()]);
  if (totals.bad_lines) rows.push(["none", "damaged lines", totals.bad_lines.toLocaleString()]);
  fill("totals", rows, () => rows.map(([group, name, count]) => make("div", {}, make("dt", { class: group }, name), make("dd", {}, count))));
}

export { draw as minutes };

/** @param {any[]} rows */
export function hottest(rows) {
  say("hot-empty", !rows.length);
  fill("hot-rows", rows, () =>
    rows.map((row) =>
      make(
        "tr",
        {},
        cell(fileLink(row.file, near(row.file)), { class: "file" }),
        cell(String(row.write), { class: "number" }),
        cell(String(row.merge), { class: "number" }),
        cell(String(row.conflict + row.refused + row.race), { class: "number" }),
      ),
    ),
  );
}

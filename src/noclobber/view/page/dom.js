// Everything that is drawn goes through here. Text from the project becomes text nodes, never markup.

const MOST_OF_PATH = 36;

/**
 * @param {string} id
 * @returns {HTMLElement}
 */
export function byId(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`no element ${id}`);
  return found;
}

/**
 * @param {string} tag
 * @param {Record<string, string>} [attributes]
 * @param {...(Node | string)} children
 * @returns {HTMLElement}
 */
export function make(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/**
 * @param {string} tag
 * @param {Record<string, string | number>} [attributes]
 * @param {string} [text]
 * @returns {SVGElement}
 */
export function drawn(tag, attributes = {}, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  if (text !== undefined) made.textContent = text;
  return made;
}

/**
 * @param {string} label
 * @param {() => void} work
 * @param {Record<string, string>} [attributes]
 * @returns {HTMLElement}
 */
export function button(label, work, attributes = {}) {
  const made = make("button", { type: "button", ...attributes }, label);
  made.addEventListener("click", work);
  return made;
}

/**
 * Replace rows only if they differ, so that neither the focus nor a selection is lost for nothing.
 * @param {string} id
 * @param {unknown} shown what the rows are made from
 * @param {() => Node[]} rows
 */
export function fill(id, shown, rows) {
  const place = byId(id);
  const key = JSON.stringify(shown);
  if (place.dataset.shown === key) return;
  place.dataset.shown = key;
  const focused = place.contains(document.activeElement) ? document.activeElement?.getAttribute("data-key") : null;
  place.replaceChildren(...rows());
  if (focused) {
    const again = [...place.querySelectorAll("[data-key]")].find((each) => each.getAttribute("data-key") === focused);
    if (again instanceof HTMLElement) again.focus();
  }
}

/**
 * A diff, a line an element. Long ones are cut by the server.
 * @param {string} id
 * @param {string} text
 */
export function showDiff(id, text) {
  const lines = text.replace(/\n$/, "").split("\n").map((line) => {
    const kind = /^(\+\+\+|---|@@)/.test(line) ? "at" : line.startsWith("+") ? "add" : line.startsWith("-") ? "cut" : "";
    return make("span", kind ? { class: kind } : {}, line);
  });
  const place = byId(id);
  place.classList.toggle("said", !/^@@/m.test(text)); // A sentence instead of a diff is folded, not scrolled.
  place.replaceChildren(...lines);
}

/**
 * @param {string} iso a time as the ledger has it
 * @returns {string}
 */
export function clock(iso) {
  const at = new Date(iso.replace(/(\.\d{3})\d+Z$/, "$1Z"));
  if (Number.isNaN(at.getTime())) return iso.slice(0, 19);
  const isToday = at.toDateString() === new Date().toDateString();
  const time = at.toLocaleTimeString([], { hour12: false });
  return isToday ? time : `${at.getMonth() + 1}/${at.getDate()} ${time.slice(0, 5)}`;
}

/**
 * The end of a long path: its last folders say more than its first.
 * @param {string} path
 * @returns {string}
 */
export function near(path) {
  if (path.length <= MOST_OF_PATH) return path;
  const end = path.slice(2 - MOST_OF_PATH);
  const at = end.indexOf("/");
  return `…${at < 0 ? end : end.slice(at)}`;
}

/**
 * @param {number} seconds
 * @returns {string}
 */
export function lasting(seconds) {
  if (seconds < 60) return `${Math.max(0, Math.round(seconds))} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
}

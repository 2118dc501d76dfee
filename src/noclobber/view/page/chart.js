// What happened in each of the last sixty minutes: stacked bars, with the same numbers in words for who cannot see them.

import { byId, drawn, make } from "./dom.js";

const SERIES = ["write", "merge", "conflict", "refused", "race"];
const WIDTH = 600;
const HEIGHT = 130;

/** @param {Array<Record<string, any>>} minutes */
export function draw(minutes) {
  const sums = minutes.map((minute) => SERIES.reduce((sum, name) => sum + minute[name], 0));
  const most = Math.max(1, ...sums);
  const picture = drawn("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT + 2}`, preserveAspectRatio: "none", role: "img" });
  picture.setAttribute("aria-label", inWords(minutes, sums));
  const step = WIDTH / minutes.length;
  picture.append(drawn("line", { x1: 0, x2: WIDTH, y1: HEIGHT, y2: HEIGHT }));
  minutes.forEach((minute, at) => {
    let top = HEIGHT;
    for (const name of SERIES) {
      const height = (minute[name] / most) * HEIGHT;
      if (!height) continue;
      top -= height;
      picture.append(drawn("rect", { x: at * step + 1, y: top, width: Math.max(1, step - 2), height, class: name }));
    }
  });
  const told = make("span", {}, `most in a minute: ${Math.max(0, ...sums)}`);
  byId("chart").replaceChildren(picture, make("p", {}, make("span", {}, "an hour ago"), told, make("span", {}, "now")));
}

/**
 * @param {Array<Record<string, any>>} minutes
 * @param {number[]} sums
 */
function inWords(minutes, sums) {
  const total = SERIES.map((name) => `${minutes.reduce((sum, minute) => sum + minute[name], 0)} ${name}`).join(", ");
  return `The last hour: ${total}; ${sums[sums.length - 1] ?? 0} in this minute.`;
}

// Talking to the server: the token, answers in JSON, and the stream.

const KEPT_AS = "noclobber-token";
let token = "";

/** Take the code for the token out of the link, and the link out of the history. */
export async function enter() {
  const given = new URLSearchParams(location.hash.slice(1));
  history.replaceState(null, "", location.pathname);
  if (given.has("code")) token = (await post("/api/session", { code: given.get("code") })).token;
  else token = sessionStorage.getItem(KEPT_AS) ?? "";
  // Of this origin only, which includes the port; and gone with the tab.
  sessionStorage.setItem(KEPT_AS, token);
}

/**
 * @param {string} path
 * @param {Record<string, string>} [query]
 * @returns {Promise<any>}
 */
export function ask(path, query = {}) {
  return answered(fetch(`${path}?${new URLSearchParams(query)}`, { headers: headers() }));
}

/**
 * @param {string} path
 * @param {unknown} body
 * @returns {Promise<any>}
 */
export function post(path, body) {
  return answered(
    fetch(path, {
      method: "POST",
      headers: { ...headers(), "Content-Type": "application/json" },
      body: JSON.stringify(body),
    }),
  );
}

/** An answer that says no, in the server's words. */
export class Refused extends Error {
  /** @param {string} message @param {number} status */
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

/** @param {Promise<Response>} asked */
async function answered(asked) {
  const response = await asked;
  const value = await response.json();
  if (!response.ok) throw new Refused(value.error ?? `status ${response.status}`, response.status);
  return value;
}

function headers() {
  return { "X-Noclobber-Token": token };
}

/**
 * Follow the stream for ever. Not an EventSource: that one cannot send the token in a header.
 * @param {(news: any) => void} onNews
 * @param {(state: "live" | "lost" | "refused", why: string) => void} onState
 */
export async function follow(onNews, onState) {
  for (let pause = 500; ; pause = Math.min(pause * 2, 5000)) {
    try {
      const response = await fetch("/api/stream", { headers: headers() });
      if (response.status === 401 || response.status === 403) {
        onState("refused", (await response.json()).error);
        return;
      }
      if (!response.ok || !response.body) throw new Error(`status ${response.status}`);
      onState("live", "");
      for await (const news of frames(response.body)) {
        pause = 500;
        onNews(news);
      }
    } catch {
      // Told below: whatever it was, the next attempt shows whether it lasts.
    }
    onState("lost", "`noclobber view` has ended, or cannot be reached. Trying again.");
    await new Promise((resume) => setTimeout(resume, pause));
  }
}

/** @param {ReadableStream<Uint8Array>} body */
async function* frames(body) {
  // The checker's own types say that this stream takes buffers only.
  const decoder = /** @type {ReadableWritablePair<string, Uint8Array>} */ (/** @type {unknown} */ (new TextDecoderStream()));
  const reader = body.pipeThrough(decoder).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
      const data = text.slice(0, end).split("\n").filter((line) => line.startsWith("data: "));
      text = text.slice(end + 2);
      if (data.length) yield JSON.parse(data.map((line) => line.slice(6)).join("\n"));
    }
  }
}

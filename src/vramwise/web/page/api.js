/* One question of the API at a time: asked of the server this page came from, or of a worker in the browser.
   back-end.json says which of them it is. */

let backEnd = null;
let worker = null;
let counter = 0;
const open = new Map();

/* `told(progress, loaded, total)` while a worker starts. What `start` names is there before it: keys and a first answer. */
export async function connect(told) {
  const response = await fetch("back-end.json");
  backEnd = response.ok ? await response.json() : { kind: "server", api: "api/v1/" };
  if (backEnd.kind === "browser") {
    worker = new Worker(backEnd.worker, { type: "module" });
    worker.onmessage = ({ data }) => {
      if ("id" in data) {
        open.get(data.id)?.(JSON.parse(data.text));
        open.delete(data.id);
      } else if ("failed" in data) {
        for (const answer of open.values()) answer(failure(data.failed));
        open.clear();
        told("failed", data.failed, 0);
      } else {
        told(data.progress, data.loaded, data.total);
      }
    };
    worker.onerror = (event) => told("failed", event.message ?? "", 0);
  }
  const start = backEnd.start ? await fetch(backEnd.start) : null;
  return { ...backEnd, start: start?.ok ? await start.json() : null };
}

export const isBrowser = () => backEnd?.kind === "browser";
const failure = (message) => ({ error: { kind: "Unreachable", message, exit_code: 1 } });

/* The answer, errors included as `{error}`; `file`: {name, bytes} that the question is about. */
export async function ask(name, body, file) {
  if (worker !== null) {
    const id = ++counter;
    const answered = new Promise((resolve) => open.set(id, resolve));
    if (file) worker.postMessage({ id, name, body, bytes: file.bytes, file: file.name }, [file.bytes]);
    else worker.postMessage({ id, name, body });
    return answered;
  }
  const whole = file ? { ...body, name: file.name, base64: base64(file.bytes) } : body;
  try {
    const response = await fetch(`${backEnd.api}${name}`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(whole),
    });
    return await response.json();
  } catch (problem) {
    return failure(String(problem.message ?? problem));
  }
}

export function hubToken(token) {
  worker?.postMessage({ token });
}

/* `asked(body)` gives the answer, or null where a newer question overtook it: one is under way, the newest waits. */
export function newest(name) {
  let running = false;
  let waiting = null;
  const next = async () => {
    while (waiting !== null) {
      const { body, resolve } = waiting;
      waiting = null;
      const answer = await ask(name, body);
      resolve(answer);
    }
    running = false;
  };
  return (body) => {
    waiting?.resolve(null);
    return new Promise((resolve) => {
      waiting = { body, resolve };
      if (!running) {
        running = true;
        next();
      }
    });
  };
}

function base64(buffer) {
  const bytes = new Uint8Array(buffer);
  const parts = [];
  for (let at = 0; at < bytes.length; at += 0x8000) {
    parts.push(String.fromCharCode.apply(null, bytes.subarray(at, at + 0x8000)));
  }
  return btoa(parts.join(""));
}

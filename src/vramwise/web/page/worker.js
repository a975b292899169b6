/* The program in the browser: a module worker that starts Pyodide, unpacks the package, and answers.

   new Worker("worker.js", {type: "module"})
     in    {id, name, body}                  one question of the API; body is an object
           {id, name, body, bytes, file}     the same about a file: an ArrayBuffer and its name; body.path names it then
           {token}                           the hub's token, which stays in this worker
     out   {progress, loaded, total}         "runtime", "package", "image", "program", "ready"; bytes where counted
           {id, text}                        the answer as JSON text, errors included
           {failed}                          the program could not start: one line                                     */

import { FIRST_LINES, inflated, unpack } from "./program.js";

const base = new URL(".", self.location.href);
const waiting = [];
let answerText = null;
let runtime = null;

self.onmessage = (event) => {
  if ("token" in event.data) {
    waiting.push(event.data);
  } else if ("id" in event.data) {
    waiting.push(event.data);
  }
  drain();
};

function drain() {
  while (answerText !== null && waiting.length > 0) {
    const asked = waiting.shift();
    if ("token" in asked) {
      runtime.globals.get("set_token")(asked.token ?? "");
    } else {
      self.postMessage({ id: asked.id, text: answered(asked) });
    }
  }
}

function answered(asked) {
  let body = asked.body ?? {};
  let folder = null;
  if (asked.bytes !== undefined) {
    folder = `/uploads/${asked.id}`;
    const name = String(asked.file ?? "file").replace(/[^\w.-]/g, "_").slice(-120);
    runtime.FS.mkdirTree(folder);
    runtime.FS.writeFile(`${folder}/${name}`, new Uint8Array(asked.bytes));
    body = { ...body, path: `${folder}/${name}` };
  }
  try {
    return answerText(asked.name, JSON.stringify(body));
  } catch (problem) {
    const message = `internal error: ${String(problem.message ?? problem).trim().split("\n").pop()}`;
    return JSON.stringify({ error: { kind: "InternalError", message, exit_code: 1 } });
  } finally {
    if (folder !== null) {
      runtime.globals.get("remove_folder")(folder);
    }
  }
}

function told(progress, loaded = 0, total = 0) {
  self.postMessage({ progress, loaded, total });
}

const plainFetch = self.fetch.bind(self);

/* The same response, each piece of it told as it comes. */
function counted(response, what) {
  const total = Number(response.headers.get("content-length") ?? 0);
  let loaded = 0;
  const count = new TransformStream({
    transform(piece, onward) {
      loaded += piece.length;
      told(what, loaded, total);
      onward.enqueue(piece);
    },
  });
  return new Response(response.body.pipeThrough(count), { status: response.status, headers: response.headers });
}

/* Pyodide fetches its own files: of them the program itself is large. */
self.fetch = async (address, options) => {
  const response = await plainFetch(address, options);
  return response.ok && String(address.url ?? address).endsWith(".wasm") ? counted(response, "runtime") : response;
};

/* What a compressed file of the folder holds; its hash in the address keeps a browser from taking an older one of that name. */
async function fetched({ file, sha256, bytes }, what) {
  const response = await plainFetch(new URL(`${file}?${sha256.slice(0, 16)}`, base));
  if (!response.ok) {
    throw new Error(`${file}: HTTP ${response.status}`);
  }
  const content = await inflated(new Uint8Array(await counted(response, what).arrayBuffer()));
  if (content.length !== bytes) {
    throw new Error(`${file}: ${content.length} bytes instead of ${bytes}`);
  }
  return content;
}

/* Python with the program started in it. Its memory image saves most of the start; a line too slow for one does without. */
async function started(backEnd) {
  const packaged = fetched(backEnd.package, "package");
  const image = backEnd.image && !isSlow(self.navigator.connection) ? fetched(backEnd.image, "image") : null;
  for (const one of [packaged, image]) one?.catch(() => {}); // who awaits it below hears of it
  const { loadPyodide } = await import(new URL(`${backEnd.runtime}pyodide.mjs`, base).href);
  const indexURL = new URL(backEnd.runtime, base).href;
  try {
    if (image !== null) {
      const python = await loadPyodide({ indexURL, _loadSnapshot: image });
      told("program");
      unpack(python.FS, await packaged);
      return python;
    }
  } catch (problem) {
    console.warn(`the program starts without its memory image: ${problem}`);
  }
  const python = await loadPyodide({ indexURL });
  told("program");
  unpack(python.FS, await packaged);
  python.runPython(FIRST_LINES);
  return python;
}

/* As far as the browser says: of an unknown line it says "4g". */
const isSlow = (line) => line !== undefined && (line.saveData || line.effectiveType !== "4g");

async function start() {
  const backEnd = await (await plainFetch(new URL("back-end.json", base))).json();
  told("runtime");
  runtime = await started(backEnd);
  answerText = runtime.globals.get("answer_text");
  told("ready");
  drain();
}

start().catch((problem) => self.postMessage({ failed: String(problem.message ?? problem) }));

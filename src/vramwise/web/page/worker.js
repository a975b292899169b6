/* The program in the browser: a module worker that starts Pyodide, unpacks the package, and answers.

   new Worker("worker.js", {type: "module"})
     in    {id, name, body}                  one question of the API; body is an object
           {id, name, body, bytes, file}     the same about a file: an ArrayBuffer and its name; body.path names it then
           {token}                           the hub's token, which stays in this worker
     out   {progress, loaded, total}         "runtime", "package", "program", "ready", in this order; bytes where counted
           {id, text}                        the answer as JSON text, errors included
           {failed}                          the program could not start: one line                                     */

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

async function fetched(address, what) {
  const response = await plainFetch(address);
  if (!response.ok) {
    throw new Error(`${address.pathname}: HTTP ${response.status}`);
  }
  return counted(response, what).arrayBuffer();
}

const START = `
import os, shutil, sys, tempfile
sys.path.insert(0, "/package")
sys.dont_write_bytecode = True
os.environ["VRAMWISE_CACHE"] = "/cache"
os.makedirs("/uploads", exist_ok=True)
tempfile.tempdir = "/uploads"  # unpacking has asked for the folder already, so that TMPDIR comes too late
from vramwise.files import stay_within
stay_within(["/uploads"])
from vramwise.web.api import answer_text
from vramwise.sources.browser_http import set_token
def remove_folder(path):
    shutil.rmtree(path, ignore_errors=True)
`;

async function start() {
  const backEnd = await (await fetch(new URL("back-end.json", base))).json();
  told("runtime");
  const packaged = fetched(new URL(backEnd.package, base), "package");
  const { loadPyodide } = await import(new URL(`${backEnd.runtime}pyodide.mjs`, base).href);
  runtime = await loadPyodide({ indexURL: new URL(backEnd.runtime, base).href });
  runtime.unpackArchive(await packaged, "zip", { extractDir: "/package" });
  told("program");
  runtime.runPython(START);
  answerText = runtime.globals.get("answer_text");
  told("ready");
  drain();
}

start().catch((problem) => self.postMessage({ failed: String(problem.message ?? problem) }));

/* node image.mjs: in a folder with Pyodide's files, program.mjs, package and questions.json, writes `image`.

   The image is Python's memory after the program has started and answered the questions: a page that loads it has nothing
   to start, import or record. Pyodide calls it a memory snapshot; it fits the very build of the runtime that made it, which
   checks that itself.                                                                                                    */

import { readFile, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { FIRST_LINES, inflated, unpack } from "./program.mjs";
import { loadPyodide } from "./pyodide.mjs";

const here = fileURLToPath(new URL(".", import.meta.url));
const env = { HOME: "/home/pyodide", PYTHONHASHSEED: "0" }; // the home that a page's own Python has
const runtime = await loadPyodide({ indexURL: here, _makeSnapshot: true, env });
unpack(runtime.FS, await inflated(new Uint8Array(await readFile(`${here}package`))));
runtime.runPython(FIRST_LINES);
const answerText = runtime.globals.get("answer_text");
for (const [name, body] of JSON.parse(await readFile(`${here}questions.json`, "utf8"))) {
  const { error } = JSON.parse(answerText(name, JSON.stringify(body)));
  if (error) throw new Error(`${name}: ${error.message}`);
}
answerText.destroy();
runtime.runPython("import gc; gc.collect()");

/* Where this Node can count a function's arguments, CPython has noted a function for it that no page's runtime has. Without
   one it asks JavaScript to call (CPython 3.13, Python/emscripten_trampoline.c). */
const { HEAP32, __PyRuntime: state, __PyEM_EMSCRIPTEN_COUNT_ARGS_OFFSET: offset } = runtime._module;
HEAP32[(state + HEAP32[offset >> 2]) >> 2] = 0;
await writeFile(`${here}image`, runtime.makeMemorySnapshot());

/* The program's files in Python's file system, and its first lines: what the worker in the browser shares with image.mjs,
   which runs them in Node while the folder is written. */

const FOLDER = "/package";
const BLOCK = 512;
const FILE_MODE = 0o100644;

export const FIRST_LINES = `
import os, shutil, sys, tempfile
sys.path.insert(0, "${FOLDER}")
sys.dont_write_bytecode = True
os.environ["VRAMWISE_CACHE"] = "/cache"
tempfile.tempdir = "/uploads"
from vramwise.files import stay_within
stay_within(["/uploads"])
from vramwise.web.api import answer_text
from vramwise.sources.browser_http import set_token
def remove_folder(path):
    shutil.rmtree(path, ignore_errors=True)
`;

/* Bytes as they were before gzip; a server may have undone it already. */
export async function inflated(bytes) {
  if (bytes[0] !== 0x1f || bytes[1] !== 0x8b) return bytes;
  const plain = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(plain).arrayBuffer());
}

/* The files of a tar archive (ustar: a header of one block, then the content in whole blocks), and the folder of uploads.
   Python's own way, a zip by shutil, takes half a second, and Emscripten's writeFile a tenth: here nodes of its file system in
   memory are made of the archive's own bytes. */
export function unpack(files, archive) {
  const decoder = new TextDecoder();
  const text = (at, most) => decoder.decode(archive.subarray(at, at + most)).split("\0", 1)[0];
  const folders = new Map();
  files.mkdirTree("/uploads");
  for (let at = 0; archive[at] > 0; ) {
    const [path, size] = [`${FOLDER}/${text(at, 100)}`, Number.parseInt(text(at + 124, 12), 8)];
    const cut = path.lastIndexOf("/");
    const folder = path.slice(0, cut);
    if (!folders.has(folder)) {
      files.mkdirTree(folder);
      folders.set(folder, files.lookupPath(folder).node);
    }
    const node = files.filesystems.MEMFS.createNode(folders.get(folder), path.slice(cut + 1), FILE_MODE, 0);
    node.contents = archive.subarray(at + BLOCK, at + BLOCK + size);
    node.usedBytes = size;
    at += BLOCK * (1 + Math.ceil(size / BLOCK));
  }
}

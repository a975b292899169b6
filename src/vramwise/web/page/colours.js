/* Written from src/vramwise/colours.py by tools/site/colours.py. */

const NUMBER_OF_TERM = {
  "weights": 0,
  "model weights": 0,
  "activations": 1,
  "activation peak": 1,
  "warm-up prefill": 1,
  "KV cache": 2,
  "gathered weights": 2,
  "whole weights": 2,
  "master weights": 2,
  "logits and loss": 3,
  "profile run: sampler": 3,
  "optimizer states": 4,
  "sampler state": 4,
  "runtime pool": 4,
  "gradients": 5,
  "gradient buckets": 9,
  "fp32 gradients": 6,
  "gradients as one": 7,
  "unsharded gradients": 9,
  "reduce-scatter": 6,
  "adapters": 6,
  "non-torch": 6,
  "forward temporaries": 7,
  "backward temporaries": 7,
  "compute buffer": 7,
  "NCCL": 7,
  "dummy gradients": 3,
  "CUDA context": 8,
  "library workspace": 9,
  "library workspaces": 9,
  "CUDA graphs": 9,
  "other": 8
};
const NEW_NAMES = [3, 4, 5, 6, 7, 9];

/* The same term has the same colour in every picture; names that are new take one by their letters. */
export function colourOf(name) {
  if (name in NUMBER_OF_TERM) return NUMBER_OF_TERM[name];
  let letters = 0;
  for (const letter of name) letters = (letters * 31 + letter.codePointAt(0)) % 997;
  return NEW_NAMES[letters % NEW_NAMES.length];
}

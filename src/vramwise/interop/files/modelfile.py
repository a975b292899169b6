"""ollama's Modelfile: its base and the parameters that move memory (docs/modelfile.mdx of ollama).

`FROM` names a model of ollama's library, a repository, or a GGUF file; `PARAMETER num_ctx`, `num_gpu` and `num_batch`
are the runner's own; `ADAPTER` is a LoRA of its own tensors.
"""

from __future__ import annotations

from vramwise.errors import clipped
from vramwise.interop.files.given import Given
from vramwise.interop.files.programs import Program

_COUNTED = {"num_ctx": "-c", "num_gpu": "-ngl", "num_batch": "-b"}
_VARIABLES = {"num_ctx": "OLLAMA_CONTEXT_LENGTH"}


def modelfile_programs(given: Given) -> list[Program]:
    """The model that a Modelfile makes, as ollama runs it, or as llama-server where its base is a GGUF file."""
    base, adapter = "", False
    parameters: dict[str, str] = {}
    passed: list[str] = []
    for line in given.text.splitlines():
        words = line.split()
        if len(words) > 1 and words[0].upper() == "FROM" and not base:
            base = words[1]
        elif len(words) > 2 and words[0].upper() == "PARAMETER":
            if words[1].lower() in _COUNTED:
                parameters[words[1].lower()] = words[2]
            else:
                passed.append(words[1])
        elif words and words[0].upper() == "ADAPTER":
            adapter = True
    if not base:
        return []
    is_file = base.endswith(".gguf")
    notes = [f"parameters without effect on memory: {', '.join(map(clipped, dict.fromkeys(passed)))}"] if passed else []
    notes += ["ADAPTER is not counted: the adapter's own tensors"] if adapter else []
    if is_file:
        flags = [word for name, value in parameters.items() for word in (_COUNTED[name], value)]
        return [Program("", ("llama-server", "-m", base, *flags), tuple(notes))]
    variables = [f"{_VARIABLES[name]}={value}" for name, value in parameters.items() if name in _VARIABLES]
    unread = [name for name in parameters if name not in _VARIABLES]
    notes += [f"PARAMETER {name} is not counted: ollama's own choice is taken" for name in unread]
    return [Program("", (*variables, "ollama", "run", base), tuple(notes))]

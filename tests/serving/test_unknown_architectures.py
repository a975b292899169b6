"""llama.cpp has no architecture for some older types: an answer for such a file would be one for nobody."""

from __future__ import annotations

import pytest

from vramwise import estimate
from vramwise.errors import ScenarioError


@pytest.mark.parametrize("model", ["EleutherAI/gpt-j-6b", "openai/whisper-large-v3", "facebook/opt-6.7b"])
@pytest.mark.parametrize("engine", ["llama.cpp", "ollama"])
def test_a_type_without_an_architecture_is_refused(model, engine):
    with pytest.raises(ScenarioError, match=r"llama\.cpp has no architecture for \w+ and reads no such file"):
        estimate({"model": model, "task": "serve", "gpu": "rtx-4090", "serve": {"engine": engine}})


def test_the_door_names_no_file_of_it(capsys):
    from vramwise.cli.main import main

    assert main(["estimate", "EleutherAI/gpt-j-6b", "--gpu", "4060"]) == 0
    screen = capsys.readouterr().out
    assert "llama.cpp" not in screen
    assert "(vLLM awq)" in screen

#!/bin/sh
# Rows of tests/golden/sglang_forward.jsonl: sh grid.sh FOLDER_OF_A_WHEEL >> ../../../tests/golden/sglang_forward.jsonl
cd "$(dirname "$0")" || exit 1
while read -r model tp tokens; do
    PYTHONPATH=../../../src timeout 300 python forward_pass.py --sglang "$1" --model "$model" --tp "$tp" --tokens "$tokens" \
        2>>"${ERRORS:-/dev/null}" | tail -n 1
done <<CASES
meta-llama/Llama-3.1-8B-Instruct 1 8192
meta-llama/Llama-3.1-8B-Instruct 4 8192
Qwen/Qwen2.5-7B-Instruct 1 2048
Qwen/Qwen3-8B 1 8192
Qwen/Qwen3-30B-A3B 1 8192
mistralai/Mixtral-8x7B-Instruct-v0.1 2 8192
google/gemma-2-9b-it 1 8192
deepseek-ai/DeepSeek-V2-Lite 1 8192
CASES

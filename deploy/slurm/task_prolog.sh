#!/usr/bin/env bash
# TaskProlog of slurm.conf: says at the head of a job's output whether it fits the card that it was given, with what of
# it is free at that moment. Slurm shows the lines that begin with `print`. It never fails a job: a Prolog that fails
# drains its node. To stop a job that does not fit, put `vramwise check "$0" || exit` into its script, or use
# vramwise-sbatch. Prologs have no search path: VRAMWISE_BIN is the folder with vramwise.
set -u
export PATH="${VRAMWISE_BIN:-/usr/local/bin}:${PATH:-}:/usr/bin:/bin"

[ "${SLURM_PROCID:-0}" = 0 ] || exit 0
script=$(mktemp) || exit 0
trap 'rm -f "$script"' EXIT
scontrol write batch_script "${SLURM_JOB_ID:-0}" "$script" >/dev/null 2>&1 || exit 0
answer=$(timeout 60 vramwise check "$script" 2>&1) || true
[ -n "$answer" ] && printf 'print vramwise: %s\n' "$(printf '%s' "$answer" | head -n 1 | sed 's/^vramwise: //')"
exit 0

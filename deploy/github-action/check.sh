#!/usr/bin/env bash
# Runs `vramwise check` on every file, or on one command; fails with the worst exit code. Inputs come as variables, so
# that nothing in them is run.
set -u

flags=(--gpu "$CHECK_GPU" --json)
read -r -a more <<<"${CHECK_FLAGS:-}"
flags+=(${more[@]+"${more[@]}"})
[ "${CHECK_STRICT:-false}" = true ] && flags+=(--strict)

worst=0
answers=""
word="fits"

one() { # one NAME ARGUMENTS…: checks and keeps the answer
  local name=$1 code answer
  shift
  answer=$(vramwise check "${flags[@]}" "$@")
  code=$?
  if [ -n "$answer" ]; then
    answers+="$answer"$'\n'
    echo "$name: $answer"
    case $answer in
      *'"word": "does not fit"'*) word="does not fit" ;;
      *'"word": "tight"'*) [ "$word" = "does not fit" ] || word="tight" ;;
    esac
  else
    word="not understood"
    echo "$name: not understood (exit code $code)"
  fi
  [ "$code" -gt "$worst" ] && worst=$code
  [ -n "${GITHUB_STEP_SUMMARY:-}" ] && printf '| %s | %s |\n' "$name" "${answer:-exit code $code}" >>"$GITHUB_STEP_SUMMARY"
  return 0
}

[ -n "${GITHUB_STEP_SUMMARY:-}" ] && printf '| job on %s | vramwise check |\n|---|---|\n' "$CHECK_GPU" >>"$GITHUB_STEP_SUMMARY"

if [ -n "${CHECK_COMMAND:-}" ]; then
  one command -- "$CHECK_COMMAND"
else
  while IFS= read -r file; do
    [ -n "$file" ] && one "$file" "$file"
  done <<<"${CHECK_FILES:-}"
fi
if [ -z "${CHECK_COMMAND:-}${CHECK_FILES:-}" ]; then
  echo "vramwise check: give the input file or command" >&2
  worst=2
fi

if [ -n "${GITHUB_OUTPUT:-}" ]; then
  {
    echo "word=$word"
    printf 'json<<END_OF_ANSWERS\n%sEND_OF_ANSWERS\n' "$answers"
  } >>"$GITHUB_OUTPUT"
fi
exit "$worst"

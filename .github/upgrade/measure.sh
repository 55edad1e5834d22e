#!/usr/bin/env bash
# Measure both sides; leave the exit code of the command and its directory in GITHUB_OUTPUT.
#
# BASE, NEW, TRAINER (one a line), BUDGET, ARGUMENTS: the inputs of action.yml. PULL_REQUEST: number
# of the pull request, or empty.
set -euo pipefail

directory=${RUNNER_TEMP:?}/upgrade-${GITHUB_RUN_ID:-local}-${GITHUB_RUN_ATTEMPT:-1}
echo "directory=$directory" >>"$GITHUB_OUTPUT"

trainers=()
while IFS= read -r name; do
    [ -z "$name" ] || trainers+=(--trainer "$(cd "${GITHUB_WORKSPACE:?}" && [ -e "$name" ] &&
        realpath "$name" || echo "$name")")
done <<<"${TRAINER:-}"
read -ra more <<<"${ARGUMENTS:-}"

cd "$GITHUB_ACTION_PATH"
# A runner that cancels a job signals this script alone, and ends it some seconds later. Bash runs a
# trap only between commands, and lets a command in the background ignore SIGINT.
stopped="" measuring=""
trap 'stopped=yes; [ -z "$measuring" ] || kill -TERM "$measuring"' INT TERM
python -m reports upgrade --base "$BASE" --new "$NEW" --budget "$BUDGET" "${trainers[@]}" \
    "${more[@]}" --run-dir "$directory" &
measuring=$!
[ -z "$stopped" ] || kill -TERM "$measuring" # the signal came before its number was known
code=0
wait "$measuring" || code=$?
while kill -0 "$measuring" 2>/dev/null; do # the signal ended the wait
    code=0
    wait "$measuring" || code=$?
done
echo "exit-code=$code" >>"$GITHUB_OUTPUT"

# The job that writes the comment knows nothing else of this one.
if [ -n "${PULL_REQUEST:-}" ] && [ -d "$directory" ]; then
    echo "$PULL_REQUEST" >"$directory/pull-request"
fi

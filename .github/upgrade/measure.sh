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
code=0
python -m reports upgrade --base "$BASE" --new "$NEW" --budget "$BUDGET" "${trainers[@]}" \
    "${more[@]}" --run-dir "$directory" || code=$?
echo "exit-code=$code" >>"$GITHUB_OUTPUT"

# The job that writes the comment knows nothing else of this one.
if [ -n "${PULL_REQUEST:-}" ] && [ -d "$directory" ]; then
    echo "$PULL_REQUEST" >"$directory/pull-request"
fi

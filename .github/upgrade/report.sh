#!/usr/bin/env bash
# Put the report of DIRECTORY on the job's page, and its regressions into annotations.
set -euo pipefail

# A measurement that was killed has left no page, but a record of what it had.
if [ ! -f "${DIRECTORY:-}/upgrade.md" ] && [ -f "${DIRECTORY:-}/record.json" ]; then
    (cd "$GITHUB_ACTION_PATH" && python -m reports upgrade "$DIRECTORY" --format md) \
        >"$RUNNER_TEMP/upgrade.md" || true
    [ ! -s "$RUNNER_TEMP/upgrade.md" ] || mv "$RUNNER_TEMP/upgrade.md" "$DIRECTORY/"
fi
if [ -f "${DIRECTORY:-}/upgrade.md" ]; then
    cat "$DIRECTORY/upgrade.md" >>"$GITHUB_STEP_SUMMARY"
    cd "$GITHUB_ACTION_PATH"
    python -m reports upgrade "$DIRECTORY" --format annotations || true
else
    echo "Nothing was measured; the log of the step before has the reason." >>"$GITHUB_STEP_SUMMARY"
fi

#!/usr/bin/env bash
# Write the report of DIRECTORY as a comment on its pull request, or update the one that is there.
#
# It runs with a token that may write, on files that a pull request of anybody made. So it executes
# none of them, and the pull request must be the one whose commit was measured.
#
# REPOSITORY: owner/name. HEAD_SHA: the measured commit. NAME: of the report, if there are several.
set -euo pipefail

[ -f "$DIRECTORY/pull-request" ] && [ -f "$DIRECTORY/upgrade.md" ] || {
    echo "no report of a pull request"
    exit 0
}
number=$(head -c 20 "$DIRECTORY/pull-request")
[[ $number =~ ^[1-9][0-9]{0,9}$ ]] || {
    echo "the number of the pull request is not a number" >&2
    exit 1
}
head=$(gh api "repos/$REPOSITORY/pulls/$number" --jq .head.sha)
[ "$head" = "$HEAD_SHA" ] || {
    echo "pull request $number has another commit by now, or never had this one: no comment"
    exit 0
}

marker="<!-- tf-distribute-conformance upgrade ${NAME:-} -->"
body=$(mktemp)
trap 'rm -f "$body"' EXIT
{
    echo "$marker"
    head -c 65000 "$DIRECTORY/upgrade.md" # GitHub takes 65,536 characters
} >"$body"
# All of them first: `head` would end while gh still writes, and then pipefail ends the script.
comments=$(gh api --paginate "repos/$REPOSITORY/issues/$number/comments" \
    --jq ".[] | select(.user.type == \"Bot\" and (.body | startswith(\"$marker\"))) | .id")
if [ -n "$comments" ]; then
    first=${comments%%$'\n'*}
    gh api --method PATCH "repos/$REPOSITORY/issues/comments/$first" -F "body=@$body" --silent
else
    gh api --method POST "repos/$REPOSITORY/issues/$number/comments" -F "body=@$body" --silent
fi

#!/bin/sh
# Whether a change needs more memory than the branch that it is to be merged into.
#
#   check_against_main.sh BASE COMMAND...     like: check_against_main.sh origin/main python train.py
#
# Runs COMMAND in a checkout of BASE and in this one on the same machine, records both into the
# folder memscope-ci, shows what changed, and exits with 1 where this one is worse than BASE by more
# than TOLERANCE (an environment variable, 5% without it).
set -eu

base=$1
shift
mkdir -p memscope-ci
out=$(cd memscope-ci && pwd)
checkout=$(mktemp -d)
git worktree add --quiet --detach "$checkout" "$base"
trap 'git worktree remove --force "$checkout"' EXIT

(cd "$checkout" && memscope run --force -o "$out/main.mscope" -- "$@")
memscope run --force -o "$out/branch.mscope" -- "$@"

# Exit code 1: BASE breaks a limit already, which is no fault of this change.
rm -f "$out/main.toml"
memscope check "$out/main.mscope" --write-baseline "$out/main.toml" > "$out/main.txt" || test $? -eq 1

memscope diff "$out/main.mscope" "$out/branch.mscope"
memscope check "$out/branch.mscope" --baseline "$out/main.toml" --tolerance "${TOLERANCE:-5%}" \
    --junit "$out/memory.xml"

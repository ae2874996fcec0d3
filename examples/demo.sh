#!/usr/bin/env bash
# Shows what Sureline promises: a workflow runs, its process is killed halfway, it is resumed, and
# nothing is lost and nothing that was finished runs again. Usage: bash examples/demo.sh SURELINE
# Every claim is checked; the exit code is 0 only if all of them hold. Takes under a minute.
set -euo pipefail

sureline=$(cd "$(dirname "${1:?usage: demo.sh SURELINE}")" && pwd)/$(basename "$1")
python=$(dirname "$sureline")/python
cd "$(dirname "$0")/.."
top=$PWD/demo
run_pid=""

say() { printf '\n== %s\n' "$*"; }
fail() { printf '\n== The demo failed: %s\n   What it did is in %s\n' "$*" "$top" >&2; exit 1; }
# Prints one value of a JSON document on stdin, given as a Python expression over `d`.
pick() { "$python" -c "import json, sys; d = json.load(sys.stdin); print($1)"; }

stop_run() { if [ -n "$run_pid" ]; then kill -9 "$run_pid" 2>/dev/null || true; fi; }
trap stop_run EXIT

prepare() {
  if [ -e "$top" ] && [ ! -e "$top/made-by-demo" ]; then
    echo "There is something else in demo/; move it away and try again." >&2
    exit 2
  fi
  rm -rf "$top"
  mkdir -p "$top/bin"
  touch "$top/made-by-demo" "$top/starts"
  cp -R examples/mosaic "$top/killed"
  cp -R examples/mosaic "$top/undisturbed"
  # Our own witness, which Sureline knows nothing of: an awk that first writes down its task's name.
  printf '#!/bin/sh\necho "$SURELINE_TASK" >> "$WITNESS"\nexec %s "$@"\n' "$(command -v awk)" > "$top/bin/awk"
  chmod +x "$top/bin/awk"
  export WITNESS="$top/starts" PATH="$top/bin:$PATH"
}

run_and_kill() {
  local total half seen done_count
  total=$("$sureline" validate mosaic.yaml --json | pick 'd["tasks"]')
  half=$((total * 2 / 5))  # asking takes a moment, in which more is done
  say "A mosaic of the sky: $total tasks, small awk programs that read and write pictures."
  "$sureline" run mosaic.yaml &
  run_pid=$!
  for ((seen = 0; seen < 2000; seen++)); do
    kill -0 "$run_pid" 2>/dev/null || fail "the run ended before it could be killed"
    done_count=$("$sureline" show --json 2>/dev/null | pick 'd["tasks"]["succeeded"]' 2>/dev/null || echo 0)
    if [ "$done_count" -ge "$half" ]; then break; fi
    sleep 0.1
  done
  kill -9 "$run_pid"
  { wait "$run_pid" || true; } 2>/dev/null
  run_pid=""
  say "About half of it is done, so we have killed the process: kill -9. The list of runs says:"
  "$sureline" runs
  [ "$("$sureline" runs --json | pick 'd["runs"][-1]["state"]')" = interrupted ] \
    || fail "the killed run does not count as interrupted"
  "$sureline" show --tasks --json > "$top/before.json"
}

resume_and_compare() {
  say "Now we resume it."
  "$sureline" resume
  "$sureline" show --tasks --json > "$top/after.json"
  say "Was anything lost, did anything finished run again?"
  "$python" - "$top/before.json" "$top/after.json" "$top/starts" <<'PYTHON' || fail "see above"
import collections, json, sys

before, after = (json.load(open(path)) for path in sys.argv[1:3])
starts = collections.Counter(open(sys.argv[3]).read().split())
now = {task["task"]: task for task in after["listed"]}
kept = [task for task in before["listed"] if task["state"] == "succeeded"]
wrong = [name for name, task in now.items() if task["state"] != "succeeded"]
wrong += [task["task"] for task in kept if now[task["task"]] != task]
wrong += [task["task"] for task in kept if starts[task["task"]] != 1]
wrong += [name for name in now if not starts[name]]
again = sum(count > 1 for count in starts.values())
if wrong or after["state"] != "succeeded":
    sys.exit(f"   no: {after['state']}, {sorted(set(wrong))}")
print(f"   All {len(now)} tasks have succeeded.")
print(f"   The {len(kept)} that were finished before the kill have the same results, times and")
print("   attempts as before, and our own list of starts has each of them once.")
print(f"   {again} were running when the process was killed; those were started again.")
PYTHON
}

compare_with_undisturbed() {
  local seen_starts results
  say "The same workflow elsewhere, undisturbed, with nothing reused:"
  (cd "$top/undisturbed" && "$sureline" run mosaic.yaml --fresh --quiet)
  results=(mosaic.*.pgm preview.*.pgm corrections.txt seams.txt)
  for file in "${results[@]}"; do
    cmp "$file" "$top/undisturbed/$file" || fail "$file differs from the undisturbed run's"
  done
  say "The killed and resumed run made the same ${#results[@]} results, byte for byte. Now once more where all is done:"
  seen_starts=$(wc -l < "$WITNESS")
  "$sureline" run mosaic.yaml --quiet
  [ "$(wc -l < "$WITNESS")" = "$seen_starts" ] || fail "a rerun of an unchanged workflow ran something"
  say "Every result was reused, nothing ran. What the mosaic says of its own quality:"
  sed 's/^/   /' seams.txt
}

prepare
cd "$top/killed"
run_and_kill
resume_and_compare
compare_with_undisturbed
say "All claims hold ($SECONDS s). The pictures are demo/killed/preview.*.pgm; look around with: $1 show --tasks -C demo/killed"

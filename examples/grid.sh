#!/usr/bin/env bash
# A grid of four peers on this machine, each with a home of its own: a workflow runs over it, one
# peer is killed halfway, and the run is read from another peer. Everything is gone afterwards.
#
#     bash examples/grid.sh [path to the sureline command]
set -euo pipefail
sureline=$(realpath "${1:-.venv/bin/sureline}")
flow=$(realpath "$(dirname "$0")/sweep/sweep.yaml")
top=$(mktemp -d)
pids=()
clear() {
  for pid in "${pids[@]}"; do kill -9 "$pid" 2>/dev/null || true; done
  wait 2>/dev/null || true
  rm -rf "$top"
}
trap clear EXIT

as() { # the home of a peer, and a command to give there
  SURELINE_HOME="$top/$1" "$sureline" "${@:2}"
}
serve() {
  SURELINE_HOME="$top/$1" "$sureline" peer "${@:2}" --slots 1 --listen 127.0.0.1:0 2>"$top/$1.log" &
  pids+=($!)
}
until_ready() { # how many peers
  until [ "$(as p0 peers 2>/dev/null | grep -c alive)" = "$1" ]; do sleep 0.2; done
}

echo "== a grid, and four peers that serve it"
as p0 grid new lab --peer p0
serve p0 --grid lab
until_ready 1
for name in p1 p2 p3; do
  serve "$name" --join "$(as p0 invite 2>/dev/null)" --name "$name"
done
until_ready 4
as p0 peers

echo
echo "== a workflow over it; p3 is killed when the first results are there"
mkdir "$top/work"
cp -r "$(dirname "$flow")"/. "$top/work"
cd "$top/work"
as p1 run "$(basename "$flow")" --set steps=600000 --grid lab --progress lines &
run=$!
until ls points/*.txt >/dev/null 2>&1; do sleep 0.1; done
kill -9 "${pids[3]}" && wait "${pids[3]}" 2>/dev/null || true
wait "$run"
ls

echo
echo "== the same run, seen from another peer"
name=$(as p1 runs --json | grep -o '"run": "[^"]*"' | head -1 | cut -d'"' -f4)
cd "$top"
as p2 show "$name" --grid lab
as p0 peers

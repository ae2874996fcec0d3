#!/usr/bin/env bash
# A workflow across three sites, two of which can only dial out: a laptop drives it, a lab and a cluster
# run it, and one machine of the cluster is unplugged and put back meanwhile. The sites are network
# namespaces of this machine (see sites.sh), the peers are real. Every claim is checked; the exit code is
# 0 only if all of them hold. Takes one to two minutes. Usage: bash examples/grid-demo.sh SURELINE
set -euo pipefail

sureline=$(cd "$(dirname "${1:?usage: grid-demo.sh SURELINE}")" && pwd)/$(basename "$1")
python=$(dirname "$sureline")/python
here=$(cd "$(dirname "$0")" && pwd)
for needed in ip nft tc; do
  command -v "$needed" >/dev/null || { echo "this demo needs $needed (Debian: iproute2, nftables)" >&2; exit 2; }
done
[ "$(id -u)" = 0 ] || { echo "this demo makes network namespaces, for which it must be root" >&2; exit 2; }

net=sl$$
top=$(mktemp -d)
pids=()
say() { printf '\n== %s\n' "$*"; }
fail() {
  trap - EXIT
  printf '\n== The demo failed: %s\n   What the peers said is in %s\n' "$*" "$top" >&2
  clear_up
  exit 1
}
clear_up() {
  for pid in "${pids[@]}"; do kill -9 "$pid" 2>/dev/null || true; done
  wait 2>/dev/null || true
  bash "$here/sites.sh" down "$net"
}
trap 'clear_up; rm -rf "$top"' EXIT
trap 'fail "line $LINENO: $BASH_COMMAND"' ERR

as() { # a machine, and what to do there
  SURELINE_HOME="$top/$1" ip netns exec "$net-$1" "$sureline" "${@:2}"
}
pick() { "$python" -c "import json, sys; d = json.load(sys.stdin); print($1)"; }
serve() {
  SURELINE_HOME="$top/$1" ip netns exec "$net-$1" "$sureline" peer "${@:2}" --json \
    >"$top/$1.out" 2>"$top/$1.log" &
  pids+=($!)
  until_true "$1 to be ready" test -s "$top/$1.out"
}
join() { serve "$1" --join "$(as lab1 invite 2>/dev/null)" --name "$1" "${@:2}"; }
until_true() { # what for, and a command that tells
  local tries
  for ((tries = 0; tries < 600; tries++)); do
    if "${@:2}" >/dev/null 2>&1; then return; fi
    sleep 0.1
  done
  fail "waited in vain for $1"
}
there() { # whether a peer is held for present
  [ "$(as laptop peers --no-reach --json | pick "'$1' in [p['peer'] for p in d['peers'] if p['state'] == 'alive']")" = True ]
}
gone() { [ "$(as laptop peers --no-reach --json | pick "'$1' in [p['peer'] for p in d['peers']]")" = False ]; }

say "Three sites: a lab that can be dialled; a cluster and a laptop behind firewalls; slow links between."
bash "$here/sites.sh" up "$net"
as lab1 grid new lab --peer lab1
serve lab1 --grid lab --slots 0 --site lab
join lab2 --slots 1 --site lab
join node1 --slots 1 --site cluster
join node2 --slots 1 --site cluster
join laptop --slots 0 --site home
for name in lab1 lab2 node1 node2 laptop; do until_true "$name to be there" there "$name"; done
until_true "the laptop to be told" grep "cannot dial this machine" "$top/laptop.log"
grep -h "cannot dial this machine" "$top"/{node1,node2,laptop}.log

say "Who is there, seen from the laptop: the cluster is reached through the lab."
as laptop peers
as laptop peers --json > "$top/from-laptop.json"
[ "$(pick 'sorted({p["reached"] for p in d["peers"] if p["peer"].startswith("lab")})' < "$top/from-laptop.json")" = "['direct']" ] \
  || fail "the lab is not reached directly from the laptop"
[ "$(pick 'sorted({p["reached"] + " " + p["through"][:3] for p in d["peers"] if p["peer"].startswith("node")})' < "$top/from-laptop.json")" = "['through lab']" ] \
  || fail "the cluster is not reached through the lab"
[ "$(as node1 peers --json | pick '{p["peer"]: p["reached"] for p in d["peers"]}["node2"]')" = direct ] \
  || fail "machines of one site do not reach each other directly"
[ "$(as lab1 peers --json | pick '{p["peer"]: p["reached"] for p in d["peers"]}["node1"]')" = direct ] \
  || fail "the cluster did not dial who cannot dial it"
echo "(and directly: within the cluster, and from the lab, which the cluster dials by itself)"

say "A workflow, driven from the laptop; node2 is unplugged when the first results are there."
mkdir "$top/alone" "$top/work"
for place in alone work; do
  seq 1 40000 > "$top/$place/numbers"
  cat > "$top/$place/flow.yaml" <<'FLOW'
name: across
params: {pause: "1"}
tasks:
  sum:
    for: {i: 1..60}
    run: sleep {{pause}}; sha256sum numbers | tr -d -- ' -' > sum.{{i}}; echo {{i}} >> sum.{{i}}
    inputs: [numbers]
    outputs: ["sum.{{i}}"]
  total:
    run: cat sum.* | sort > total
    inputs: ["sum.*"]
    outputs: [total]
FLOW
done
(cd "$top/alone" && SURELINE_HOME="$top/laptop" "$sureline" run flow.yaml --set pause=0 --quiet)
cd "$top/work"
as laptop run flow.yaml --grid lab --progress lines > "$top/run.log" 2>&1 &
run=$!
until_true "results" ls sum.3
bash "$here/sites.sh" cut "$net" node2
until_true "the others to miss node2" gone node2
echo "node2 is unplugged, and missed"
sleep 1
bash "$here/sites.sh" plug "$net" node2
until_true "node2 to be back" there node2
echo "node2 is plugged in again, and back"
wait "$run" || { cat "$top/run.log"; fail "the run did not succeed"; }
tail -n 1 "$top/run.log"
cmp -s total "$top/alone/total" || fail "the results differ from those of a run on one machine"
"$python" - "$top/work" <<'PYTHON' || fail "see above"
import collections, sys
from sureline.journal.events import TaskEnded, TaskRevoked
from sureline.journal.store import Journal
from pathlib import Path

with Journal.open(Path(sys.argv[1]) / ".sureline", create=False, read_only=True) as journal:
    (run,) = journal.runs()
    events = [entry.event for entry in journal.events(run.run)]
ended = [event for event in events if isinstance(event, TaskEnded)]
revoked = [event.task for event in events if isinstance(event, TaskRevoked)]
good = [e for e in ended if e.outcome == "succeeded"]
where = collections.Counter(e.peer for e in good)
print("results by machine:", ", ".join(f"{peer} {count}" for peer, count in sorted(where.items())))
lost = [e for e in ended if e.outcome == "lost"]
print(f"lost with the unplugged machine: {len(lost)} attempts, {len(revoked)} results that only it had")
commits = collections.Counter(e.task for e in good) - collections.Counter(revoked)
assert len(commits) == commits.total() == 61, "a task was committed twice, or not at all"
assert {"node1", "node2"} <= set(where), "the cluster took no part"
PYTHON
echo "every result counts once, and the results are those of a run on one machine"

say "Files: 20 MB from node1 to the laptop, through the lab, and from the lab to the laptop, directly."
rate() { # a machine that has a file of its own, fetched by the laptop
  local digest
  head -c 20000000 /dev/urandom > "$top/$1.blob"
  digest=$(as "$1" files put "$top/$1.blob" --json | pick 'd["files"][0]["digest"]')
  "$python" -c 'import sys, time, subprocess
begin = time.monotonic(); subprocess.run(sys.argv[2:], check=True, stdout=subprocess.DEVNULL)
print(f"{sys.argv[1]}: {20 / (time.monotonic() - begin):.1f} MB/s, the start of a command included")' \
    "from $1" env SURELINE_HOME="$top/laptop" ip netns exec "$net-laptop" "$sureline" files get "$digest" --quiet --output "$top/$1.got"
  cmp -s "$top/$1.blob" "$top/$1.got" || fail "the file of $1 did not arrive as it was"
}
rate node1
rate lab2

say "Also cut from each other: the laptop and lab2, and from nobody else. Others carry what is said between them."
bash "$here/sites.sh" part "$net" laptop lab2
through() { [ "$(as laptop peers --json | pick '{p["peer"]: p["reached"] for p in d["peers"]}["lab2"]')" = through ]; }
until_true "a way round" through
as laptop peers

say "All of it holds: nobody could dial the laptop or the cluster, and nothing was lost."

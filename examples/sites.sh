#!/usr/bin/env bash
# Three sites on this machine, as network namespaces of their own, with a router between them:
#
#     lab      lab1, lab2            10.81.1.0/24   open to everybody
#     cluster  node1, node2          10.81.2.0/24   behind a firewall: may dial out, nobody may dial in
#     home     laptop                10.81.3.0/24   likewise
#
# What leaves a site goes over a slow link (50 Mbit/s; 5 ms more where the kernel can delay). Machines of
# one site reach each other directly. Nothing outside of these namespaces is touched. Needs root, iproute2
# and nftables.
#
#     bash examples/sites.sh up PREFIX       then: ip netns exec PREFIX-lab1 COMMAND ...
#     bash examples/sites.sh cut PREFIX laptop       unplug a machine;  plug PREFIX laptop  puts it back
#     bash examples/sites.sh part PREFIX lab1 node1  cut two machines from each other, and from nobody else
#     bash examples/sites.sh down PREFIX
set -euo pipefail

machines=(lab1:1:2 lab2:1:3 node1:2:2 node2:2:3 laptop:3:2)  # name, site, last number of its address
address() { for one in "${machines[@]}"; do IFS=: read -r name site host <<<"$one"
  if [ "$name" = "$1" ]; then echo "10.81.$site.$host"; fi; done; }

up() {
  local net=$1-net one name site host
  ip netns add "$net"
  ip -n "$net" link set lo up
  ip netns exec "$net" sysctl -qw net.ipv4.ip_forward=1
  # the firewall is between the sites, not within one
  ip netns exec "$net" sysctl -qw net.bridge.bridge-nf-call-iptables=0 2>/dev/null || true
  for site in 1 2 3; do
    ip -n "$net" link add "site$site" type bridge
    ip -n "$net" addr add "10.81.$site.1/24" dev "site$site"
    ip -n "$net" link set "site$site" up
    # what the router sends into a site; the site's own traffic does not pass here
    ip netns exec "$net" tc qdisc add dev "site$site" root handle 1: tbf rate 50mbit burst 64kb latency 200ms
    ip netns exec "$net" tc qdisc add dev "site$site" parent 1: netem delay 5ms 2>/dev/null || true
  done
  for one in "${machines[@]}"; do
    IFS=: read -r name site host <<<"$one"
    ip netns add "$1-$name"
    ip -n "$net" link add "$name" type veth peer name eth0 netns "$1-$name"
    ip -n "$net" link set "$name" master "site$site" up
    ip -n "$1-$name" link set lo up
    ip -n "$1-$name" addr add "10.81.$site.$host/24" dev eth0
    ip -n "$1-$name" link set eth0 up
    ip -n "$1-$name" route add default via "10.81.$site.1"
  done
  ip netns exec "$net" nft -f - <<'RULES'
table inet firewall {
  chain through {
    type filter hook forward priority 0; policy accept;
    ct state established,related accept
    oifname { "site2", "site3" } drop
  }
}
RULES
}

case ${1:-} in
  up) up "${2:?which prefix}" ;;
  cut) ip -n "$2-net" link set "$3" down ;;
  plug) ip -n "$2-net" link set "$3" up ;;
  part)
    ip netns exec "$2-$3" nft -f - <<RULES
table inet part {
  chain out { type filter hook output priority 0; ip daddr $(address "$4") drop; }
  chain in { type filter hook input priority 0; ip saddr $(address "$4") drop; }
}
RULES
    ;;
  down)
    for one in "${machines[@]}"; do ip netns del "${2:?which prefix}-${one%%:*}" 2>/dev/null || true; done
    ip netns del "$2-net" 2>/dev/null || true ;;
  *) sed -n '2,/^set/p' "$0" | grep '^#' >&2; exit 2 ;;
esac

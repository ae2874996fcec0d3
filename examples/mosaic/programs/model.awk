# One brightness for every tile that explains all the differences best: each tile in turn moves
# towards what its neighbours and the differences say of it (Jacobi's method, damped).
# Reads lines of fit.awk; makes lines "tile correction". The corrections add up to zero.

{ a[NR] = $1; b[NR] = $2; d[NR] = $3; weight[NR] = $4; level[$1] = level[$2] = 0 }

END {
    for (round = 1; round <= 5000; round++) {
        for (t in level) pull[t] = total[t] = 0
        for (k = 1; k <= NR; k++) {
            pull[a[k]] += weight[k] * (level[b[k]] + d[k]); total[a[k]] += weight[k]
            pull[b[k]] += weight[k] * (level[a[k]] - d[k]); total[b[k]] += weight[k]
        }
        moved = 0
        for (t in level) {
            change = 0.7 * (pull[t] / total[t] - level[t]); level[t] += change
            if (change < 0) change = -change
            if (change > moved) moved = change
        }
        if (moved < 0.0001) break
    }
    for (t in level) { sum += level[t]; count++ }
    for (t in level) printf "%s %.3f\n", t, sum / count - level[t] | "sort"
    close("sort")
    printf "%d tiles, %d differences, %d rounds\n", count, NR, round > "/dev/stderr"
}

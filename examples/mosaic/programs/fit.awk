# How much brighter one tile is than its neighbour: the mean of their difference, taken five times,
# each time without what lies more than two standard deviations off (the edges of stars).
# Makes one line: tile, tile, difference, how many pixels it rests on.

FNR == 2 { a = $2; b = $3 }
FNR > 4  { for (i = 1; i <= NF; i++) if ($i) times[$i - 32768]++ }

END {
    low = -65536; high = 65536
    for (round = 0; round < 5; round++) {
        n = sum = squares = 0
        for (key in times) {
            value = key + 0
            if (value < low || value > high) continue
            n += times[key]; sum += value * times[key]; squares += value * value * times[key]
        }
        if (!n) { print "the tiles do not overlap" > "/dev/stderr"; exit 1 }
        mean = sum / n; spread = 2 * sqrt(squares / n - mean * mean) + 0.5
        low = mean - spread; high = mean + spread
    }
    printf "%s %s %.4f %d\n", a, b, mean, n
}

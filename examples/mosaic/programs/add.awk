# Puts all tiles into one picture; where several cover a pixel, their mean. Nothing is blended, so
# that a tile which is too bright or too dark shows.

FNR == 2 { x0 = $2; y0 = $3 }
FNR == 3 { if (x0 + $1 > wide) wide = x0 + $1; if (y0 + $2 > high) high = y0 + $2 }
FNR > 4  {
    at = (y0 + FNR - 5) * 100000 + x0 - 1
    for (i = 1; i <= NF; i++) if ($i) { sum[at + i] += $i; count[at + i]++ }
}

END {
    print "P2"
    print wide, high
    print 4095
    for (y = 0; y < high; y++) {
        line = ""
        for (x = 0; x < wide; x++) {
            at = y * 100000 + x
            line = line " " (at in count ? int(sum[at] / count[at] + 0.5) : 0)
        }
        print substr(line, 2)
    }
}

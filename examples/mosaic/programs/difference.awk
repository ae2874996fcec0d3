# Where two tiles overlap, the first minus the second. A P2 picture cannot be negative, so 32768 is
# added, and 0 means "no data". The comment names the tiles: "# r0c0 r0c1".

function tile(path) { sub(/.*\//, "", path); sub(/\.pgm$/, "", path); return path }

FNR == 1 { n++; name[n] = tile(FILENAME) }
FNR == 2 { x0[n] = $2; y0[n] = $3 }
FNR == 3 { wide[n] = $1; high[n] = $2 }
FNR > 4 && n == 1 { for (i = 1; i <= NF; i++) first[(y0[1] + FNR - 5) * 100000 + x0[1] + i - 1] = $i }
FNR == 4 && n == 2 {
    left = x0[2]; right = x0[1] + wide[1]; top = y0[2]; bottom = y0[1] + high[1]
    if (right > x0[2] + wide[2]) right = x0[2] + wide[2]
    if (bottom > y0[2] + high[2]) bottom = y0[2] + high[2]
    print "P2"
    print "# " name[1], name[2]
    print right - left, bottom - top
    print 65535
}
FNR > 4 && n == 2 && y0[2] + FNR - 5 < bottom {
    y = y0[2] + FNR - 5; line = ""
    for (x = left; x < right; x++) {
        a = first[y * 100000 + x]; b = $(x - x0[2] + 1)
        line = line " " (a && b ? a - b + 32768 : 0)
    }
    print substr(line, 2)
}

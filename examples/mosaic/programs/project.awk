# Turns one picture straight, onto the pixels that all tiles share; its comment becomes "# x0 y0".
# Each new pixel is the mean of nine places in the old picture, each between four old pixels.
# A pixel without data is 0.

FNR == 2 { x0 = $2; y0 = $3; size = $4; margin = $5; angle = $6 }
FNR == 3 { side = $1 }
FNR > 4  { for (i = 1; i <= NF; i++) old[(FNR - 5) * side + i - 1] = $i }

function between(a, b, i, j, at) {
    i = int(a); j = int(b)
    if (a < 0 || b < 0 || i >= side - 1 || j >= side - 1) return -1
    a -= i; b -= j; at = j * side + i
    return (old[at] * (1 - a) + old[at + 1] * a) * (1 - b) \
        + (old[at + side] * (1 - a) + old[at + side + 1] * a) * b
}

END {
    c = cos(angle); s = sin(angle); middle = (side - 1) / 2
    print "P2"
    print "# " x0, y0
    print size, size
    print 4095
    for (j = 0; j < size; j++) {
        line = ""
        for (i = 0; i < size; i++) {
            sum = count = 0
            for (k = 0; k < 9; k++) {
                x = i - size / 2 + (k % 3 - 1) / 3
                y = j - size / 2 + (int(k / 3) - 1) / 3
                value = between(c * x + s * y + middle, c * y - s * x + middle)
                if (value >= 0) { sum += value; count++ }
            }
            line = line " " (count ? int(sum / count + 0.5) : 0)
        }
        print substr(line, 2)
    }
}

# Are the tiles' edges visible? Compares two mosaics of the same tiles by the jumps in brightness from
# one pixel to the next where a tile begins or ends. Fails unless the second mosaic has less than a
# tenth of the first one's. Variable: size (of a tile).

FNR == 1 { n++ }
FNR > 3  { for (i = 1; i <= NF; i++) light[n, FNR - 4, i - 1] = $i }

# The mean step along one side of a tile, from the pixel before `at` to the one at it.
function step_at(n, at, from, across, k, one, sum, count) {
    sum = count = 0
    for (k = from; k < from + step; k++) {
        one = across ? light[n, k, at] - light[n, k, at - 1] : light[n, at, k] - light[n, at - 1, k]
        if (one > -200 && one < 200) { sum += one; count++ }    # else it is the edge of a star
    }
    return count ? sum / count : 0
}

# The same without what is smooth: the steps just before and just after it are taken off.
function jump(n, at, from, across, height) {
    height = step_at(n, at, from, across) \
        - (step_at(n, at - 1, from, across) + step_at(n, at + 1, from, across)) / 2
    return height < 0 ? -height : height
}

function seams(n, shift, k, j, sum, count) {
    sum = count = 0
    for (k = 0; k < 4; k++) for (j = 0; j < 4; j++) {
        if (k > 0) { sum += jump(n, k * step + shift, j * step, 1); count++ }
        if (k > 0) { sum += jump(n, k * step + shift, j * step, 0); count++ }
        if (k < 3) { sum += jump(n, k * step + size + shift, j * step, 1); count++ }
        if (k < 3) { sum += jump(n, k * step + size + shift, j * step, 0); count++ }
    }
    return sum / count
}

END {
    step = int(size * 3 / 4)
    before = seams(1, 0); after = seams(2, 0); elsewhere = seams(2, int(size / 10))
    printf "jump at a tile's edge, before correction: %.2f\n", before
    printf "jump at a tile's edge, after correction:  %.2f\n", after
    printf "jump elsewhere in the corrected picture:  %.2f\n", elsewhere
    if (after > before / 10) { print "the seams are still visible" > "/dev/stderr"; exit 1 }
}

# Takes one picture of a sky that exists only here: a spiral galaxy, some haze, some hundred stars.
# The camera is held a little crooked each time, and its brightness is off by another amount.
# Variables: row, col (which tile), size (its side in pixels).
# Makes a P2 picture whose comment says where the camera pointed: "# x0 y0 size margin angle".

# Every awk has its own random numbers; these are the same in all of them.
function dice() { seed = (seed * 16807) % 2147483647; return seed / 2147483647 }
function shake(n, k) { seed = n; for (k = 0; k < 5; k++) dice() }

function sky(x, y, u, v, r, angle, arms) {      # in parts of the whole mosaic, 0 to 1
    u = (x - 0.53) * 0.94 + (y - 0.48) * 0.34
    v = ((y - 0.48) * 0.94 - (x - 0.53) * 0.34) * 1.7
    r = sqrt(u * u + v * v) + 0.0001
    angle = atan2(v, u)
    arms = 1 + 0.85 * cos(2 * angle - 9 * log(r))
    return 240 + 60 * y + 1500 * exp(-r / 0.11) * arms + 2300 * exp(-(r / 0.035) * (r / 0.035)) \
        + 130 * exp(-((x - 0.2) * (x - 0.2) + (y - 0.8) * (y - 0.8)) / 0.03) \
        * (1 + sin(23 * x + 9 * sin(7 * y)) / 2)
}

BEGIN {
    step = int(size * 3 / 4); whole = 3 * step + size
    x0 = col * step; y0 = row * step
    margin = int(size / 16) + 4; side = size + 2 * margin
    shake(1000 + 37 * row + col * 11)
    angle = (dice() - 0.5) * 0.08; offset = (dice() - 0.5) * 320
    c = cos(angle); s = sin(angle); middle = (side - 1) / 2

    shake(77)
    width = 1.5 * whole / 780; if (width < 0.8) width = 0.8
    reach = int(4 * width) + 1
    for (k = 0; k < 420; k++) {
        x = dice() * whole - x0 - size / 2; y = dice() * whole - y0 - size / 2
        light = 160 / (dice() + 0.035)
        a = c * x + s * y + middle; b = c * y - s * x + middle
        if (a < -reach || b < -reach || a > side + reach || b > side + reach) continue
        for (j = int(b) - reach; j <= b + reach; j++)
            for (i = int(a) - reach; i <= a + reach; i++)
                star[j * side + i] += light * exp(-((i - a) * (i - a) + (j - b) * (j - b)) \
                    / (2 * width * width))
    }

    shake(5000 + 41 * row + col)
    print "P2"
    print "# " x0, y0, size, margin, angle
    print side, side
    print 4095
    for (j = 0; j < side; j++) {
        line = ""
        for (i = 0; i < side; i++) {
            value = offset + 10 * (dice() - 0.5)
            for (k = 0; k < 4; k++) {           # a pixel has an extent: look in four places
                a = i - middle + (k % 2 ? 0.25 : -0.25); b = j - middle + (k > 1 ? 0.25 : -0.25)
                value += sky((c * a - s * b + x0 + size / 2) / whole, \
                    (s * a + c * b + y0 + size / 2) / whole) / 4
            }
            if ((j * side + i) in star) value += star[j * side + i]
            value = int(value + 0.5); if (value < 1) value = 1; if (value > 4095) value = 4095
            line = line " " value
        }
        print substr(line, 2)
    }
}

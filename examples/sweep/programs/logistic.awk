# Follows x -> r x (1 - x) for `steps` steps and makes one line: r, x0, the Lyapunov exponent (above
# zero: chaos), the mean of x, and how many different values x ends up with (64 at most are told).

BEGIN {
    start = x
    for (k = 0; k < 1000; k++) x = r * x * (1 - x)          # let it settle
    for (k = 0; k < steps; k++) {
        x = r * x * (1 - x); mean += x
        slope = r * (1 - 2 * x); if (slope < 0) slope = -slope
        chaos += log(slope + 1e-300)
        if (k < 64 && !((key = sprintf("%.6f", x)) in seen)) { seen[key]; values++ }
    }
    printf "%s %s %.6f %.6f %d\n", r, start, chaos / steps, mean / steps, values
}

# For every r: what its starts say together.

NR > 1 {
    if (!($1 in n)) order[++count] = $1
    n[$1]++; sum[$1] += $3
    if ($5 > most[$1]) most[$1] = $5
}

END {
    for (k = 1; k <= count; k++) {
        r = order[k]; mean = sum[r] / n[r]
        if (mean > 0.01) kind = "chaos"
        else if (most[r] == 1) kind = "comes to rest"
        else kind = "repeats after " most[r] (most[r] < 64 ? " steps" : " steps or more")
        printf "r = %-7s exponent %9.4f  %s\n", r, mean, kind
    }
}

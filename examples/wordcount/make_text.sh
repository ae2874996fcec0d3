#!/bin/sh
# Writes a text that means nothing: make_text.sh [SENTENCES]. The same number, the same text.
exec awk -v sentences="${1:-1500}" '
function dice(n) { seed = (seed * 16807) % 2147483647; return 1 + int(seed / 2147483647 * n) }
BEGIN {
    seed = 20011
    whos = split("the lighthouse keeper|a patient machine|my neighbour|the oldest river|every second tram|" \
        "a grey heron|the night shift|nobody in particular|the smallest planet|an honest clock", who, "|")
    does = split("counts|forgets|repairs|follows|waits for|sings to|carries|measures|buries|paints", did, "|")
    whats = split("the bread|a stone bridge|seven letters|the last apple|its own shadow|a borrowed ladder|" \
        "the quiet harbour|old arithmetic|a paper boat|the long way home", what, "|")
    whens = split("in the rain|before noon|without a word|on a tuesday|as if it mattered|twice|" \
        "under the stairs|for the third time|and is glad|until the lamps go out", how, "|")
    for (k = 1; k <= sentences; k++)
        print who[dice(whos)], did[dice(does)], what[dice(whats)], how[dice(whens)] "."
}'

# Mean difference of two images where they overlap: lines "x value".
NR == FNR { first[$1] = $2; next }
$1 in first { sum += $2 - first[$1]; n++ }
END { print sum / n }

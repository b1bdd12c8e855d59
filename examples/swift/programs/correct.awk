NR == FNR { above[$1] = $2; next }
{ print $1, $2 - above[i] }

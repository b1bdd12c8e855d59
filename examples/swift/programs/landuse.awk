{ for (i = 1; i <= length($0); i++) count[substr($0, i, 1)]++ }
END { for (kind in count) print kind, count[kind] }

// 200 tasks: 99 numbers are squared and doubled, all are added up, and the sum is checked.
process square {
    input:
    val i

    output:
    path "square_${i}.txt"

    script:
    "echo \$(( ${i} * ${i} )) > square_${i}.txt"
}

process twice {
    input:
    path number

    output:
    path "twice_${number}"

    script:
    "read n < ${number}; echo \$(( n * 2 )) > twice_${number}"
}

process report {
    input:
    path numbers

    output:
    path "report.txt"

    script:
    "cat ${numbers} | awk '{ sum += \$1 } END { print sum }' > report.txt"
}

process check {
    input:
    path report
    val n

    output:
    stdout

    script:
    expected = (1..n).sum { 2 * it * it }
    "read sum < ${report}; [ \$sum = ${expected} ] && echo \$sum"
}

workflow {
    n = 99
    Channel.of(1..n) | square | twice | collect | report
    check(report.out, n).view { "the sum of 2 i^2, i up to ${n}: ${it.trim()}" }
}

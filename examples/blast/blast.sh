#!/bin/bash
# BLAST: split the queries, search each part in a database, merge the hits (CloudBLAST's pattern).
#
#   amfs shell blast.sh GENOME QUERIES HITS [PARTS]
#
# GENOME and QUERIES are FASTA, HITS is written: blastn's table (-outfmt 6). All are ordinary files. Needs makeblastdb and blastn (Debian: ncbi-blast+).
set -e
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
PATH=$here/bin:$PATH
command -v makeblastdb blastn >/dev/null || { echo "install NCBI BLAST+ first (Debian: apt-get install ncbi-blast+)" >&2; exit 2; }
genome=$1 queries=$2 hits=$3 parts=${4:-8}

mkdir db queries hits
cp "$genome" db/genome.fa
makeblastdb -in db/genome.fa -dbtype nucl -out db/genome >/dev/null
AMFS_multicast db

SplitFasta "$queries" "$parts" queries
for file in $(ls queries); do
    AMFS_queue --data-arg 2 blastn -query "queries/$file" -db db/genome -outfmt 6 -max_target_seqs 1 -max_hsps 1 -out "hits/$file"
done
AMFS_execute

AMFS_gather hits
cat hits/* | sort >"$hits"

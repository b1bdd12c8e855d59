"""Guesses at formats: commands only if they look like commands, documents also by keys that come late."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from amfs.errors import WorkflowError
from amfs.translate.detect import load, peek, read_stream
from amfs.translate.sniff import HEAD, Undetected, sniff, sniff_document

COMMANDS = [
    "awk '{print $1}' x > y",
    'for i in 1 2; do echo $i; done',
    'if [ -e a ]; then b; fi',
    'case $x in a) b;; esac',
    'FOO=bar prog',
    '(cd x && make)',
    '{ echo a; }',
    '[ -e x ]',
    '[[ -e x ]] && y',
    '! grep x y',
    ': > file',
    '. ./env.sh',
    'module load gcc && x',
    'python3 -c "import os; print(1)"',
    'curl https://a/b',
    'wget http://x/y -O z',
    'sed s/a/b/ <in >out',
    '<in sort >out',
    'cat <<< word',
    'docker run -v a:b c',
    'rsync a host:b',
    'nice -n 5 x',
    'env A=1 x',
    '$HOME/bin/x',
    '"$PROG" a',
    "'my prog' a",
    '~/x',
    'gcc -c x.c -o x.o',
    'R CMD BATCH x.R',
    'do-it x',
    'import_data x',
    'from-x',
    'class-x',
    'int2str a',
    'return-value',
    './run.sh 1 > out.1 2>&1',
    '/usr/bin/time -v ./a.out < in',
    'echo "a: b"',
    'echo $((1 << 2))',
    'sleep 1; echo x',
    'convert a.png -resize 50% b.png',
    "perl -ne 'print if /x/' f",
    'while read x; do echo $x; done < f',
    'blastn -query a.fa -db nt -out b.out',
    'java -jar x.jar a=b',
    "ssh host 'ls; pwd'",
    'test -f x || touch x',
    'a=1; b=2; prog $a $b',
    'until test -e x; do sleep 1; done',
    "bash -c 'for i in 1; do x; done'",
    'python3 run.py --config={"a": 1}',
    'true',
    'p a b -if a -of b',
]

OTHERS = [
    'a: 1\nb: 2\n',
    'replicas: []\n',
    '- a\n- b\n',
    'name: CI\non: push\n',
    'transformations:\n  - name: x\n',
    '# c\n\nservices:\n  web:\n    image: x\n',
    '"a": 1\n',
    '{\n"a": 1}\n',
    '[]\n',
    '["a"]\n',
    '[\n  {"a":1}\n]\n',
    '[[1,2],[3]]\n',
    "import os\nos.system('x')\n",
    'def f(x):\n    return x\n',
    'x = 5\nprint(x)\n',
    'from a.b import c\n',
    'if x == 1:\n\tfoo()\nelse:\n\tbar()\n',
    '#include <stdio.h>\nint main(void) {\n\treturn 0;\n}\n',
    'int main()\n{\n    puts("a");\n}\n',
    'public class A {\n  int x;\n}\n',
    'package main\n\nfunc main() {\n\tx()\n}\n',
    'const x = 1;\nfunction f() {\n  return x;\n}\n',
    'library(x)\ny <- 1\n',
    'use strict;\nmy $x = 1;\n',
    'set -e\ncd x\n',
    'for i in 1 2\ndo\n  echo $i\ndone\n',
    'cat <<EOF\nrm -rf x\nEOF\n',
    'f() {\n echo\n}\nf\n',
    'echo a\nif [ -e x ]\nthen\n rm y\nfi\n',
    'pegasus.catalog.replica=YAML\n',
    '[a]\nx=1\n',
    'rule all:\n    input: "x"\n    shell: "y"\n',
    'JOB A a.sub\nPARENT A CHILD B\n',
    'process foo {\n  input:\n  x\n}\n',
    'version 1.0\n\ntask x {\n  command {\n a\n }\n}\n',
    '<html><body>\n',
    '<?xml?>\n',
    'f.a file:///x/f.a site="local"\n',
    'f.a gsiftp://x/f.a pool="local"\n',
    'tr x {\n site local {\n  pfn "/x"\n }\n}\n',
    '>a b|c\nACGTACGTACGTACGT\n',
    '1 2\n3 4\n',
    'SELECT * FROM x;\n',
    'function f {\n echo\n}\n',
    'cwlVersion: v1.0\nclass: Workflow\n',
    '{"$schema": "x",\n "properties": {"workflow": {"type": "object"}}}\n',
    'x = [1,\n 2]\n',
]

MAKEFLOWS = [
    'out: in\n\tcp in out\n',
    'out: in\n    cp in out\n',
    'X=1\nY=a b\nout: in\n  cp $X out\n',
    'a: \\\n  b \\\n  c\n\tp\n',
    'a: b\n@CATEGORY=x\n\tp\n',
    '$(OUT): $(IN) a->b\n    cp $(IN) x\n',
    ': in\n\techo x\n',
    '"A B": \'c d\'\n   cp x y\n',
    'a -> b : c -> d\n   cp x y\n',
    'CURL=/usr/bin/curl\nURL="http://x/y"\n\na.gif: b.jpg c.jpg\n    LOCAL $(CURL) -o x\n',
    '.MAKEFLOW CATEGORY x\na: b\n  c\n',
    'A = b c\nout : in\n\tx\n',
    'export X\nout:in\n  p\n',
]


@pytest.mark.parametrize("line", COMMANDS)
def test_what_a_shell_can_run_is_a_command(line: str) -> None:
    assert sniff_document(f"{line}\n".encode()) == ""
    assert sniff(f"{line}\n") == "commands"
    assert sniff(f"true\n{line}\n") == "commands"


@pytest.mark.parametrize("text", OTHERS)
def test_what_is_no_list_of_commands_is_refused(text: str) -> None:
    """Each of these was once taken for commands, or would be executed line by line if it were."""
    assert sniff_document(text.encode()) == ""
    with pytest.raises(Undetected, match=r"looks like .*--format commands"):
        sniff(text)


@pytest.mark.parametrize("text", MAKEFLOWS)
def test_rules_make_a_makeflow(text: str) -> None:
    assert sniff_document(text.encode()) == "makeflow"
    assert sniff_document(text.replace("\n", "\r\n").encode()) == "makeflow"


@pytest.mark.parametrize("name", ["Makeflow", "makeflow.big", "x.makeflow", "x.mf", "x.jx"])
@pytest.mark.parametrize("text", ["touch here\n", "a: b\n", "X=1\n", ""])
def test_a_file_whose_name_says_makeflow_is_no_list_of_commands(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    try:
        assert load(tmp_path / name).tasks == []
    except WorkflowError as error:
        assert text
        assert "looks like" not in str(error)


@pytest.mark.parametrize("name", ["catalog.yml", "rc.YAML", "x.json", "x.dax", "x.py", "README.md", "Makefile", "pegasus.properties"])
@pytest.mark.parametrize("text", ["", "# nothing\n", "touch here\n"])
def test_a_file_whose_name_says_otherwise_is_no_list_of_commands(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(WorkflowError, match=rf"called {name} is no list of commands"):
        load(tmp_path / name)
    assert len(load(tmp_path / name, format="commands").tasks) == text.count("touch")


LONG = "x" * (HEAD + 100)


@pytest.mark.parametrize(
    ("text", "format"),
    [
        (f'{{"description": "{LONG}", "workflow": {{"tasks": []}}}}', "wfformat"),
        (f'{{\n"description": "{LONG}",\n"schemaVersion": "1.5"}}\n', "wfformat"),
        (f'{{"x": {{"workflow": {{}}}},\n "y": "{LONG}",\n "rules": []}}', "makeflow"),
        (f'{{"define": "{LONG}", "rules": [ {{}} for x in range(3) ]}}', "makeflow"),
        (f"x: {LONG}\npegasus: '5.0'\n", "pegasus"),
        ("# comment\n" * HEAD + "jobs:\n- id: a\n", "pegasus"),
        (f"<!-- {LONG} --><adag>", "dax"),
        ("X=1\n" * HEAD + "a: b\n\tc\n", "makeflow"),
        ("# comment\n" * HEAD + "a: b\n  c\n", "makeflow"),
        (f'{{"properties": {{"workflow": {{}}}},\n "y": "{LONG}"}}', ""),
    ],
)
def test_keys_may_come_late(text: str, format: str) -> None:
    found, rest = peek(io.BytesIO(text.encode()))  # type: ignore[arg-type]
    assert found == format
    assert rest.read() == text.encode()


@pytest.mark.parametrize("line", ["out: in", "key: value", "a.b:", "- x: y"])
def test_a_growing_list_has_no_rules_among_its_commands(line: str) -> None:
    faults: list[object] = []
    tasks = list(read_stream(io.BytesIO(f"X=1 true\n{line}\ntrue\n".encode()), on_fault=faults.append))
    assert len(faults) == 1
    assert len(tasks) in (0, 2)

"""Catalogs of Pegasus workflows, inline and beside: which program is taken, where inputs are, and what is told of the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pegasus_documents import job, only, place, read, remarks, replica, workflow


@pytest.mark.parametrize(
    ("places", "program"),
    [
        ([place("a", "/a/p"), place("local", "file:///l/p")], "/l/p"),
        ([place("a", "/a/p", type="stageable"), place("b", "/b/p", type="installed")], "/b/p"),
        ([place("a", "https://x/p")], "prog"),
        ([place("a", "bin/p")], "/nowhere/bin/p"),
        ([place("a", "file://${PWD}/p")], "/nowhere/p"),
        ([place("a", "python3")], "python3"),
        ([], "prog"),
    ],
)
def test_which_program_is_taken(places: list[dict[str, Any]], program: str) -> None:
    catalog = {"transformations": [{"name": "prog", "sites": places}]}
    assert only(read(workflow(job(), transformationCatalog=catalog))).argv == (program,)


def test_namespace_and_version_tell_transformations_apart() -> None:
    catalog = {
        "transformations": [
            {"namespace": "n", "name": "prog", "version": "1.0", "sites": [place("s", "/one")]},
            {"namespace": "n", "name": "prog", "version": "2.0", "sites": [place("s", "/two")]},
        ]
    }
    jobs = [job("A", namespace="n", version="2.0"), job("B", namespace="n", version="1.0"), job("C"), job("D", namespace="n", version=1.0)]
    assert [task.argv[0] for task in read(workflow(*jobs, transformationCatalog=catalog)).tasks] == ["/two", "/one", "prog", "/one"]


def test_hints_choose_program_and_site() -> None:
    catalog = {"transformations": [{"name": "prog", "sites": [place("local", "/l"), place("far", "/f")]}]}
    jobs = [job("A", profiles={"hints": {"execution.site": "far"}}), job("B", profiles={"hints": {"pfn": "/mine"}}), job("C")]
    assert [task.argv[0] for task in read(workflow(*jobs, transformationCatalog=catalog)).tasks] == ["/f", "/mine", "/l"]


def test_required_programs_that_path_does_not_find_are_staged() -> None:
    catalog = {
        "transformations": [
            {"name": "prog", "requires": ["n::helper:1", "gone"], "sites": [place("s", "/p")]},
            {"namespace": "n", "name": "helper", "version": "1", "sites": [place("s", "/opt/h/helper-1.sh", type="stageable")]},
        ]
    }
    reader = read(workflow(job(), transformationCatalog=catalog))
    assert only(reader).inputs == ("helper",)
    assert reader.paths == {"helper": "/opt/h/helper-1.sh"}
    assert "requires 'gone'" in remarks(reader)


def test_containers_are_told() -> None:
    catalog = {
        "transformations": [{"name": "prog", "sites": [place("s", "/p", container="box")]}],
        "containers": [{"name": "box", "type": "docker", "image": "docker:///x:1"}],
    }
    assert "container 'box' (the docker image docker:///x:1) is not used" in remarks(read(workflow(job(), transformationCatalog=catalog)))


def test_replicas_of_what_is_read_and_not_made() -> None:
    uses = [{"lfn": name, "type": "input"} for name in ("a", "b", "c", "d")] + [{"lfn": "o", "type": "output"}]
    replicas = [
        replica("a", ("far", "gsiftp://x/a"), ("local", "file:///data/a%20b")),
        replica("b", ("far", "http://x/b")),
        replica("c", ("far", "http://x/c"), ("near", "/data/c")),
        replica("o", ("local", "/data/o")),
        replica("unused", ("local", "/data/u")),
    ]
    reader = read(workflow(job(uses=uses), replicaCatalog={"replicas": replicas}))
    assert reader.paths == {"a": "/data/a b", "b": "http://x/b", "c": "/data/c"}


def test_patterns_of_replicas() -> None:
    uses = [{"lfn": name, "type": "input"} for name in ("alpha.csv", "alpha.txt", "alphaxcsv", "f7.fits")]
    replicas = [
        replica(r"alpha\.(csv|txt)", ("local", "file:///in/[1]/[0]"), regex=True),
        replica(r"f(\d+)\.fits", ("local", "/sky/[1]/[2]/[0]"), regex=True),
    ]
    reader = read(workflow(job(uses=uses), replicaCatalog={"replicas": replicas}))
    assert reader.paths == {"alpha.csv": "/in/csv/alpha.csv", "alpha.txt": "/in/txt/alpha.txt", "f7.fits": "/sky/7/[2]/f7.fits"}


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|a)*b", "a*a*a*a*a*b", "(x|y)(x|y)(x|y)(x|y)(x|y)(x|y)(x|y)z", "a?a?a?a?a?a?a?aaaaaaa"])
def test_patterns_that_might_never_end_are_not_tried(pattern: str) -> None:
    uses = [{"lfn": "a" * 200, "type": "input"}]
    reader = read(workflow(job(uses=uses), replicaCatalog={"replicas": [replica(pattern, ("local", "/x"), regex=True)]}))
    assert "repeats too much to be tried safely" in remarks(reader)
    assert reader.paths == {}


def test_a_pattern_that_is_none_is_a_fault() -> None:
    reader = read(workflow(job(), replicaCatalog={"replicas": [replica("a[", ("local", "/x"), regex=True)]}))
    assert "is no regular expression" in reader.faults[0].message


def test_catalogs_beside_the_workflow(tmp_path: Path) -> None:
    (tmp_path / "replicas.yml").write_text("pegasus: '5.0'\nreplicas:\n- lfn: a\n  pfns: [{site: local, pfn: data/a}]\n")
    (tmp_path / "transformations.yml").write_text("transformations:\n- name: prog\n  sites: [{name: s, pfn: /opt/prog}]\n")
    (tmp_path / "sites.yml").write_text("sites:\n- name: s\n  profiles: {env: {FROM: site}}\n")
    reader = read(workflow(job(uses=[{"lfn": "a", "type": "input"}])), str(tmp_path / "w.yml"))
    task = only(reader)
    assert task.argv == ("/opt/prog",)
    assert task.env == ("FROM=site",)
    assert reader.paths == {"a": str(tmp_path / "data" / "a")}


def test_properties_name_catalogs_in_their_old_forms(tmp_path: Path) -> None:
    (tmp_path / "pegasus.properties").write_text(
        "# comment\npegasus.catalog.replica = File\npegasus.catalog.replica.file: conf/rc.txt\n"
        "pegasus.catalog.transformation=Text\npegasus.catalog.transformation.file=${PWD}/conf/tc.txt\n"
    )
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "rc.txt").write_text('# lfn pfn\na gsiftp://x/a site="far"\na file:///data/a site="local"\n"b c" /data/bc\n')
    (tmp_path / "conf" / "tc.txt").write_text(
        'tr n::prog:1.0 {\n  profile env "A" "1"\n  site s {\n    pfn "/opt/prog"\n    type "STAGEABLE"\n    arch "x86_64"\n'
        '    profile env "B" "2"\n  }\n}\n'
    )
    uses = [{"lfn": "a", "type": "input"}, {"lfn": "b c", "type": "input"}]
    reader = read(workflow(job(namespace="n", version="1.0", uses=uses)), str(tmp_path / "w.yml"))
    task = only(reader)
    assert task.argv == ("/opt/prog",)
    assert sorted(task.env) == ["A=1", "B=2"]
    assert reader.paths == {"a": "/data/a", "b c": "/data/bc"}


def test_inline_catalogs_go_before_those_beside(tmp_path: Path) -> None:
    (tmp_path / "pegasus.properties").write_text("pegasus.catalog.transformation.file=tc.yml\n")
    (tmp_path / "tc.yml").write_text(
        "transformations:\n- {name: prog, sites: [{name: s, pfn: /beside}]}\n- {name: other, sites: [{name: s, pfn: /b}]}\n"
    )
    inline = {"transformations": [{"name": "prog", "sites": [place("s", "/inline")]}]}
    reader = read(workflow(job("A"), job("B", "other"), transformationCatalog=inline), str(tmp_path / "w.yml"))
    assert [task.argv[0] for task in reader.tasks] == ["/inline", "/b"]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("replicas.yml", "replicas: [\n", "replicas.yml:2: not valid YAML"),
        ("replicas.yml", "justone\n", "replicas.yml:1: a replica is written LFN PFN"),
        ("transformations.yml", 'tr a {\n  what is this\n}\n', "transformations.yml:2: this is no line of a transformation catalog"),
    ],
)
def test_broken_catalogs_beside(tmp_path: Path, name: str, text: str, words: str) -> None:
    (tmp_path / name).write_text(text)
    reader = read(workflow(job()), str(tmp_path / "w.yml"))
    assert words in reader.faults[0].message


def test_a_named_catalog_that_is_not_there_is_told(tmp_path: Path) -> None:
    (tmp_path / "pegasus.properties").write_text("pegasus.catalog.replica.file=gone.yml\n")
    reader = read(workflow(job()), str(tmp_path / "w.yml"))
    assert reader.faults == []
    assert f"the replica catalog {tmp_path}/gone.yml does not exist" in remarks(reader)


def test_a_reference_to_the_network_is_told(tmp_path: Path) -> None:
    assert "nothing is fetched" in remarks(read(workflow(job(), siteCatalog={"$ref": "https://example.org/sites"})))

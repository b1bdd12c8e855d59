"""Which format a text is in, by its content; its file's name only says what it is not. Pure.

Whole documents are recognised by marks that only they have; any other text is a list of lines. A list counts as commands only if it looks
like commands, because amfs would execute it.
"""

from __future__ import annotations

import posixpath
import re

import msgspec

from amfs.patterns import pattern
from amfs.translate import filelist, tasklist

_SAMPLE_LINES = 50

#: Bytes at the beginning of a text by which most documents are known. Of one that may be a document more is read.
HEAD = 1 << 16


class Undetected(ValueError):
    """No format fits; ``str`` says what was looked for."""


# ── whole documents ────────────────────────────────────────────────────────────────────────────────

_XML = pattern(rb"\s*+<")
_ADAG = pattern(rb"<([\w.-]+:)?adag[\s/>]")
_PEGASUS = pattern(rb"""^["']?(x-)?pegasus["']?[ \t]*:(\s|\Z)|^jobs[ \t]*:[ \t]*(#.*)?$""", re.MULTILINE)

#: Lines that only Swift scripts have: definitions, loops over ranges, mapped files, typed assignments.
_SWIFT = pattern(
    rb"""^[ \t]*(?:(?:@\w+(?:=\S+)?\s+)*app[ \t]*\([^()\n]*\)[ \t]*\w+[ \t]*\(|app[ \t]+\w+[ \t]*\([^()\n]*\)[ \t]*\{
    |\((?:\s*[\w<>]+[ \t]+\w+(?:\[\w*\])*\s*,?)+\)[ \t]*\w+[ \t]*\([^()\n]*\)\s*\{
    |foreach[ \t]+\w+(?:[ \t]*,[ \t]*\w+)?[ \t]+in[ \t(\[]|type[ \t]+\w+[ \t]*(?:;|\{)
    |(?:global[ \t]+const[ \t]+)?file(?:[ \t]*\[\w*\])*[ \t]+\w+(?:\[\w*\])*
    [ \t]*(?:=[^=\n].*;|<[^\n]*>.*;|;)
    |import[ \t]+(?:io|sys|files|string|math|stats|assert|unix|python|location|random|blob|matrix)[ \t]*;
    |(?:string|boolean|external)(?:[ \t]*\[\w*\])*[ \t]+\w+(?:\[\w*\])*[ \t]*(?:=[^=\n].*)?;
    |(?:int|float)(?:[ \t]*\[\w*\])+[ \t]+\w+[ \t]*(?:=[^=\n].*)?;
    |(?:trace|tracef|printf)[ \t]*\(.*\)[ \t]*;)""".replace(b"\n    ", b""),
    re.MULTILINE,
)
_JSON = pattern(rb"(?:\s|#[^\n]*\n)*+\{")  # JX may begin with a comment
_TOKEN = pattern(rb'"(?P<text>(?:[^"\\]|\\.)*+)"(?P<colon>\s*:)?|[{\[]|(?P<close>[}\]])', re.DOTALL)
_KEYS = {"schemaVersion": "wfformat", "wfcommons": "wfformat", "workflow": "wfformat", "pegasus": "pegasus", "x-pegasus": "pegasus",
         "rules": "makeflow"}  # fmt: skip
_LINE_TYPE = pattern(rb'"type"\s*:\s*"(task|file|workflow)"')

#: A rule of a Makeflow and the beginning of its command, indented by a tab, or by blanks where nothing looks like YAML.
_BETWEEN = rb"(?:[ \t]*(?:#[^\n]*)?\n|@[^\n]*\n)*+"
_RULE = pattern(rb"^(?:[^\s:#][^\t\n:]*+)?:(?![=/])[^\n]*\n" + _BETWEEN + rb"\t[ \t]*[^\s#]", re.MULTILINE)
_RULE_BLANKS = pattern(
    rb"""^(?=[^\s#@-])(?:->|[^\s:=(){}\[\];|&<>#$`"']|\$[({]?\w+[)}]?|'[^'\n]*'|"[^"\n]*"|\\.|[ \t])++:(?![=/])(?:->|[^\n|>])*\n"""
    + _BETWEEN + rb"[ ][ \t]*[^\s#]", re.MULTILINE)  # fmt: skip
_PREAMBLE = pattern(
    rb"(?:[ \t]*(?:#[^\n]*)?\n|(?:export[ \t]++)?[A-Za-z_]\w*+[ \t]*+\+?=[^\n]*\n|export[ \t][^\n:]*\n|\.[A-Z]+[ \t][^\n]*\n)*+"
)
_YAML_INSIDE = pattern(rb"""^[ \t]+(?:-[ \t]|["']?[\w.$/-]+["']?:(?:\s|\Z))|^(?:-[ \t]|---)""", re.MULTILINE)


def sniff_document(head: bytes, *, whole: bool = True) -> str:
    """The format of the document that begins with ``head``; '' if it is a list of lines, or nothing known. ``whole``: it ends there."""
    text = head.removeprefix(b"\xef\xbb\xbf")
    if b"\r" in text:
        text = text.replace(b"\r", b"")
    if text.lstrip().startswith(tasklist.PRAGMA.encode()):
        return ""  # a task list that says that it is one
    if _XML.match(text):
        return "dax" if _ADAG.search(text) else ""
    if start := _JSON.match(text):
        return _sniff_json(text, start.end() - 1, whole)
    if _SWIFT.search(text):
        return "swift"
    if _PEGASUS.search(text):
        return "pegasus"
    lines = text[:HEAD].decode("utf-8", "replace").split("\n", 4 * _SAMPLE_LINES)[: 4 * _SAMPLE_LINES]
    if any(line.startswith(tasklist.PRAGMA) for line in lines) or _is_code(lines):
        return ""
    if _RULE.search(text):
        return "makeflow"
    first = _PREAMBLE.match(text)
    begins = first is not None and _RULE_BLANKS.match(text, first.end())
    return "makeflow" if begins and not _YAML_INSIDE.search(text) else ""


def _sniff_json(text: bytes, at: int, whole: bool) -> str:
    """By the keys of the outermost object, which may come late."""
    end = text.find(b"\n", at)
    line = text[at:end].rstrip() if end >= 0 else text[at:].rstrip()
    if line.endswith(b"}") and (keys := _outer_keys(line)):
        return next((_KEYS[key] for key in keys if key in _KEYS), "")  # else JSON Lines
    if line.endswith(b"}") and _LINE_TYPE.search(line):
        return ""  # JSON Lines with a fault
    depth = 0
    for token in _TOKEN.finditer(text, at, at + HEAD):
        if token["colon"]:
            if depth == 1 and (found := _KEYS.get(token["text"].decode("utf-8", "replace"), "")):
                return found
        elif token["text"] is None:
            depth += -1 if token["close"] else 1
            if not depth:
                break
    if not whole:
        return ""
    keys = _outer_keys(memoryview(text)[at:])
    if keys:
        return next((_KEYS[key] for key in keys if key in _KEYS), "")
    late = re.search(rb'"(workflow|pegasus|x-pegasus|rules)"\s*:\s*["\[{]', text)  # not valid JSON: its reader says where
    return _KEYS[late[1].decode()] if late else ""


def _outer_keys(text: bytes | memoryview) -> list[str]:
    try:
        return list(msgspec.json.decode(text, type=dict[str, msgspec.Raw]))
    except (msgspec.DecodeError, ValueError, RecursionError):
        return []


_ASSIGNMENT = rb"""export(?:[ \t]+\w+)+|(?:export[ \t]+)?[A-Za-z_]\w*+(?:\+?=(?:'[^'\n]*'|"[^"\n]*"|\$[({]\w+[)}]|[^\s'";|&()<>])*+
    |[ \t]+\+?=(?![^\n]*[|;&])[^\n]*)""".replace(b"\n    ", b"")

#: Blank lines, comments and lines that set variables, then a line, and what ends it.
_FIRST_LINE = pattern(
    rb"\A(?:\xef\xbb\xbf)?(?:[ \t\r]*(?:#[^\n]*)?\n|" + _ASSIGNMENT + rb"[ \t\r]*\n|\.(?:MAKEFLOW|SIZE|RESOURCE)[ \t][^\n]*\n)*+"
    rb"(?P<line>[^\n]*)(?P<rest>\n?)"
)

#: How documents begin: XML, a brace without its partner, YAML, a rule of a Makeflow, a statement of Swift.
_LIKE_DOCUMENT = pattern(
    rb"\s*<|\s*\{(?!.*\}\s*\Z)|---\s*\Z|%|[\w\"'.$/*+-][^\n:=|;&]*:(\s|\Z)|//|/\*"
    rb"|(?:app|type|import|global|int|float|string|boolean|file|external|foreach|iterate|main|@\w+|\()(?![\w-])[^|&$]*[;{]\s*\Z",
    re.DOTALL,
)


def may_be_document(head: bytes) -> bool:
    """Is it worth while to read on, to know whether this is a document? Not if its first line could be a task of a list."""
    first = _FIRST_LINE.match(head)
    return first is not None and (not first["rest"] or _LIKE_DOCUMENT.match(first["line"]) is not None)


def format_of_name(source: str) -> str:
    """The format that a file's name promises; only what nobody calls anything else."""
    if source.endswith(".swift"):
        return "swift"
    return "makeflow" if _MAKEFLOW_NAME.search(posixpath.basename(source)) else ""


_MAKEFLOW_NAME = pattern(r"\Amakeflow(\.[\w-]+)?\Z|\.(makeflow|mf|jx)\Z", re.IGNORECASE)

#: Endings of what is no list of commands, whatever its lines look like.
_NO_COMMANDS_NAME = pattern(
    r"(?:\.(?:ya?ml|json|xml|xsd|dax|py|ipynb|pl|rb|r|jl|c|h|cc|cpp|cxx|hpp|java|js|ts|go|rs|f|f90|f95|m|sql|tex|html?|css|md|rst|cwl|wdl"
    r"|nf|smk|ga|toml|ini|cfg|conf|properties|csv|tsv|mk|dag|sub|rc|tc)|\A(?:snakefile|makefile|dockerfile))\Z", re.IGNORECASE)  # fmt: skip


# ── lists of lines ─────────────────────────────────────────────────────────────────────────────────

#: Signs that no list of commands has on any of its first lines.
_SIGNS = [(name, pattern(text)) for name, text in (
    ("JSON", r"""[\[{]\s*"|"[^"]*"\s*:|[\[{\]}]+[,;]?\Z|\[\s*(?:\[\s*[\[{"\d]|[{\]])"""),
    ("a Snakefile", r"(rule|checkpoint)\s+\w+\s*:|(rule|configfile|workdir|localrules)\s*:"),
    ("Python", r"""(import|from)\s+[\w.]+(\s+import\s.*|\s+as\s+\w+|(\s*,\s*[\w.]+)*)\Z|(async\s+)?def\s+\w+\s*\(|class\s+\w+\s*[(:]"""
               r"""|if\s+__name__|(try|else|finally)\s*:|(if|for|while|with|elif|except)\s.*:\Z|print\s*\(|[rf]?(""\"|''')"""),
    ("YAML", r"""(---|\.\.\.|%YAML|%TAG)(\s|\Z)|-\s|["']?[\w.$/@-]+["']?:(\s|\Z)"""),
    ("XML or HTML", r"<(\?|!--|!DOCTYPE|/?[A-Za-z][\w:.-]*(\s*/?>|\s+[\w:.-]+\s*=))"),
    ("a shell script, whose lines belong together", r"""(done|fi|esac|then|else|elif|do)(?=[\s;|&>]|\Z)"""
        r"""|(for|while|until|select)\s(?!.*\bdone\b)|if\s(?!.*\bfi\b)|case\s(?!.*\besac\b)|[\w-]+\s*\(\)\s*\{?\Z|set\s+-[a-z]+\Z"""
        r"""|.*(?<!<)<<-?\s*(["']?)[A-Za-z_]\w*\3\s*([|>;&].*)?\Z"""),
    ("C, C++ or Java", r"""#(include\s*[<"]|define\s+\w|ifn?def\s+\w|pragma\s)|//(\s|\Z)|/\*(\s|\*|\Z)|\*/|using\s+namespace\s"""
        r"""|import\s+[\w.*]+;|(public|private|protected|static|extern|typedef|struct|enum|union|template|const|unsigned|void|int|char|double|float|long|bool)\s"""
        r""".*[;{(,)]\Z|return\b.*;\Z|package\s+[\w.]+;?\Z"""),
    ("settings", r"\[[^\s\[\]][^\]]*\]\Z|[A-Za-z_][\w-]*(\.[\w-]+)+\s*[=:]"),
    ("source code", r"""(.*\s)?\{\Z|(const|let|var|val|my|our)\s+[\w$@%]+\s*[:=]\s"""
        r"""|(fn|func|fun|sub|proc|subroutine|function)\s+\w+|library\(|require\s*[('"]|use\s+[\w:]+;|\}"""),
    ("source code or settings", r"[A-Za-z_$@%\\][\w.$]*(\[[^\]]*\])?\s+(=|:=|<-|\+=)(\s|\Z)"),
    ("a DAG of HTCondor", r"(JOB|PARENT|SCRIPT|VARS|RETRY|SUBDAG|FINAL)\s+\S+\s+\S"),
    ("SQL", r"(SELECT|INSERT INTO|CREATE (TABLE|VIEW|INDEX)|DROP TABLE|UPDATE|DELETE FROM)\s"),
    ("TeX", r"\\(documentclass|begin|usepackage)\b"),
    ("data", r"[|;&),=]|[-+]?\d[\d.]*([\s,;]+[-+.\deE]+)*\Z"),
    ("a replica catalog", r"\S+\s+\w+://\S+\s+(site|pool)="),
)]  # fmt: skip


#: Those of them that no Makeflow has either.
_CODE = ("a Snakefile", "Python", "a shell script, whose lines belong together", "C, C++ or Java", "source code")


def _is_code(lines: list[str]) -> bool:
    return any(name in _CODE and sign.match(line) for line in lines if line[:1] not in ("", " ", "\t") for name, sign in _SIGNS)


def sniff(text: str, source: str = "") -> str:
    """The format of a text of whole lines, from its first lines. Raises Undetected."""
    lines = [line.strip(" \t\r") for line in text.split("\n", 4 * _SAMPLE_LINES)[: 4 * _SAMPLE_LINES]]
    if said := [line for line in lines if line.startswith(tasklist.PRAGMA)]:
        return "commands" if all(line.split()[1:2] == ["shell"] for line in said) else "tasklist"
    for line in lines:
        if line.startswith("#!"):
            raise Undetected("this is a script; to run each of its lines as a task of its own, say --format commands")
        if line:
            break
    everything, lines = lines, [line for line in lines if line and line[0] != "#"][:_SAMPLE_LINES]
    if not lines:
        return "commands"
    first = lines[0]
    if re.match(r"\{\s*(\"|\}|\Z)", first):
        if first in ("{", "[") or (not first.endswith("}") and len(lines) > 1 and not lines[1].startswith("{")):
            schema = '"$schema"' in text
            raise _unsure("a JSON Schema" if schema else "one JSON document over several lines (JSON Lines has one object a line)")
        return "jsonl"
    if re.match(r"\[\s*(\[\s*[\[{\"\d]|[{\"\]]|\Z)", first):
        raise _unsure("a JSON array (JSON Lines has one object a line)")
    if first[0] == ">" and len(lines) > 1 and re.fullmatch(r"[A-Za-z*-]{10,}", lines[1]):
        raise _unsure("FASTA")
    words = [line.split() for line in lines]
    if words[0] == ["TaskID", "Binary", "Input", "Output", "Rule"] or [w.lower() for w in words[0]] == tasklist.HEADER:
        return "tasklist"
    if [w.lower() for w in words[0]] == filelist.HEADER or all(len(w) == 3 and tasklist.parse_state(w[2]) for w in words):
        return "filelist"
    # "du -b x" has the shape of a task, too; but a command is repeated while task ids differ, and has no other options of ours.
    shaped = [w for w in words if len(w) > 1 and (w[1] == "-b" or (w[0].isdigit() and w[1][:1] == "-"))]
    distinct = len({w[0] for w in shaped}) > len(shaped) // 2
    if 2 * len(shaped) >= len(words) and (distinct or any({"-i", "-o", "-a"} & set(w) for w in shaped)):
        return "tasklist"
    for line in everything[: 2 * _SAMPLE_LINES]:
        for name, sign in _SIGNS:
            if sign.match(line):
                raise _unsure(name)
    refuse_name(source)
    return "commands"


def refuse_name(source: str) -> None:
    """Raises Undetected for a file whose name says that it holds no commands."""
    name = posixpath.basename(source)
    if _NO_COMMANDS_NAME.search(name):
        raise _unsure(f"none of the formats known here, and a file that is called {name} is no list of commands")


def _unsure(looks_like: str) -> Undetected:
    return Undetected(
        f'this looks like {looks_like}. Known are: a task list (ID -b PROGRAM …), JSON Lines ({{"type": "task", …}}), command lines'
        " (also with -if … -of …), Pegasus DAX and YAML, WfFormat, Makeflow, Swift; name the format with --format if it is one of these"
        " (--format commands runs each line)"
    )

"""Sizes, documentation and flags: the rules that ruff does not know."""

import ast
import importlib
import pathlib
import re
from collections.abc import Iterator

from tests.house.code import MODULES, ROOT, faults, imports, name_of, nodes, tree
from tfpipe.cli import fields

# A module is one idea: 80 to 300 lines is usual. A module that is one idea and longer
# stands here with its reason.
MAX_MODULE_LINES = 600
LONGER_MODULES: dict[str, str] = {}
MAX_FUNCTION_LINES = 40
# Signatures and docstrings of the presets list every argument of a run.
MAX_DOCUMENTED_FUNCTION_LINES = 80

_DOCUMENTED = ast.FunctionDef | ast.ClassDef


def test_sizes() -> None:
    assert not faults(_too_large)


def _too_large(path: pathlib.Path) -> Iterator[str]:
    is_longer = len(path.read_text().splitlines()) > MAX_MODULE_LINES
    if is_longer != (name_of(path) in LONGER_MODULES):
        yield f"{'more' if is_longer else 'not more'} than {MAX_MODULE_LINES} lines"
    for node in nodes(path):
        if isinstance(node, ast.FunctionDef):
            # Without its arguments, which are a table of one a line.
            documented = _lines(node) - _signature_lines(node)
            code = documented - _docstring_lines(node)
            if code > MAX_FUNCTION_LINES or documented > MAX_DOCUMENTED_FUNCTION_LINES:
                yield f"{node.name}: {code} lines, {documented} with its docstring"


def _lines(node: ast.FunctionDef) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _signature_lines(node: ast.FunctionDef) -> int:
    return node.body[0].lineno - node.lineno


def _docstring_lines(node: ast.FunctionDef) -> int:
    first = node.body[0]
    if ast.get_docstring(node) is None or first.end_lineno is None:
        return 0
    return first.end_lineno - first.lineno + 1


def test_public_names_are_documented_and_options_are_keyword_only() -> None:
    assert not faults(_undocumented)


def _undocumented(path: pathlib.Path) -> Iterator[str]:
    module = tree(path)
    if not ast.get_docstring(module):
        yield "a module says what it is in its first line"
    for node in module.body:
        if not isinstance(node, _DOCUMENTED):
            continue
        if node.name.startswith("_") or node.name in ("main",):
            continue
        if not ast.get_docstring(node):
            yield f"{node.name} has no docstring"
        if isinstance(node, ast.FunctionDef) and node.args.defaults:
            yield f"{node.name}: optional positional argument"


def test_every_flag_is_in_the_documents() -> None:
    defined: dict[str, str] = {}
    for path in MODULES:
        if "\nCOMMANDS = (" in path.read_text():
            defined |= dict.fromkeys(_flags_of_commands(path), name_of(path))
    pages = [ROOT / "README.md", ROOT / "BUILD.md", *ROOT.glob("docs/**/*.md")]
    documents = "".join(page.read_text() for page in pages)
    missing = {key for key in defined if f"--{key.partition(':')[2]}" not in documents}
    assert not missing


def _flags_of_commands(path: pathlib.Path) -> Iterator[str]:
    name = name_of(path).removesuffix(".py").replace("/", ".")
    for command in importlib.import_module(name).COMMANDS:
        for option in fields.options_of(command.options):
            if not option.about.is_argument:
                yield f"{name}:{option.name}"


def test_no_todo_without_an_issue_and_no_print_of_debugging() -> None:
    for path in MODULES:
        text = path.read_text()
        assert not re.search(r"TODO(?!\(#\d+\))|FIXME|XXX|breakpoint\(\)", text), path


# A wall clock is set by people and by NTP: a duration needs time.monotonic or
# time.perf_counter.
WALL_CLOCKS = ("time.time", "time.time_ns", "tf.timestamp")
WALL_CLOCK_MODULES = {
    "tfpipe/native/build.py": "the age of a file, whose time is of the wall clock",
    "tfpipe/training/callbacks.py": "TensorFlow has no other clock without Python; the "
    "waits are bounded by time.monotonic",
}


def test_durations_are_of_monotonic_clocks() -> None:
    assert not faults(_wall_clock)


def _wall_clock(path: pathlib.Path) -> Iterator[str]:
    found = [
        node
        for node in nodes(path)
        if isinstance(node, ast.Attribute) and ast.unparse(node) in WALL_CLOCKS
    ]
    if bool(found) != (name_of(path) in WALL_CLOCK_MODULES):
        yield f"{'reads' if found else 'does not read'} a wall clock"


# DuckDB takes the name of a file for a pattern, and folders `a=b` for columns.
_READS_FILES = re.compile(
    r"\b(read_(csv|json|ndjson|parquet|text|blob)\w*|parquet_(scan|\w*metadata|schema)"
    r"|sniff_csv|glob)\s*\("
)
_METHODS = ("read_csv", "read_json", "read_parquet", "from_csv_auto", "from_parquet")


def test_one_module_connects_to_duckdb_and_names_files_in_its_sql() -> None:
    assert not faults(_own_duckdb)


STUDIES_WITH_DUCKDB = ("studies/scale.py", "studies/tables.py")


def _own_duckdb(path: pathlib.Path) -> Iterator[str]:
    if name_of(path) in ("tfpipe/shards/sql.py", *STUDIES_WITH_DUCKDB):
        return  # a study uses public names alone
    described = {id(node.value) for node in nodes(path) if isinstance(node, ast.Expr)}
    for node in nodes(path):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            is_read = _READS_FILES.search(node.value) and id(node) not in described
        elif isinstance(node, ast.Attribute):
            is_connect = ast.unparse(node) == "duckdb.connect"
            is_read = is_connect or node.attr in _METHODS
        else:
            continue
        if is_read:
            yield f"line {node.lineno} reads a file, which tfpipe.shards.sql should do"


# A sentence begins with its subject, in the first line above all.
RIDDLES = re.compile(r"(Of|That|What)\b")


def test_docstrings_open_with_their_subject() -> None:
    assert not faults(_riddles)


def _riddles(path: pathlib.Path) -> Iterator[str]:
    for node in nodes(path):
        if isinstance(node, ast.Module | _DOCUMENTED):
            text = ast.get_docstring(node)
            if text and RIDDLES.match(text):
                yield text.splitlines()[0]


# Python's own parser of JSON ends otherwise than by a ValueError for a hostile text. A
# text of the product's own processes is none.
OWN_JSON = {
    "tfpipe/errors.py": "`from_json` itself",
    "tfpipe/native/fuzz.py": "a line of its own child process",
    "benchmarks/distributed/rank_links.py": "lines of the ranks",
    "benchmarks/planning/published.py": "a file of the package",
    "tfpipe/pages/frame.py": "a file of a package",
}


def test_json_of_others_is_read_in_one_place() -> None:
    assert not faults(_own_json)


def _own_json(path: pathlib.Path) -> Iterator[str]:
    if name_of(path).startswith("studies/"):
        return
    reads = [
        node
        for node in nodes(path)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in ("json.loads", "json.load")
        and not ast.unparse(node.args[0]).startswith("json.dumps(")
    ]
    if bool(reads) != (name_of(path) in OWN_JSON):
        yield f"{'reads' if reads else 'does not read'} JSON without errors.from_json"


# Calls that run what a file says, or a line of a shell.
HARMFUL = re.compile(
    r"(pickle|marshal|shelve|dill|cloudpickle|joblib)\.(loads?|Unpickler)|eval|exec"
    r"|os\.(system|popen)|subprocess\.get(status)?output|yaml\.(load|unsafe_load)"
)
HARMFUL_MODULES = {"pickle", "marshal", "shelve", "dill", "joblib"}
HARMLESS = {
    "converters/jobs/plan.py": "marshal holds plans in memory, in few bytes",
    "tfpipe/cli/completion.py": "shell is the name of a shell",
}


def test_nothing_runs_what_a_file_says() -> None:
    assert {fault.partition(":")[0] for fault in faults(_harmful)} == {*HARMLESS}


def _harmful(path: pathlib.Path) -> Iterator[str]:
    for name in imports(path) & HARMFUL_MODULES:
        yield f"imports {name}"
    for node in nodes(path):
        if not isinstance(node, ast.Call):
            continue
        given = {each.arg: ast.unparse(each.value) for each in node.keywords}
        if HARMFUL.fullmatch(ast.unparse(node.func)):
            yield f"line {node.lineno} calls {ast.unparse(node.func)}"
        for name in ("shell", "allow_pickle"):
            if given.get(name, "False") != "False":
                yield f"line {node.lineno} has {name}={given[name]}"


# Servers that listen for this host alone, unless a user names an address.
OPEN_SERVERS = {
    "benchmarks/distributed/rank_links.py": "the ranks of other hosts connect to it",
}
LISTENING = ("bind", "HTTPServer", "ThreadingHTTPServer", "create_server", "TCPServer")


def test_servers_listen_on_the_loopback() -> None:
    assert not faults(_open_server)


def _open_server(path: pathlib.Path) -> Iterator[str]:
    for node in nodes(path):
        if not isinstance(node, ast.Call):
            continue
        if ast.unparse(node.func).rpartition(".")[2] in LISTENING and node.args:
            address = ast.unparse(node.args[0])
            is_address = address.startswith("(")  # `Signature.bind` takes none
            is_open = is_address and "'127.0.0.1'" not in address
            if is_open != (name_of(path) in OPEN_SERVERS):
                yield f"line {node.lineno} listens on {address}"


# A read at an offset may return fewer bytes than the file has.
OWN_READS = {
    "tfpipe/location/system_reads.py": "the loop itself",
    "benchmarks/page_cache/states.py": "brings pages into memory",
    "benchmarks/storage_probe/reads.py": "measures single calls",
    "converters/inputs/tables/spool.py": "looks whether bytes are there",
}


def test_reads_at_an_offset_are_whole() -> None:
    found = {
        name_of(path)
        for path in MODULES
        for node in nodes(path)
        if isinstance(node, ast.Attribute)
        and ast.unparse(node) in ("os.pread", "os.preadv")
    }
    assert found == {*OWN_READS}

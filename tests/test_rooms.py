"""The house: a room imports only from rooms above it, without circles; each heavy library has one home; only
prewrite/asking/ tells one way of asking from another."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "prewrite"
ROOMS = (
    "base", "config", "algorithm", "grading", "tasks", "asking", "rewards", "engine", "evaluation", "reporting",
    "report", "training", "rewrite", "export", "generate",
)  # fmt: skip
HOMES = {"vllm": "engine", "deepspeed": "engine", "aiohttp": "engine", "transformers": "engine", "datasets": "tasks"}
HOMES |= {"peft": "engine", "bitsandbytes": "engine"}
FILES = sorted(PACKAGE.rglob("*.py"))


def room(path: Path) -> str:
    parts = path.relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 else "base"


def imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_upwards_only(path: Path) -> None:
    for name in imports(path):
        first, *rest = name.split(".")
        if first == "prewrite":
            target = rest[0] if rest and (PACKAGE / rest[0]).is_dir() else "base"
            assert ROOMS.index(target) <= ROOMS.index(room(path)), f"{path} imports {name}"
        if first in HOMES:
            assert room(path) == HOMES[first], f"{path} imports {first}, whose home is prewrite/{HOMES[first]}"


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_at_start(path: Path, modules: set[str]) -> set[str]:
    """The modules of the package that a module needs while it is imported itself; `from a import b` may be a.b."""
    found: set[str] = set()
    waiting: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert not node.level, f"{path}: imports are absolute"
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= (inner & modules) | ({node.module} if inner - modules else set())
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            waiting += ast.iter_child_nodes(node)
    return found & modules


def test_no_imports_in_a_circle() -> None:
    names = {module_name(path): path for path in FILES}
    needs = {name: imports_at_start(path, set(names)) for name, path in names.items()}
    while free := [name for name, needed in needs.items() if not needed & needs.keys()]:
        for name in free:
            del needs[name]
    while needs and (outside := needs.keys() - set.union(*needs.values())):  # they only stand before a circle
        needs = {name: needed for name, needed in needs.items() if name not in outside}
    assert not needs, f"these import one another: {sorted(needs)}"


WAYS = {"ALONE", "MINI_BATCH", "SUBJECT_BATCH", "TEMPLATE", "Alone", "MiniBatch", "SubjectBatch", "Template"}


def names_a_way(node: ast.AST | None) -> bool:
    return node is not None and any(
        (isinstance(part, ast.Name) and part.id in WAYS) or (isinstance(part, ast.Attribute) and part.attr in WAYS)
        for part in ast.walk(node)
    )


def branches_on_a_way(tree: ast.AST) -> list[int]:
    """Lines that decide by the way of asking: by comparison, isinstance, match, a table, or the name of its class."""
    lines = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            parts: list[ast.AST | None] = [node]
            lines += (
                [node.lineno] if any(isinstance(c, ast.Constant) and c.value in WAYS for c in ast.walk(node)) else []
            )
        elif isinstance(node, ast.Call):
            tests = isinstance(node.func, ast.Name) and node.func.id in ("isinstance", "issubclass")
            parts = list(node.args) if tests else []
        elif isinstance(node, ast.match_case):
            parts = [node.pattern]
        elif isinstance(node, ast.Dict):
            parts = list(node.keys)
        elif isinstance(node, ast.Subscript):
            parts = [node.slice]
        else:
            continue
        lines += [getattr(part, "lineno", 0) for part in parts if names_a_way(part)]
    return lines


@pytest.mark.parametrize("path", [path for path in FILES if room(path) != "asking"], ids=module_name)
def test_only_the_room_of_asking_tells_one_way_from_another(path: Path) -> None:
    assert not branches_on_a_way(ast.parse(path.read_text(encoding="utf-8"))), f"{path} branches on a way of asking"


@pytest.mark.parametrize(
    "code",
    [
        "if way is MINI_BATCH: pass",
        "x = asking.ALONE == way",
        "isinstance(way, asking.Template)",
        "match way:\n    case Alone(): pass",
        "score = {ALONE: 1}",
        "score[type(SUBJECT_BATCH)]",
        "type(way).__name__ == 'Alone'",
    ],
)
def test_a_branch_on_a_way_is_found(code: str) -> None:
    assert branches_on_a_way(ast.parse(code))
    assert not branches_on_a_way(ast.parse("way = asking or MINI_BATCH\nadd(ALONE)\n[(reward, TEMPLATE)]"))


def test_no_file_has_outgrown_an_evening() -> None:
    lengths = {module_name(path): len(path.read_text(encoding="utf-8").splitlines()) for path in FILES}
    assert not {name: length for name, length in lengths.items() if length > 320}

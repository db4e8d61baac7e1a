"""The house: a room imports only from rooms above it, and each heavy library has one home."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "prewrite"
ROOMS = (
    "base", "config", "algorithm", "grading", "tasks", "asking", "rewards", "engine", "evaluation", "reporting",
    "training",
)  # fmt: skip
HOMES = {"vllm": "engine", "deepspeed": "engine", "aiohttp": "engine", "transformers": "engine", "datasets": "tasks"}
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


def test_no_file_has_outgrown_an_evening() -> None:
    lengths = {path.name: len(path.read_text(encoding="utf-8").splitlines()) for path in FILES}
    assert not {name: length for name, length in lengths.items() if length > 330}

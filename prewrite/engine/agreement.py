"""What has to be the same on every rank before a run starts. Ranks on several machines bring what each machine has.

Each check is a collective that all ranks pass, or that raises the same UserError on all of them: it names the ranks,
their machines, and what they differ in.
"""

import hashlib
import platform
import socket
import uuid
from collections.abc import Mapping, Sequence
from importlib.metadata import packages_distributions, version
from pathlib import Path

import prewrite
from prewrite.config import Config
from prewrite.engine import distributed
from prewrite.errors import UserError

_PACKAGES = ("torch", "deepspeed", "vllm", "transformers")
_LONGEST_VALUE = 60  # characters of a setting that the message shows


def agree_on_program_and_config(config: Config, world: distributed.World) -> None:
    """Versions of Python and of the engines, this package's own code, every setting; and a task model that all reach.

    The first thing that ranks do together: where these differ they would not even reach the same collectives.
    """
    if world.size == 1:
        return
    hosts = distributed.gather(socket.gethostname())
    refuse_differences(distributed.gather(_versions() | _settings(config)), hosts)
    if config.asks_task_model and config.task_model.base_url is None and len(set(hosts)) > 1:
        raise UserError(
            "task_model.base_url is null: a server that is started here answers on rank 0's machine alone, and the "
            f"ranks run on {', '.join(dict.fromkeys(hosts))}; start a server that all of them reach, and name it there"
        )


def data_hashes(data: Mapping[str, object]) -> dict[str, str]:
    """The hash of each part, by name: that of its repr, which so must tell all of it and no memory address."""
    return {name: _short_hash(repr(part).encode(errors="backslashreplace")) for name, part in data.items()}


def agree_on_data(hashes: Mapping[str, str], world: distributed.World) -> None:
    """The same data (`data_hashes`)."""
    if world.size == 1:
        return
    facts = {f"the hash of {name}": value for name, value in hashes.items()}
    refuse_differences(distributed.gather(facts), distributed.gather(socket.gethostname()))


def agree_on_folder(folder: Path | None, world: distributed.World) -> None:
    """Every rank sees rank 0's run folder. folder: its absolute path, on rank 0 alone."""
    if world.size == 1:
        return
    mark = None
    if folder is not None:  # a folder of the same name may stand on each machine's own disk
        mark = folder / f".seen-{uuid.uuid4().hex}"
        mark.touch()
    shared: Path = distributed.broadcast(mark)
    seen = distributed.gather(shared.exists())
    hosts = distributed.gather(socket.gethostname())
    if mark is not None:
        mark.unlink()
    if blind := [rank for rank, sees in enumerate(seen) if not sees]:
        way_out = "give an output_dir that is one shared folder, at the same path on every machine"
        where = f"run folder {shared.parent} of {_named([0], hosts)}"
        raise UserError(f"{where} is not seen by {_named(blind, hosts)}: {way_out}")


def refuse_differences(facts: Sequence[Mapping[str, str]], hosts: Sequence[str]) -> None:
    """facts, hosts: by rank. Raises UserError with a line for each fact that is not the same everywhere."""
    lines = []
    for name in dict.fromkeys(name for fact in facts for name in fact):
        ranks_by_value: dict[str, list[int]] = {}
        for rank, fact in enumerate(facts):
            ranks_by_value.setdefault(fact.get(name, "absent"), []).append(rank)
        if len(ranks_by_value) > 1:
            told = (f"{value} on {_named(ranks, hosts)}" for value, ranks in ranks_by_value.items())
            lines.append(f"  - {name}: {'; '.join(told)}")
    if lines:
        rule = "the same packages, code, config and data on every machine"
        raise UserError("\n".join([f"the ranks do not agree; the rule: {rule}", *lines]))


def _versions() -> dict[str, str]:
    homes = packages_distributions()  # a package's builds have names of their own
    versions = {name: version(homes[name][0]) for name in _PACKAGES}
    code = hashlib.sha256()
    root = Path(prewrite.__file__).parent
    for path in sorted(root.rglob("*.py")):
        code.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes() + b"\0")
    return {"python": platform.python_version(), **versions, "the hash of prewrite's code": code.hexdigest()[:12]}


def _settings(config: Config) -> dict[str, str]:
    """Every setting with its value; a long value by its beginning and its hash."""
    settings = {}
    for name, value in config.model_dump().items():
        for key, setting in value.items() if isinstance(value, dict) else [("", value)]:
            text = repr(setting)
            if len(text) > _LONGEST_VALUE:
                text = f"{text[:_LONGEST_VALUE]}... (hash {_short_hash(text.encode())})"
            settings[f"{name}.{key}".rstrip(".")] = text
    return settings


def _short_hash(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()[:12]


def _named(ranks: Sequence[int], hosts: Sequence[str]) -> str:
    where = ", ".join(dict.fromkeys(hosts[rank] for rank in ranks))
    if len(ranks) == 1:
        return f"rank {ranks[0]} ({where})"
    in_a_row = ranks[-1] - ranks[0] == len(ranks) - 1
    which = f"{ranks[0]} to {ranks[-1]}" if in_a_row else ", ".join(map(str, ranks))
    return f"ranks {which} ({where})"

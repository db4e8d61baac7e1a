"""Writes a run's model as a folder that transformers and vLLM load, with a card of the run's figures."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from prewrite.secrets import ArgumentParser
from prewrite.terminal import exit_code, quiet_environment


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code, as `prewrite.terminal.exit_code` says."""
    parsed = _parse(arguments)
    quiet_environment()
    return exit_code("python -m prewrite.export", lambda: _export(parsed), interrupted="interrupted")


def _export(parsed: argparse.Namespace) -> None:
    from prewrite.export.command import export, find_source, refuse_out
    from prewrite.export.hub import Hub

    refuse_out(parsed.out)
    source = find_source(parsed.source)
    hub = Hub(parsed.push_to_hub, parsed.revision) if parsed.push_to_hub else None
    export(source, parsed.out, merge=parsed.merge)
    print(f"written: {parsed.out}, from {source.checkpoint}", flush=True)
    if hub is not None:
        again = f"{parsed.out} is whole; once more: hf upload {hub.repo} {parsed.out}"
        again += f" --revision {parsed.revision}" if parsed.revision else ""
        print(f"pushed: {hub.push(parsed.out, f'{parsed.out.name}, exported by PRewrite', again)}")


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = ArgumentParser("python -m prewrite.export", description=str(__doc__))
    run = "runs/NAME (its newest whole checkpoint), or runs/NAME/checkpoints/step_N"
    parser.add_argument("source", type=Path, metavar="RUN_OR_CHECKPOINT", help=run)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="a folder that is not there, or empty")
    parser.add_argument("--merge", action="store_true", help="an adapter and its base model as one whole model")
    parser.add_argument("--push-to-hub", metavar="REPO", help="NAME/REPO on the hub; the key is HF_TOKEN")
    parser.add_argument("--revision", metavar="R", help="the branch to push to, made where it is not there (main)")
    parsed = parser.parse_args(arguments)
    if parsed.revision and not parsed.push_to_hub:
        parser.error("--revision goes with --push-to-hub")
    return parsed


if __name__ == "__main__":
    sys.exit(main())

"""Trains a policy to rewrite instructions:  deepspeed train.py --config configs/math.json [--set key=value ...]"""

import argparse
import gc
import os
import signal
import sys
from collections.abc import Callable

from prewrite.config.loading import load_config
from prewrite.errors import RankFailure, UserError
from prewrite.secrets import ArgumentParser
from prewrite.terminal import quiet_environment

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
_interrupted = False  # by one of them, before training took them over


def main() -> int:
    """Exit codes: 0 done, 2 a fault of the user's (told in one message), 130 ended by Ctrl-C, 1 anything else."""
    parser = ArgumentParser("train.py", description=str(__doc__))
    parser.add_argument("--config", required=True, help="a JSON or YAML file, see configs/")
    parser.add_argument("--set", action="append", default=[], metavar="key=value", dest="overrides")
    earlier = parser.add_mutually_exclusive_group()
    for start, does in (("resume", "go on with the run in the run folder"), ("overwrite", "set that run aside")):
        earlier.add_argument(f"--{start}", action="store_const", const=start, default="new", dest="start", help=does)
    parser.add_argument("--dry-run", action="store_true", help="say how many calls the run would make, and end")
    parser.add_argument("--local_rank", type=int, help=argparse.SUPPRESS)  # given by the launcher, read from its env
    args = parser.parse_args()
    for signum in SIGNALS:
        signal.signal(signum, _interrupt)
    is_first = os.environ.get("LOCAL_RANK", "0") == "0"  # of this machine's ranks
    try:
        config = load_config(args.config, args.overrides)
        quiet_environment()
        run = _heavy_imports()  # after the config's own faults
        run(config, args.start, dry_run=args.dry_run, where=f"config {args.config}")
    except UserError as error:
        # A fault that every rank finds for itself, as in the config, is told once on each machine.
        if is_first or not error.on_every_rank:
            print(f"train.py: {error}", file=sys.stderr, flush=True)
        return 2
    except RankFailure as failure:
        if is_first and failure.elsewhere:
            print(f"train.py: {failure}", file=sys.stderr, flush=True)
        return failure.exit_code
    except KeyboardInterrupt:
        if is_first:
            print("train.py: stopped; --resume goes on from the last checkpoint, where there is one", file=sys.stderr)
        return 130
    return 0


def _heavy_imports() -> Callable[..., None]:
    gc.disable()  # what is imported stays: to look for garbage in it is a tenth of the time that imports take
    try:
        from prewrite.training.run import run
    except Exception:  # raised again, but where it is what a library that imports lazily made of a signal
        if _interrupted:
            raise KeyboardInterrupt from None
        raise
    finally:
        gc.enable()
    gc.freeze()
    return run


def _interrupt(signum: int, frame: object) -> None:
    # The launcher sends SIGTERM after a Ctrl-C that this process has had too: a second one must not break the clean-up.
    # Not SIG_IGN: Python prints a traceback where a signal to be ignored has arrived already.
    global _interrupted
    _interrupted = True
    for other in SIGNALS:
        signal.signal(other, lambda *_: None)
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())

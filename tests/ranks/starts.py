"""Starts train.py's main several times, one after the other, as a rank of two: torch and DeepSpeed load once.

python tests/ranks/starts.py STARTS.json OUT.json: the starts of this rank, and what came of each.
"""

import contextlib
import io
import json
import os
import sys
from pathlib import Path
from unittest import mock

import train


def main(starts: str, out: str) -> None:
    found = []
    for one in json.loads(Path(starts).read_text()):
        told, file = io.StringIO(), Path(one["file"]) if "file" in one else None
        if file is not None:
            file.write_text("# as a colleague left it\n")
        sys.argv = ["train.py", *one["arguments"]]
        with (
            mock.patch("socket.gethostname", lambda name=one["host"]: name),
            mock.patch.dict(os.environ, one["environment"]),
            contextlib.redirect_stderr(told),
        ):
            code = train.main()
        if file is not None:
            file.unlink()
        found.append([code, told.getvalue()])
    Path(out).write_text(json.dumps(found))


main(*sys.argv[1:])

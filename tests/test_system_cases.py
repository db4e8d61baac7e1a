"""Every agreed public case on the whole program is named, by its id, where a test exercises it."""

import json
import os
import re
from pathlib import Path

import pytest

FOLDER = Path(os.environ.get("PREWRITE_CASES") or Path(__file__).parents[2] / "shared" / "cases")
AREAS = {"checkpoint", "config", "server", "data", "log", "eval", "vllm", "dist", "tied"}
NOT_HERE = {"system-028": "LoRA"}  # what a case asks of that the project does not have


@pytest.mark.skipif(not FOLDER.is_dir(), reason=f"no cases at {FOLDER}; set PREWRITE_CASES to their folder")
def test_every_agreed_system_case_is_named_by_a_test() -> None:
    lines = (FOLDER / "cases.jsonl").read_text(encoding="utf-8").splitlines()
    cases = [case for line in lines if (case := json.loads(line))["kind"] == "system"]
    agreed = {case["id"] for case in cases if case["area"] in AREAS and not case.get("ambiguous")}
    assert agreed
    texts = [path.read_text(encoding="utf-8") for path in Path(__file__).parent.rglob("*.py")]
    assert agreed - NOT_HERE.keys() - {found for text in texts for found in re.findall(r"system-\d{3}", text)} == set()

"""The gold inside a worked solution."""


def last_boxed(solution: str) -> str | None:
    """What stands in the last box of a worked solution (`\\boxed{...}`, `\\fbox{...}`, `\\boxed 5`), or None."""
    start = max(solution.rfind("\\boxed"), solution.rfind("\\fbox"))
    if start < 0:
        return None
    rest = solution[start:].removeprefix("\\boxed").removeprefix("\\fbox").lstrip()
    if not rest.startswith("{"):
        return rest.split("$")[0].split()[0] if rest.split("$")[0].split() else None
    depth = 0
    for position, character in enumerate(rest):
        escaped = position > 0 and rest[position - 1] == "\\"
        depth += (character == "{" and not escaped) - (character == "}" and not escaped)
        if depth == 0:
            return rest[1:position].strip()
    return None

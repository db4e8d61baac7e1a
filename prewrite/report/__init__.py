"""A run's report: one HTML file that needs no network (`python -m prewrite.report runs/NAME`)."""

from pathlib import Path

from prewrite.secrets import hidden


def try_report(folder: Path) -> str:
    """Writes a run's report, at its end or on the way, and says in one line where it lies, or why there is none."""
    try:
        from prewrite.report.page import write_report  # here: without its libraries a run still ends well

        return f"report: {write_report([folder])}"
    except Exception as error:  # noqa: BLE001  # the run is whole without it, and the line says what happened
        why = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        return f"no report ({hidden(why)}); to try again: python -m prewrite.report {folder}"

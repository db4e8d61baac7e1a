"""A run's report: one HTML file that needs no network (`python -m prewrite.report runs/NAME`)."""

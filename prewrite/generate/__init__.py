"""Synthetic data, for SFT: `python -m prewrite.generate`."""

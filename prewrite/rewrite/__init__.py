"""A trained rewriter in use: `python -m prewrite.rewrite`."""

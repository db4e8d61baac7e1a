"""Whether two written answers mean the same: skip at first reading.

`notation` gives an answer one spelling, `tokens` → `expression` → `parser` make a `tree` of it, `compare` → `relations`
and `scalars` hold two trees against each other, `values` → `arithmetic` give a tree's value. `words` knows numbers in
words and units. Nothing here starts a process or looks for the answer in a text.
"""

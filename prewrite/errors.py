"""The one exception for the user's faults."""


class UserError(Exception):
    """Something the user can put right: a config, a file, a server, a model folder.

    The message says where, what was given, the rule, and the way out. `train.py` and `evaluate.py` print it alone,
    without a traceback, and exit with code 2. Our own faults are `assert`s and ordinary exceptions.
    """

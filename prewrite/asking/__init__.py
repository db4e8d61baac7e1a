"""The ways of asking the task model about a rewrite: what is asked, on which examples, how answers are graded, and
which faults make a rewrite worth nothing unasked. A way is one object; the other rooms know only `Asking`.
"""

from prewrite.asking.alone import Alone
from prewrite.asking.base import Asking
from prewrite.asking.mini_batch import MiniBatch, SubjectBatch
from prewrite.asking.template import Template

ALONE, MINI_BATCH, SUBJECT_BATCH, TEMPLATE = Alone(), MiniBatch(), SubjectBatch(), Template()

__all__ = ["ALONE", "MINI_BATCH", "SUBJECT_BATCH", "TEMPLATE", "Asking"]

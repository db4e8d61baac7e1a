"""What a setting may be, and how a section of them is read: strictly, and with every fault told at once."""

from collections.abc import Iterator
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

MOST = 2**63 - 1  # of a whole number: what generators, servers and trackers hold in 64 bits
Positive = Annotated[int, Field(ge=1, le=MOST)]
Count = Annotated[int, Field(ge=0, le=MOST)]
Share = Annotated[float, Field(gt=0, le=1)]
NonNegative = Annotated[float, Field(ge=0)]
Word = Annotated[str, Field(min_length=1)]


class Section(BaseModel):
    """Unknown keys and wrong types are refused ("false" is no bool, "1e-6" no number); so is what `faults` finds."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        use_attribute_docstrings=True,
        allow_inf_nan=False,
        hide_input_in_errors=True,
    )

    def faults(self) -> Iterator[str]:
        """What settings that are each allowed may not say together: the rule and the way out, one text a fault."""
        yield from ()

    @model_validator(mode="after")
    def _refuse_faults(self) -> Self:
        if faults := list(self.faults()):
            raise ValueError("; ".join(faults))
        return self

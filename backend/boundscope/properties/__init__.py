"""Properties: VNN-LIB 1.0 and 2.0 files and ε-balls, read exactly into input boxes and output clauses."""

from boundscope.properties.ball import ball_property
from boundscope.properties.normal_form import Limits
from boundscope.properties.read import read_property
from boundscope.properties.types import Box, Case, Clause, LinearConstraint, Property
from boundscope.properties.words import summarize
from boundscope.properties.write import to_vnnlib

__all__ = [
    "Box",
    "Case",
    "Clause",
    "Limits",
    "LinearConstraint",
    "Property",
    "ball_property",
    "read_property",
    "summarize",
    "to_vnnlib",
]

"""What a verify job knows of each clause."""

from __future__ import annotations

from dataclasses import dataclass, field

from boundscope.properties.types import Property
from boundscope.protocol import ClauseMargin, Margin


@dataclass
class Proof:
    """What is known of each clause: (case, clause) -> proven lower bound, least value seen, whether it is proven."""

    lower: dict[tuple[int, int], float] = field(default_factory=dict)
    upper: dict[tuple[int, int], float] = field(default_factory=dict)
    proven: set[tuple[int, int]] = field(default_factory=set)

    def open(self, prop: Property, case: int) -> list[int]:
        """The clauses of a case that are not excluded yet."""
        return [k for k in range(len(prop.cases[case].clauses)) if (case, k) not in self.proven]

    def margin(self, prop: Property) -> Margin:
        rows = [
            ClauseMargin(
                case=case,
                clause=clause,
                lower=self.lower.get((case, clause)),
                upper=self.upper.get((case, clause)),
                text=prop.cases[case].clauses[clause].text,
                excluded=(case, clause) in self.proven,
            )
            for case in range(len(prop.cases))
            for clause in range(len(prop.cases[case].clauses))
        ]
        known = [row.lower for row in rows]
        smallest = (
            None
            if any(value is None for value in known)
            else min((v for v in known if v is not None), default=None)
        )
        return Margin(smallest=smallest, per_clause=tuple(rows))

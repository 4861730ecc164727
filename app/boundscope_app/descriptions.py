"""What screen readers say of controls beyond their names, in one table: for those that say nothing more themselves."""

from __future__ import annotations

from PySide6.QtWidgets import QAbstractButton, QWidget

_READING = "Choose a row with the arrow keys; Ctrl+C copies what is chosen"
DESCRIPTIONS = {
    "Actions found": "Up and Down choose an action, Enter does it",
    "Bounds of every layer": f"{_READING}, and the chosen layer is shown in all views",
    "Clauses": "The clauses of the property, or their curves: Space shows or hides the chosen curve",
    "Clear pins": "Remove the marks that clicks have left in the plot",
    "Close": "Close this window",
    "Copy as command line": "Copy the shell line that does what the form says",
    "Decisions": f"Which answers of the network rounding can change. {_READING}",
    "Help": "What is where, all shortcuts, and how to read the views",
    "Input box": "Bounds of each input as the property has them",
    "Instances of the benchmark": "One row an instance; Enter shows the chosen one below",
    "Least level shown": "Lines of a lower level are left out",
    "Log lines": f"What the run said, in order. {_READING}",
    "Memory scale": "How far the axis of memory goes: to what is held, or to the limit",
    "Noise of the layers": f"What rounding is worth in each layer. {_READING}",
    "Only what differs": "Leave out rows that are the same in all runs",
    "Proof and measurement of the layers": f"Proven rounding beside what was observed. {_READING}",
    "Ranks": "Space shows or hides the chosen rank",
    "Run": "Run what the form says",
    "Runs": "Space shows or hides the chosen run",
    "Significant digits": f"How many digits of each layer are no rounding noise. {_READING}",
    "Verdict page": "What was found, and what was run; the arrow keys scroll, Ctrl+A and Ctrl+C copy",
    "What differs between the runs": f"One row a fact, one column a run. {_READING}",
    "Widths of layers": f"The proven width of each layer in each run. {_READING}",
}
_BEGINNINGS = {"Show all ": "Show all curves of the plot", "Hide all ": "Hide all curves of the plot"}


def describe(parent: QWidget) -> None:
    """Give every control inside that has no description, tool tip or status tip what the table says of it."""
    for child in parent.findChildren(QWidget):
        if child.accessibleDescription() or child.toolTip() or child.statusTip():
            continue
        name = child.accessibleName() or (child.text() if isinstance(child, QAbstractButton) else "")
        said = DESCRIPTIONS.get(name.replace("&", ""))
        if said is None:
            said = next((text for begin, text in _BEGINNINGS.items() if name.startswith(begin)), None)
        if said is None:
            continue
        child.setAccessibleDescription(said)
        if isinstance(child, QAbstractButton):
            child.setToolTip(said)

"""The views of a run, in display order."""

from __future__ import annotations

from boundscope_app.views.base import View
from boundscope_app.views.gap import BoundGapView
from boundscope_app.views.graph import GraphView
from boundscope_app.views.instances import InstancesView
from boundscope_app.views.layers import LayersView
from boundscope_app.views.log import LogView
from boundscope_app.views.memory import MemoryView
from boundscope_app.views.variability import VariabilityView
from boundscope_app.views.verdict import VerdictView

VIEWS: tuple[type[View], ...] = (
    VerdictView,
    InstancesView,
    BoundGapView,
    MemoryView,
    LayersView,
    VariabilityView,
    GraphView,
    LogView,
)

__all__ = [
    "VIEWS",
    "BoundGapView",
    "GraphView",
    "InstancesView",
    "LayersView",
    "LogView",
    "MemoryView",
    "VariabilityView",
    "VerdictView",
    "View",
]

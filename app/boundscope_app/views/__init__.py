"""The views of a run, in display order."""

from __future__ import annotations

from boundscope_app.views.base import View
from boundscope_app.views.compare import CompareView
from boundscope_app.views.compare_facts import CompareFactsView
from boundscope_app.views.compare_gap import CompareGapView
from boundscope_app.views.compare_memory import CompareMemoryView
from boundscope_app.views.compare_noise import CompareNoiseView
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

COMPARE_VIEWS: tuple[type[CompareView], ...] = (
    CompareFactsView,
    CompareGapView,
    CompareMemoryView,
    CompareNoiseView,
)
"""The views of several runs. Each `stands_before` the view that it replaces, or before that of this id."""

__all__ = [
    "COMPARE_VIEWS",
    "VIEWS",
    "BoundGapView",
    "CompareFactsView",
    "CompareGapView",
    "CompareMemoryView",
    "CompareNoiseView",
    "CompareView",
    "GraphView",
    "InstancesView",
    "LayersView",
    "LogView",
    "MemoryView",
    "VariabilityView",
    "VerdictView",
    "View",
]

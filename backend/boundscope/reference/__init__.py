"""auto_LiRPA beside our own engine: adapted to this torch, as an engine of jobs, and as a check of ours.

`compat` alone knows one version of it from another.
"""

from boundscope.reference.compat import import_auto_lirpa

__all__ = ["import_auto_lirpa"]

"""auto_LiRPA beside our own engine: so far importable and measured against; as an engine of jobs it comes later."""

from boundscope.reference.compat import import_auto_lirpa

__all__ = ["import_auto_lirpa"]

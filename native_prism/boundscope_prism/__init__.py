"""Stochastic arithmetic on arrays: the Python face of native_prism."""

from boundscope_prism import _prism as _prism

"""Boundscope: proven bounds and measured rounding noise of neural networks."""

__version__ = "0.1.0"

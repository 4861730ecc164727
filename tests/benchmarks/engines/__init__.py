"""The bound engines side by side: which networks, how each engine is run, what is measured."""

"""The Boundscope workbench: a Qt window onto a daemon. Imports no torch."""

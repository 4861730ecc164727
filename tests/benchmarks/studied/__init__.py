"""What studies.py measures."""

"""The dock widgets around the centre, one a file."""

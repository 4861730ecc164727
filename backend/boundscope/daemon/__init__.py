"""The daemon: takes jobs, runs their ranks, keeps what they say. Imports no torch."""

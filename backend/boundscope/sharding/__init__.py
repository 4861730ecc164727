"""How the work of a job is spread over its ranks."""

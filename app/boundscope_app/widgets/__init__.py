"""Small widgets that know nothing of jobs or daemons."""

"""Matches by registration: `grouping` groups what is listed by event, `gatherer` does so while it searches."""

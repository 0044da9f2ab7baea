"""The filter language: text to predicate, and its meaning."""

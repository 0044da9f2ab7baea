"""The model: events, values, predicates and the filter language. No input or output here."""

"""Events against segments: which clauses they meet."""

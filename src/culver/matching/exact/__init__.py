"""Exact predicates: what a site tells the sites of its clusters about its subscriptions, clause by clause.

clause_covering   which clauses to keep: those that another one covers go
exact_predicate   what is advertised, and its text
exact_summary     keeps the sum of a site's predicates; encoded ones take over where it becomes too large
site_predicate    either kind, and how it is read
"""

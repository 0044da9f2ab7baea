"""Ways to route side by side, on W3.

site_traffic     bytes on links of 42 sites
site_strategies  b-drp and clusters, the two ways of production, on 5 to 100 sites
site_reach       how many sites an event reaches, by the number of predicates of a site
encoded_tables   size of encoded predicates, and time to match against them
"""

"""The gateways of one site: a process each, and what they and the site tell one another."""

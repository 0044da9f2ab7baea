"""The shell around the overlay's core: it joins the links, the log, the catalogue and the mailboxes of a site.

overlay_runner      carries out what the core decides; start here
message_traffic     messages on links
routing/            what differs between the ways to route
remote_mailboxes    the registrations and mailboxes of the other sites, or of clusters
effective_positions from where on this site's subscriptions are in effect at the others
local_predicates    what this site advertises
imported_events     events of other sites on their way to the log
false_positives     events of other sites that nobody here wanted
received_file       how far the log is in the logs of the others, on disk
overlay_report      the answer of /v1/overlay
"""

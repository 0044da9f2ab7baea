"""The decisions of the overlay, without input or output: production and the simulation drive the same objects.

overlay_messages    what sites say to one another
site_numbers        small numbers for sites, one table for each link
neighbours          the open links
link_states         who is linked with whom, and the shortest ways
packet_forwarding   packets for many sites, divided where their ways part
advertisement_book  the encoded predicates of all sites
outgoing_streams    from the mailboxes of other sites to packets
incoming_streams    from packets to the log
replaced_sites      sites that lost their data directories
node_instructions   what the shell is asked to do
outbox              the instructions of one call
overlay_node        all of these as one site
"""

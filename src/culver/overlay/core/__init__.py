"""The decisions of the overlay, without input or output: production and the simulation drive the same objects.

overlay_messages        what sites say to one another
site_numbers            small numbers for sites, one table for each link
neighbours              the open links
link_states             who is linked with whom, and the shortest ways
link_flood              how these spread
packet_forwarding       packets for many sites, divided where their ways part
advertisement_book      the encoded predicates of all sites
advertisement_exchange  how they travel
outgoing_streams        from the mailboxes of other sites to packets
stream_meetings         whether the others have said what they have of these streams
incoming_streams        from packets to the log
stream_arrivals         where the streams of others begin, and what may be missing of them
replaced_sites          sites that lost their data directories, are forgotten, or share a name
node_instructions       what the shell is asked to do
overlay_node            all of these as one site
"""

"""The membership of the overlay: every member knows all others, their addresses and their loads, by gossip alone.

The protocol follows SWIM (Das, Gupta, Motivala, 2002) and Lifeguard (Dadgar, Phillips, Currey, 2018), in the place of
BlueDove's gossip (section III-C). Nothing here does input or output, and time is passed in.

gossip_messages      what members say to one another
gossip_instructions  what the shell is asked to do
gossip_settings      periods, timeouts and limits
member_table         what is known of every member, and which of two statements wins
table_exchange       how two members make their tables equal
news_queue           recent changes that ride on other messages
probe_health         how well this member's own probes fare: round trips and lost answers
probe_schedule       who is probed next, and the probes that wait for their answers
suspicion_timers     how long a suspect has to object
gossip_checks        what a message must pass before anything of it counts
gossip_core          all of these as one member
lonely_dials         whom a site dials that is linked with nobody
"""

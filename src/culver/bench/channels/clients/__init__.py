"""The clients of the benchmark of the channels: hundreds in a process, each with connections of its own.

client_crowd       processes full of clients, and what they report
client_process     such a process: subscribers, publishers or players
bench_peers        a client of the channels, of plain redis-py and of sharded pub/sub
numbered_traffic   processes with one client each, whose every message is accounted for
numbered_client    such a process: a publisher or a subscriber
message_journal    what such a client writes down, and the account that is drawn from it
game_world         where players walk
wide_area          latencies of a wide-area network
"""

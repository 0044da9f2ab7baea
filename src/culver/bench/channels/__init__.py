"""`culver bench channels` repeats the evaluation of Dynamoth's paper (section V): real servers behind real limits.

channels_bench               runs the experiments in turn and draws their plots
channels_plan                how much to measure
dynamoth_paper               every number that the paper's text gives
channels_findings            our numbers beside the paper's
replication_experiment       experiment 1: figure 4, and one hot channel over several servers
game_experiments             experiments 2 and 3: figures 5 to 7; game_run plays, in a game_world
reconfiguration_experiment   messages lost in reconfigurations, beside slot_migrations of a Valkey cluster
analyser_cost                what the load analyser takes of a server's CPU
rival_systems                plain redis-py and sharded pub/sub, and what our client costs
bench_service                the service of the channels for one measurement
limited_servers              its servers; server_networks and rate_proxy limit what they send
clients/                     processes full of clients, and the world of the game
"""

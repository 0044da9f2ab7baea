"""Every number that the text of Dynamoth's paper gives (section V). What it only draws is left out."""

MOST_CLIENTS = 800
PUBLICATIONS_PER_SECOND = 10.0

#: Figure 4(a), subscribers: one server falls behind above this number, three bear all.
SUBSCRIBERS_OF_ONE_SERVER = 500
SUBSCRIBERS_OF_THREE = 800

#: Figure 4(b), publishers that one server bears, and three.
PUBLISHERS_OF_ONE_SERVER = 200
PUBLISHERS_OF_THREE = 600

#: Figures 5 and 6.
UPDATES_PER_SECOND = 3.0
SERVERS = 8
BEARABLE_MS = 150.0
USUAL_RESPONSE_MS = 75.0
PLAYERS = {"dynamoth": 1_000, "consistent-hashing": 625}
MORE_PLAYERS_PERCENT = 60.0

#: Figure 7, players at its turning points.
ELASTIC_PLAYERS = (800, 200, 600)

"""How a client receives.

received_messages    what readers get
message_buffer       what has come and is not yet taken
streams              what readers iterate over
item_supply          what streams read from
acknowledgements     sends the newest acknowledgement, one at a time
subscription_source  one subscription: how it is attached, and attached again
feed                 feeds the stream of one subscription
group_selection      which subscriptions a group follows
group_progress       what has come from a group at one gateway, and what may be acknowledged
group_part           a group at one gateway
group_feed           feeds the stream of a group from all gateways
"""

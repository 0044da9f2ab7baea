"""Sites in processes of their own: figures that one machine bears, and what a message costs a broker.

real_figures   figure 3, and figure 5 as far as one machine bears it
real_brokers   linked sites; link_proxy limits their links
client_ramp    clients that publish at a growing rate and count what they get
broker_costs   what a message costs a real broker
"""

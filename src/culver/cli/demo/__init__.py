"""What `culver demo` starts and shows.

demo_sites     sites as processes of their own, in a temporary directory
attended_site  such a process, which ends with the demo
site_chain     how the sites of the overlay's demo are linked, and the drawings of it
overlay_show   the overlay's demo itself
"""

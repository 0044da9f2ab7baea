"""What decides: pure objects without sockets or clocks, which production, tests and the simulation drive alike."""

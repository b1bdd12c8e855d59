"""The same machines on a virtual clock, with seeded faults and checks of every step."""

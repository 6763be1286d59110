"""What arrives, when, and for how long it waits; and a driver that plays it to a competitor."""

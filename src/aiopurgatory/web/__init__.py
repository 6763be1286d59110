"""Around the web: each module stands by itself, and needs what its own docstring says."""

"""What ours is compared with, each written from its description and at its best settings."""

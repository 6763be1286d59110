"""Activity per minute: sums that can be added, and the measures computed from them."""

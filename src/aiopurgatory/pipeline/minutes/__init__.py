"""What happened per minute: sums that add up, and what is measured from them."""

"""The join-group barrier: members wait for each other, then continue together as a generation."""

"""What a run writes down: its folder, and the console."""

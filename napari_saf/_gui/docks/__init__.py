"""What all docks have in common: runs, tasks, keys, help, their end."""

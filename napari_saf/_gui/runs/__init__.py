"""Runs in a thread of their own: started, followed, stopped."""

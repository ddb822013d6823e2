"""Sends the messages of push subscriptions while their windows have space. Commits free space."""

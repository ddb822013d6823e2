"""Push subscriptions: send messages as long as the window has room; commits make room for more."""

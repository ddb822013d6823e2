"""Push subscriptions: what was committed decides how much more is sent."""

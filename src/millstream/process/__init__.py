"""What every process of ours has, broker or gateway: settings, logs, metrics, signals, an end with its parent."""

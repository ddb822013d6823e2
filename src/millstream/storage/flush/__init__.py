"""Makes appends durable: group commit, the journal, checkpoints, and the marks that recovery starts from."""

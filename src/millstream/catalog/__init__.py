"""What brokers must agree on: who is there, which topics exist, who leads what, which ids are given out."""

"""Clusters made by a call: several brokers on this machine, as processes of one supervisor."""

"""The classic protocol: members gather, one of them shares out the partitions, the group passes on what it says."""

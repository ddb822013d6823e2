"""The new group protocol (KIP-848): the broker shares out the partitions, members come to terms with it one by one."""

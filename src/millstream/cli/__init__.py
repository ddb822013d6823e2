"""The command line, one file per command group. A command imports what it needs when it runs."""

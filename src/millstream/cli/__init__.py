"""The command line, one file for each group of commands. What a command needs is imported when it runs, not before."""

"""Where batches lie: segments and their index, the journal, checkpoints, recovery, and the seam to the disk."""

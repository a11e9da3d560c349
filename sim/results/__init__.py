"""What a run measured: collected step by step, summed over the run and over its segments."""

"""Instructions on a task's test split: scores with intervals, paired tests, the report."""

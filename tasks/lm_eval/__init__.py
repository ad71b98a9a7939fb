"""Our lm-eval tasks: one base file, one small file a task, two groups, and the functions that the files name."""

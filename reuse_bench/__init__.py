"""The front door: the command line, and the only place that imports all four packages."""

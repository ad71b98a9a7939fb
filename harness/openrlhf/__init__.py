"""OpenRLHF 0.11.2: command line, actors, loss, reward, and what a CPU needs."""

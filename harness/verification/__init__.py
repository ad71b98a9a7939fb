"""The checks of `harness.verify`, one job a module. Each takes a record and adds what it finds to its `Checked`."""

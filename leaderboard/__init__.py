"""What records say: tables, statistics, claims, charts, pages."""

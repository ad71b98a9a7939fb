"""What the pages show, as data: runs and boards (`boards`), tables (`tables`), figures (`figures`), pages (`views`).

Nothing here writes HTML; the templates do. `leaderboard.site` puts both together.
"""

"""What the pages show, as data: runs and boards (`boards`), tables (`tables`), figures (`figures`), pages (`views`).

What several pages need is computed once (`content`). Nothing here writes HTML; the templates do.
`leaderboard.site` puts both together.
"""

"""Makes ``tox -l`` list every environment with its description: tox itself names the default ones, without."""

from __future__ import annotations

from typing import Any

from tox.plugin import impl


@impl
def tox_add_core_config(core_conf: Any, state: Any) -> None:
    """Turn ``tox -l`` into ``tox -a -v``."""
    options = state.conf.options
    if getattr(options, "list_envs", False):
        options.list_envs_all = True
        options.verbose += 1

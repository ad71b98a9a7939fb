"""A pytest plugin for packages that bring a method: the fixture ``conformance_row``, one test for each row.

>>> @pytest.mark.reuse_bench("my_loss")                 # a name, a Method class or an instance of one
... def test_contract(conformance_row):
...     assert conformance_row.status != "fails", conformance_row
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from methods.conformance import Row
    from methods.contract import Method

FIXTURE = "conformance_row"


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line("markers", "reuse_bench(method): the method whose contract `conformance_row` checks")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test for each row of the contract."""
    if FIXTURE in metafunc.fixturenames:
        from methods.conformance import CHECKS

        metafunc.parametrize(FIXTURE, CHECKS, indirect=True)


@pytest.fixture
def conformance_row(request: pytest.FixtureRequest) -> Row:
    """The row of the contract, checked on the method that the marker ``reuse_bench`` names."""
    from methods.conformance import check_row

    marker = request.node.get_closest_marker("reuse_bench")
    if marker is None or len(marker.args) != 1:
        pytest.fail("mark the test with @pytest.mark.reuse_bench(NAME): the method to check", pytrace=False)
    return check_row(_instance(marker.args[0]), request.param)


def _instance(method: Any) -> Method:
    from methods import Method, get

    if isinstance(method, Method):
        return method
    return (get(method) if isinstance(method, str) else method)()

"""Houses, as the tests of the local engine have them."""

from __future__ import annotations

from integration.local.conftest import house, private_networks, stranger

__all__ = ["house", "private_networks", "stranger"]

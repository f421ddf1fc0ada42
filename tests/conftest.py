"""What every test of the project shares."""

import pytest


@pytest.fixture
def anyio_backend() -> str:
    """Run tests that are marked `anyio` on asyncio, the only event loop that soev supports."""
    return "asyncio"

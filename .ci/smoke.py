"""Import the installed packages and check what only an installation can show."""

import pkgutil
import sys
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path

import soev

PACKAGES = [each.name for each in pkgutil.iter_modules(soev.__path__, "soev.")] + ["pytest_soev"]


def main() -> None:
    """Fail when a name, a type marker or the plugin's entry point is missing."""
    for name in PACKAGES:
        package = import_module(name)
        for each in package.__all__:
            getattr(package, each)
    for name in ("soev", "pytest_soev"):
        marker = Path(str(import_module(name).__file__)).with_name("py.typed")
        assert marker.exists(), f"{name} was installed without its py.typed"
    assert "soev" in {each.name for each in entry_points(group="pytest11")}
    version = ".".join(map(str, sys.version_info[:3]))
    print(f"soev {soev.__version__} on Python {version}: {len(PACKAGES)} packages import")


if __name__ == "__main__":
    main()

"""Hold the public names of each package to the lists in `docs/api`.

Run as a program (`make api`), this module writes the lists anew.
"""

import pickle
import pkgutil
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent
LISTS = ROOT / "docs" / "api"


def public_packages() -> Iterator[str]:
    """Yield the packages of the API that exist, `soev.domain` and its siblings first."""
    for module in sorted(pkgutil.iter_modules([str(ROOT / "src" / "soev")], "soev.")):
        if not module.name.rpartition(".")[2].startswith("_"):
            yield module.name
    if (ROOT / "src" / "pytest_soev" / "__init__.py").exists():
        yield "pytest_soev"


PACKAGES = list(public_packages())


def public_names(package: ModuleType) -> list[str]:
    """Return the names that a package exports, duplicates included."""
    return sorted(getattr(package, "__all__", ()))


@pytest.mark.parametrize("name", PACKAGES)
def test_exports_are_the_documented_names(name: str) -> None:
    """A package exports exactly the names that its list in `docs/api` has."""
    documented = (LISTS / f"{name}.txt").read_text("utf-8").split()
    assert public_names(import_module(name)) == documented, "if this is meant, run `make api`"


@pytest.mark.parametrize("name", PACKAGES)
def test_every_exported_name_exists(name: str) -> None:
    """Each name in `__all__` can be taken from the package."""
    package = import_module(name)
    assert [each for each in public_names(package) if not hasattr(package, each)] == []


def test_every_list_has_a_package() -> None:
    """No list in `docs/api` describes a package that is gone."""
    assert sorted(path.stem for path in LISTS.glob("*.txt")) == sorted(PACKAGES)


@pytest.mark.parametrize("name", [each for each in PACKAGES if each.startswith("soev.")])
def test_public_classes_pickle_by_a_path_that_imports(name: str) -> None:
    """A public class is found again by the path that pickle writes for it."""
    package = import_module(name)
    for each in public_names(package):
        exported = getattr(package, each)
        if isinstance(exported, type):
            assert pickle.loads(pickle.dumps(exported)) is exported


def write_lists() -> None:
    """Write the list of every package from what it exports now."""
    LISTS.mkdir(parents=True, exist_ok=True)
    for name in PACKAGES:
        lines = [f"{each}\n" for each in public_names(import_module(name))]
        (LISTS / f"{name}.txt").write_text("".join(lines), "utf-8")


if __name__ == "__main__":
    write_lists()

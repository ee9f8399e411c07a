"""Loading of an application by name, and errors if there is none."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fiveways.app.app import App
from fiveways.app.loader import LoadError, load_app

MODULES = {
    "fw_good.py": "from fiveways.app.app import App\napp = App()\nclass inner:\n    other = App()\n",
    "fw_named.py": "from fiveways.app.app import App\nservice = App()\n",
    "fw_wrong.py": "app = {}\n",
    "fw_empty.py": "",
    "fw_raises.py": "def f():\n    return 1 / 0\n\nf()\n",
    "fw_wants.py": "import fw_never_there\n",
    "fw_syntax.py": "def f(:\n",
    "fw_exits.py": "import sys\nsys.exit(3)\n",
    "fw_pack/__init__.py": "",
    "fw_pack/deep.py": "from fiveways.app.app import App\napp = App()\n",
}


@pytest.fixture(autouse=True)
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name, text in MODULES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("fw_")]:
        del sys.modules[name]


@pytest.mark.parametrize("name", ["fw_good:app", "fw_good", "fw_good:inner.other", "fw_pack.deep:app"])
def test_application_is_loaded_from_the_current_directory(name: str) -> None:
    assert isinstance(load_app(name), App)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("fw_none:app", "there is no module 'fw_none' (searched in {here} and in the Python path)"),
        ("fw_pack.none:app", "there is no module 'fw_pack.none' (searched in {here} and"),
        ("fw_good.deep:app", "there is no module 'fw_good.deep' (searched in {here} and"),
        ("fw_empty:app", "the module fw_empty has no 'app'"),
        ("fw_named:app", "the module fw_named has no 'app'; it has fw_named:service"),
        ("fw_wrong:app", "fw_wrong:app is a dict, not a fiveways.App"),
        (
            "fw_raises:app",
            "the module fw_raises cannot be imported: ZeroDivisionError: division by zero at {here}/fw_raises.py:2",
        ),
        (
            "fw_wants:app",
            "the module fw_wants cannot be imported: ModuleNotFoundError: No module named 'fw_never_there'",
        ),
        ("fw_syntax:app", "the module fw_syntax cannot be imported: SyntaxError: "),
        ("fw_exits:app", "the module fw_exits cannot be imported: SystemExit: 3"),
        ("fw_good.py:app", "'fw_good.py' is a file; name the module: fw_good:app"),
        ("./fw_pack/deep.py", "'./fw_pack/deep.py' is a file; name the module: fw_pack.deep:app"),
        ("", "'' is not of the form module:app"),
        ("a b:app", "'a b:app' is not of the form module:app"),
    ],
)
def test_error_names_the_missing_part(name: str, sentence: str, modules: Path) -> None:
    with pytest.raises(LoadError) as caught:
        load_app(name)
    assert str(caught.value).startswith(sentence.format(here=modules))

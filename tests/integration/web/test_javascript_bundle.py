"""The bundle and the generated tables are current, and the bundler refuses syntax that it does not accept."""

from pathlib import Path

import pytest

from scripts.javascript_bundle import BundleError, bundle
from scripts.javascript_tables import tables
from tests.integration.web.engines import MODULE

CLIENT = MODULE.parent / "client"
STALE = "stale: run `make web`"
GOOD = 'import { a } from "./a.js";\n\nexport const b = a / 2;\n'


def bundled(folder: Path, **modules: str) -> str:
    """Bundle modules with these names and texts; the default `index` re-exports `b`."""
    texts = {"index": 'export { b } from "./b.js";\n', "a": "export const a = 1;\n", "b": GOOD, **modules}
    for name, text in texts.items():
        (folder / f"{name}.js").write_text(text, encoding="utf-8")
    return bundle(folder / "index.js")


def test_tables_are_current() -> None:
    assert (CLIENT / "tables.js").read_text(encoding="utf-8") == tables(), STALE


def test_bundle_is_current() -> None:
    assert MODULE.read_text(encoding="utf-8") == bundle(CLIENT / "index.js"), STALE


def test_modules_are_short() -> None:
    lengths = {path.name: len(path.read_text(encoding="utf-8").splitlines()) for path in CLIENT.rglob("*.js")}
    assert {name: length for name, length in lengths.items() if length > 400} == {}


def test_bundle_has_dependencies_first_and_exports_last(tmp_path: Path) -> None:
    text = bundled(tmp_path)
    assert "import" not in text
    assert text.index("const a = 1;") < text.index("const b = a / 2;") < text.index("export { b };")


@pytest.mark.parametrize(
    "code",
    [
        "export const b = `x${a}y${`${a}`}`;",
        'export const b = /["/`]import/.test(`${a}`) ? a : "export";',
        "// import x\n/* export y */\nexport const b = (a) / 2 / a;",
        "export async function b() {\n  return { a, import: a }.import;\n}",
        "export class b {\n  #a = a;\n  a() {\n    return this.#a;\n  }\n}",
        "const other = [a, 2];\nexport function* b() {\n  yield* other;\n}",
    ],
)
def test_syntax_of_the_client_is_understood(tmp_path: Path, code: str) -> None:
    assert bundled(tmp_path, b=f'import {{ a }} from "./a.js";\n{code}\n').count("export {") == 1


@pytest.mark.parametrize(
    ("module", "error"),
    [
        (GOOD.replace("{ a }", "{ a as c }"), "not understood"),
        (GOOD.replace("{ a }", "* as a"), "not understood"),
        (GOOD.replace("{ a }", "a"), "not understood"),
        (GOOD.replace("./a.js", "a"), "not understood"),
        (GOOD.replace("./a.js", "./c.js"), "not a module"),
        (GOOD.replace("./a.js", "./b.js"), "import cycle"),
        (GOOD.replace("{ a }", "{ c }"), "does not export"),
        (GOOD + "export default b;\n", "not understood"),
        (GOOD + "export { b as d };\n", "not understood"),
        (GOOD + 'const c = () => import("./a.js");\n', "not understood"),
        (GOOD + "const c = import.meta;\n", "not understood"),
        (GOOD + "const { c } = b;\n", "not understood"),
        (GOOD + "var c = 1;\n", "not understood"),
        (GOOD + "const c = 1, d = 2;\n", "one name at a time"),
        (GOOD + "const c = class {};\n", "not understood"),
        (GOOD + "const c = @;\n", "not understood"),
        (GOOD + "const c = (1];\n", "unbalanced"),
        (GOOD + "const c = (1;\n", "unbalanced"),
        ("export const b = a;\n", "nothing imports a.js"),
        ('import { a } from "./a.js";\nexport const b = 1;\n', "does not use it"),
        (GOOD + "function a() {}\n", "is declared in"),
    ],
)
def test_other_syntax_is_refused(tmp_path: Path, module: str, error: str) -> None:
    with pytest.raises(BundleError, match=error):
        bundled(tmp_path, b=module)


def test_name_of_another_module_must_be_imported(tmp_path: Path) -> None:
    index = 'import { a } from "./a.js";\nexport { b } from "./b.js";\nconst c = a;\n'
    with pytest.raises(BundleError, match="uses a of other modules"):
        bundled(tmp_path, index=index, b="export const b = a;\n")


def test_only_the_entry_may_reexport(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="re-exports"):
        bundled(tmp_path, b='export { a } from "./a.js";\nexport const b = 1;\n')

"""scripts/programs installs missing programs as root, and names them otherwise."""

from pathlib import Path

import pytest

from tests.tools.scripts.machines import Machine

PACKAGES = {
    "openjdk_17_jre_headless": "java",
    "chromium_headless_shell": "chromium-headless-shell",
    "nodejs": "node",
    "curl": "curl",
}


@pytest.fixture
def user(tmp_path: Path) -> Machine:
    machine = Machine(tmp_path, 1000)
    machine.add_program("mosquitto")  # the scripts also search /usr/sbin, which may have it
    return machine


@pytest.fixture
def root(tmp_path: Path) -> Machine:
    machine = Machine(tmp_path, 0)
    machine.add_program("mosquitto")
    machine.add_program("openssl")
    return machine


def add_library(machine: Machine) -> None:
    machine.add_program("ldconfig", "echo '\tlibatomic.so.1 (libc6,x86-64) => /lib/libatomic.so.1'", recorded=False)


def test_user_without_java_is_warned_about_the_missing_report(user: Machine) -> None:
    code, lines, _ = user.run("programs", "run", CI="true")
    assert code == 0
    assert lines == [
        "programs: missing: java",
        "programs: the demo creates no tables and no report without java",
    ]


def test_nothing_is_printed_if_nothing_is_missing(user: Machine) -> None:
    user.add_program("java")
    assert user.run("programs", "run") == (0, [], "")


def test_user_gets_the_command_that_installs_every_missing_program(user: Machine) -> None:
    user.add_program("apt-get")
    code, lines, _ = user.run("programs", "test")
    assert code == 0
    packages = "openssl openjdk-17-jre-headless chromium-headless-shell libatomic1 nodejs curl node-ws"
    command = f"sudo apt-get install --no-install-recommends {packages}"
    assert lines == [
        f"programs: missing: openssl java chromium libatomic.so.1 node curl; install with: {command}",
        "programs: the tests that need them are skipped",
    ]
    assert user.calls == []


def test_missing_program_fails_if_no_test_may_be_skipped(user: Machine) -> None:
    code, lines, _ = user.run("programs", "test", CI="true")
    assert code == 1
    assert lines[-1] == "programs: with CI=true no test may be skipped, so this is a failure"
    assert "chromium" in lines[0]


def test_library_of_playwright_counts_as_a_program(user: Machine) -> None:
    for name in ("openssl", "java", "chromium", "node", "curl"):
        user.add_program(name)
    assert user.run("programs", "test").lines[0] == "programs: missing: libatomic.so.1"
    add_library(user)
    assert user.run("programs", "test") == (0, [], "")


@pytest.mark.parametrize("program", ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"])
def test_any_chromium_is_accepted(user: Machine, program: str) -> None:
    for name in ("openssl", "java", program, "node", "curl"):
        user.add_program(name)
    add_library(user)
    assert user.run("programs", "test") == (0, [], "")


def test_root_installs_only_missing_packages_and_upgrades_nothing(root: Machine) -> None:
    add_library(root)
    root.add_apt_get(**PACKAGES)
    code, lines, log = root.run("programs", "test", CI="true")
    assert code == 0
    missing = "openjdk-17-jre-headless chromium-headless-shell nodejs curl node-ws"
    options = f"--no-upgrade --no-install-recommends {missing}"
    assert root.calls == ["apt-get update", f"apt-get --simulate install {options}", f"apt-get install -y {options}"]
    assert lines == [
        f"programs: details are in {root.tree}/.cache/programs.log",
        "programs: updating the lists of Debian packages",
        f"programs: installing Debian packages: {missing}",
    ]
    assert log.count("noise 49\n") == 2


def test_unavoidable_upgrade_is_announced(root: Machine) -> None:
    root.add_program(
        "apt-get", 'case "$1" in --simulate) echo "Inst libssl3 [1.0] (2.0 Debian)"; echo "Inst java (17)" ;; esac'
    )
    assert "programs: apt-get has to upgrade these as well: libssl3" in root.run("programs", "run").lines


@pytest.mark.parametrize(("variables", "expected"), [({}, 0), ({"CI": "true"}, 1)])
def test_failed_installation_shows_the_end_of_its_log(root: Machine, variables: dict[str, str], expected: int) -> None:
    root.add_program("apt-get", 'for number in 1 2 3 4 5 6 7 8 9; do echo "trouble $number"; done; exit 100')
    code, lines, _ = root.run("programs", "test", **variables)
    assert code == expected
    assert "programs: this failed: apt-get update" in lines
    assert "    trouble 9" in lines
    assert any(line.startswith("programs: missing: java chromium") for line in lines)


def test_unknown_argument_exits_with_2(user: Machine) -> None:
    assert user.run("programs", "nonsense").code == 2

#!/usr/bin/env python3
"""What the build needs and this machine lacks is told in one run, with its names: missing_test.py CMAKE

Things are hidden from CMake by its own switches, from the shell by PATH.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

CMAKE = None
ROOT = pathlib.Path(__file__).resolve().parents[2]
TABLE = {}
for line in (ROOT / "launch/packages.txt").read_text().splitlines():
    if not line.startswith("#"):
        name, *columns = [part.strip() for part in line.split("|")]
        TABLE[name] = columns  # what, Debian, RHEL, Spack, header
PACKAGES = ("MPI", "HDF5", "Boost", "nlohmann_json", "OpenSSL", "Eigen3", "OpenMP", "GTest")
LIBRARIES = set(TABLE) - {"cmake", "compiler", "ninja", "pkg-config"}


class Missing(unittest.TestCase):
    longMessage = True

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="tandem-missing-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def configure(self, *options, **environment):
        clean = {name: value for name, value in os.environ.items() if name not in ("CC", "CXX", "CPATH")}
        return subprocess.run([CMAKE, "-S", ROOT, "-B", self.folder / "build", "-G", "Ninja", "-DTANDEM_CHECK=ON", *options],
                              capture_output=True, text=True, timeout=60, env={**clean, **environment})

    def assert_missing(self, done, names):
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(done.stderr.count("CMake Error"), 1, done.stderr)
        lines = [line.split() for line in done.stderr.splitlines()]
        installs = {words[0]: set(words[2:]) for words in lines if words[1:2] == ["install"]}
        for name, (what, debian, rhel, spack, _) in TABLE.items():
            self.assertEqual(f"    {what} " in done.stderr, name in names, f"{name}: {done.stderr}")
            if name in names:
                self.assertLessEqual(set(debian.split()), installs["apt-get"])
                self.assertIn(rhel, installs["dnf"])
                self.assertIn(spack, installs["spack"])

    def tools(self, *names):
        """A folder with these programs only, for PATH."""
        here = self.folder / "bin"
        here.mkdir()
        for name in names:
            (here / name).symlink_to(shutil.which(name))
        return str(here)

    def test_every_library_is_named_in_one_run(self):
        hidden = [f"-DCMAKE_DISABLE_FIND_PACKAGE_{package}=ON" for package in PACKAGES]
        done = self.configure(*hidden, "-DCMAKE_IGNORE_PREFIX_PATH=/usr;/;/usr/local",
                              f"-DCMAKE_C_COMPILER={shutil.which('gcc')}", f"-DCMAKE_CXX_COMPILER={shutil.which('g++')}",
                              f"-DPKG_CONFIG_EXECUTABLE={shutil.which('pkg-config')}", PKG_CONFIG_LIBDIR="/nonexistent")
        self.assert_missing(done, LIBRARIES)

    def test_googletest_is_asked_for_by_tests_only(self):
        self.assert_missing(self.configure("-DCMAKE_DISABLE_FIND_PACKAGE_GTest=ON"), {"gtest"})
        done = self.configure("-DCMAKE_DISABLE_FIND_PACKAGE_GTest=ON", "-DTANDEM_TESTS=OFF")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_without_a_compiler_the_rest_is_named_all_the_same(self):
        done = self.configure(PATH=self.tools("env"), CPATH="/nonexistent")
        self.assertNotEqual(done.returncode, 0)
        for name in ("compiler", "ninja", "pkg-config"):
            self.assertIn(f"    {TABLE[name][0]} ", done.stderr)
        self.assertNotIn(f'    {TABLE["json"][0]} ', done.stderr)  # its header is here
        self.assertEqual(done.stderr.count("CMake Error"), 1, done.stderr)

    def test_an_old_compiler_is_one_of_what_is_missing(self):
        old = self.folder / "g++"
        old.write_text('#!/bin/sh\nexec g++ -U__GNUC__ -D__GNUC__=9 "$@"\n')
        old.chmod(0o755)
        done = self.configure(f"-DCMAKE_CXX_COMPILER={old}", "-DCMAKE_DISABLE_FIND_PACKAGE_nlohmann_json=ON")
        self.assert_missing(done, {"compiler", "json"})
        self.assertIn("GCC 9.", done.stderr)
        self.assertIn("CXX=g++-12", done.stderr)

    def test_an_old_cmake_is_one_of_what_is_missing(self):
        script = self.folder / "old.cmake"
        script.write_text(f"set(CMAKE_VERSION 3.22.1)\ninclude({ROOT}/cmake/requirements.cmake)\ntandem_look_before_project()\n"
                          "tandem_missing(hdf5)\ntandem_stop_if_missing()\n")
        done = subprocess.run([CMAKE, "-P", script], capture_output=True, text=True, timeout=60)
        self.assert_missing(done, {"cmake", "hdf5"})
        self.assertIn("3.22.1", done.stderr)

    def check(self, **environment):
        return subprocess.run([shutil.which("bash"), ROOT / "launch/packages.sh", "--check"], capture_output=True, text=True,
                              timeout=60, env={**os.environ, **environment})

    def test_the_script_says_the_same(self):
        done = self.check()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("all is here", done.stdout)
        done = self.check(CC=str(self.folder / "absent"), PATH=self.tools(
            "bash", "dirname", "awk", "sed", "sort", "head", "cut", "mktemp", "grep", "rm", "cmake", "ninja"))
        self.assertEqual(done.returncode, 3)
        self.assertIn(TABLE["compiler"][0], done.stderr)

    def test_without_cmake_the_script_names_all_there_is(self):
        done = self.check(PATH=self.tools("bash", "dirname", "awk", "sed", "sort", "head", "cut"))
        self.assertEqual(done.returncode, 3)
        for what, debian, rhel, spack, _ in TABLE.values():
            self.assertTrue(any(what in line and debian in line and rhel in line and spack in line
                                for line in done.stderr.splitlines()), f"{what}: {done.stderr}")


if __name__ == "__main__":
    CMAKE = sys.argv.pop(1)
    unittest.main(verbosity=2)

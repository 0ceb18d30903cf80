#!/usr/bin/env python3
"""The Spack recipe against launch/packages.txt, with stand-ins for what recipes import from Spack."""
import importlib.util
import pathlib
import re
import sys
import types
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
REPO = ROOT / "launch/spack/spack_repo/tandem"
DIRECTIVES = ("license", "version", "variant", "generator", "depends_on", "conflicts")


def load_recipe():
    """The recipe's class and the calls of each directive."""
    calls = {name: [] for name in DIRECTIVES}
    package = types.ModuleType("spack.package")
    for name in DIRECTIVES:
        setattr(package, name, lambda *words, directive=name, **options: calls[directive].append((words, options)))
    cmake = types.ModuleType("spack_repo.builtin.build_systems.cmake")
    cmake.CMakePackage = type("CMakePackage", (), {
        "define_from_variant": lambda self, option, variant: (option, variant)})
    modules = {"spack": types.ModuleType("spack"), "spack.package": package, cmake.__name__: cmake}
    for name in ("spack_repo", "spack_repo.builtin", "spack_repo.builtin.build_systems"):
        modules[name] = types.ModuleType(name)
    sys.modules.update(modules)
    spec = importlib.util.spec_from_file_location("recipe", REPO / "packages/tandem/package.py")
    recipe = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(recipe)
    return recipe.Tandem, calls


class Spack(unittest.TestCase):
    def setUp(self):
        self.recipe, self.calls = load_recipe()

    def test_it_depends_on_what_the_build_looks_for(self):
        rows = [[part.strip() for part in line.split("|")] for line in (ROOT / "launch/packages.txt").read_text().splitlines()
                if not line.startswith("#")]
        listed = {re.match(r"[a-z0-9-]+", row[4]).group() for row in rows}
        # Spack's names for a kind: its compilers, pkg-config and MPI.
        kinds = {"gcc": {"c", "cxx"}, "pkgconf": {"pkgconfig"}, "openmpi": {"mpi"}}
        expected = set().union(*(kinds.get(name, {name}) for name in listed))
        asked = {re.match(r"[a-z0-9-]+", words[0]).group() for words, _ in self.calls["depends_on"]}
        self.assertEqual(asked, expected)
        self.assertIn((("%gcc@:11",), {"msg": "C++20 as Tandem uses it needs GCC 12"}), self.calls["conflicts"])

    def test_its_options_are_options_of_the_build(self):
        variants = {words[0] for words, _ in self.calls["variant"]}
        options = (ROOT / "CMakeLists.txt").read_text()
        for option, variant in self.recipe().cmake_args():
            self.assertIn(variant, variants)
            self.assertRegex(options, rf"(option|set)\({option} ")

    def test_it_builds_the_checkout_that_it_lies_in(self):
        self.assertEqual(self.recipe.git, ROOT.as_uri())
        self.assertEqual((REPO / "repo.yaml").read_text(), "repo:\n  namespace: tandem\n  api: v2.0\n")


if __name__ == "__main__":
    unittest.main(verbosity=2)

#!/usr/bin/env python3
"""Installs a build into a home folder as a user without root, and works there: install_test.py CMAKE BUILD

Run by root it becomes a user that the system does not know (as containers have them); run by another it stays who it is.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

CMAKE = BUILD = None
ROOT = pathlib.Path(__file__).resolve().parents[2]
SKIPPED = 77
USER = 54321 if os.geteuid() == 0 else os.geteuid()
# Where anybody may write.
SHARED = [pathlib.Path(name) for name in ("/tmp", "/var/tmp", "/dev/shm", "/run/lock")]


def as_user():
    if os.geteuid() != 0:
        return []
    return ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--no-new-privs"]


def files_of_user(folders, beside):
    found = set()
    for top in folders:
        for folder, folders_here, files in os.walk(top):
            folders_here[:] = [name for name in folders_here if pathlib.Path(folder, name) != beside]
            for name in folders_here + files:
                try:
                    if os.lstat(os.path.join(folder, name)).st_uid == USER:
                        found.add(os.path.join(folder, name))
                except OSError:
                    pass
    return found


class Install(unittest.TestCase):
    longMessage = True

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="tandem-install-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.folder.chmod(0o755)
        self.home = self.folder / "home of user"
        self.home.mkdir(mode=0o700)
        os.chown(self.home, USER, -1)
        self.prefix = self.home / "tandem"
        self.checkout()
        self.before = files_of_user(SHARED, self.folder)

    def checkout(self):
        """The user's own sources and build: copies, as those of this test may lie where only root looks."""
        self.sources = self.home / "sources"
        built = self.sources / "build"
        shutil.copytree(ROOT, self.sources, symlinks=True, ignore=lambda folder, names:
                        [name for name in names if name in (".git", "build", "runs", "__pycache__")])
        for script in BUILD.rglob("cmake_install.cmake"):
            copy = built / script.relative_to(BUILD)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(script.read_text().replace(str(BUILD), str(built)).replace(str(ROOT), str(self.sources)))
        shutil.copy(BUILD / "tandem", built)
        (built / "generated").mkdir()
        shutil.copy(BUILD / "generated/modulefile", built / "generated")
        for path in [self.sources, *self.sources.rglob("*")]:
            os.chown(path, USER, -1, follow_symlinks=False)

    def run_as_user(self, *words, code=0, **environment):
        clean = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(self.home), "OMP_WAIT_POLICY": "passive", **environment}
        done = subprocess.run(as_user() + [str(word) for word in words], cwd=self.home, env=clean, text=True,
                              capture_output=True, timeout=60, umask=0o022)
        self.assertEqual(done.returncode, code, f"{words}\n{done.stdout}\n{done.stderr}")
        return done

    def install(self):
        return self.run_as_user(CMAKE, "--install", self.sources / "build", "--prefix", self.prefix).stdout

    def assert_nothing_elsewhere(self):
        new = files_of_user(SHARED, self.folder) - self.before
        self.assertEqual(new, set())

    def test_a_user_installs_trains_moves_and_deletes_it(self):
        self.install()
        shutil.move(self.sources, self.folder / "gone")  # what was installed needs nothing of them
        tandem = self.prefix / "bin/tandem"
        self.assertIn("tandem ", self.run_as_user(tandem, "--version").stdout)
        self.assertEqual(sorted(path.name for path in self.prefix.iterdir()), ["bin", "share"])

        # A site's folder that users cannot write.
        for path in [self.prefix, *self.prefix.rglob("*")]:
            path.chmod(path.stat().st_mode & ~0o222)
        shutil.copytree(self.prefix / "share/tandem/configs", self.home / "configs")
        for path in [self.home / "configs", *(self.home / "configs").rglob("*")]:
            path.chmod(path.stat().st_mode | 0o200)
            os.chown(path, USER, -1)
        mpirun = [self.prefix / "bin/tandem-mpirun", "-np", 2, "tandem"]  # not in PATH: the one beside it
        options = ["train", "--config", "configs/tiny.cfg", "--model", "model", "--train.updates", 4]
        self.run_as_user(tandem, "init-model", "--preset", "tiny", "--out", "model")
        self.assertIn("on 2 ranks", self.run_as_user(*mpirun, *options, "--run.out", "run").stderr)
        self.run_as_user(tandem, "inspect", "--validate", "run")
        self.assertIn("none.jsonl", self.run_as_user(*mpirun, *options, "--data.train", "none.jsonl", "--run.out", "bad",
                                                     code=3).stderr.splitlines()[-1])
        refused = self.run_as_user(tandem, *options, "--run.out", "tandem/share/run", code=3).stderr
        self.assertIn("tandem/share", refused.splitlines()[-1])

        for path in [self.prefix, *self.prefix.rglob("*")]:
            path.chmod(path.stat().st_mode | 0o200)
        moved = self.home / "elsewhere"
        self.prefix.rename(moved)
        self.run_as_user(moved / "bin/tandem-mpirun", "-np", 2, "tandem", *options, "--run.out", "again")
        self.assertEqual(*((self.home / run / "adapter/adapter_model.safetensors").read_bytes() for run in ("run", "again")))
        link = self.home / "link"
        link.symlink_to(moved / "bin/tandem-mpirun")
        self.run_as_user(link, "-np", 1, "tandem", "--version")

        strangers = [path for path in self.home.rglob("*") if path.lstat().st_uid != USER and path != link]
        self.assertEqual(strangers, [])
        self.run_as_user("rm", "-r", moved)
        self.assertEqual(sorted(path.name for path in self.home.iterdir()),
                         ["again", "configs", "link", "model", "run"])
        self.assert_nothing_elsewhere()

    def test_job_scripts_find_the_program_and_an_edited_site_file_stays(self):
        self.install()
        slurm = self.prefix / "share/tandem/slurm"
        found = self.run_as_user("bash", "-c", 'source "$1/job.sh" && echo "$tandem" && find_program tandem-mpirun '
                                 '../../../bin ../launch', "bash", slurm).stdout
        self.assertEqual(found.splitlines(), [str(self.prefix / "bin" / name) for name in ("tandem", "tandem-mpirun")])
        self.assertNotIn("Kept", self.install())
        site = slurm / "site.env"
        site.write_text(site.read_text() + "TANDEM_LAUNCHER=mpirun\n")
        self.assertIn("Kept", self.install())
        self.assertTrue(site.read_text().endswith("TANDEM_LAUNCHER=mpirun\n"))
        self.assertEqual((slurm / "site.env.new").read_text(), (ROOT / "slurm/site.env").read_text())

    def modules(self, *words):
        """What `tandem` and TANDEM_HOME are after `module WORDS`, for Environment Modules or Lmod."""
        lmod = next(iter(pathlib.Path("/usr/share/lmod").glob("*/libexec/lmod")), None)
        command = [lmod] if lmod else ["modulecmd"]
        script = 'eval "$("$@")" && type -P tandem; echo "$TANDEM_HOME"; echo "$LOADEDMODULES"'
        return self.run_as_user("bash", "-c", script, "bash", *command, "bash", *words,
                                MODULEPATH=f"{self.site}/share/tandem/modulefiles").stdout.splitlines()

    @unittest.skipUnless(shutil.which("modulecmd") or pathlib.Path("/usr/share/lmod").exists(),
                         "neither environment-modules nor lmod is installed")
    def test_the_module_finds_its_own_folder_and_loads_what_it_needs(self):
        self.install()
        self.site = self.folder / "site"  # Lmod 8.6 reads no Tcl modules under a path with a blank
        self.prefix.rename(self.site)
        modules = self.site / "share/tandem/modulefiles"
        file = modules / "tandem/0.1.0"

        def needs(names):
            file.write_text(re.sub(r"foreach needed {[^}]*}", f"foreach needed {{{names}}}", file.read_text()))

        needs("")  # whatever was loaded when this was built
        bin_and_home = [str(self.site / "bin/tandem"), str(self.site / "share/tandem")]
        self.assertEqual(self.modules("load", "tandem"), bin_and_home + ["tandem/0.1.0"])

        (modules / "site_mpi").write_text("#%Module1.0\n")
        needs("site_mpi")
        loaded = self.modules("load", "tandem")
        self.assertEqual(loaded[:2], bin_and_home)
        self.assertEqual(set(loaded[2].split(":")), {"site_mpi", "tandem/0.1.0"})

    def test_nothing_leads_back_into_the_build(self):
        self.install()
        dynamic = subprocess.run(["readelf", "-d", self.prefix / "bin/tandem"], capture_output=True, text=True, check=True)
        paths = re.findall(r"(?:RPATH|RUNPATH).*\[(.*)\]", dynamic.stdout)
        for folder in (BUILD, ROOT, self.sources):
            self.assertNotIn(str(folder), " ".join(paths))
            for path in self.prefix.rglob("*"):
                if path.is_file():
                    self.assertNotIn(str(folder).encode(), path.read_bytes(), path)

    def test_links_of_the_pages_lead_somewhere(self):
        self.install()
        share = self.prefix / "share/tandem"
        for page in share.rglob("*.md"):
            for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
                self.assertTrue((page.parent / target).exists(), f"{page}: {target}")


if __name__ == "__main__":
    CMAKE, BUILD = sys.argv.pop(1), pathlib.Path(sys.argv.pop(1)).resolve()
    if not shutil.which("setpriv") or subprocess.run(as_user() + ["true"]).returncode:
        print("skipped: root cannot become another user here")
        sys.exit(SKIPPED)
    unittest.main(verbosity=2)

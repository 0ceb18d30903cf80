import pathlib

from spack_repo.builtin.build_systems.cmake import CMakePackage

from spack.package import *


class Tandem(CMakePackage):
    """Data-parallel LoRA training under MPI whose computation can be checked."""

    # The checkout that this recipe lies in; what is committed there is built.
    git = pathlib.Path(__file__).resolve().parents[6].as_uri()
    homepage = git

    license("Apache-2.0")

    version("main", branch="main")

    variant("tests", default=False, description="Build the tests too")
    variant("arch", default="x86-64-v3", values=("x86-64-v3", "x86-64-v4", "native"), multi=False,
            description="Instruction set, as for GCC's -march; of the nodes it runs on, not of the one that builds")

    generator("ninja")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("ninja", type="build")
    depends_on("pkgconfig", type="build")

    depends_on("mpi")
    depends_on("hdf5")
    depends_on("boost@1.74:+program_options+math")
    depends_on("nlohmann-json")
    depends_on("openssl")
    depends_on("pcre2+jit")
    depends_on("utf8proc")
    depends_on("onednn cpu_runtime=omp")
    depends_on("eigen@3.4:3")
    depends_on("googletest", when="+tests")

    conflicts("%gcc@:11", msg="C++20 as Tandem uses it needs GCC 12")

    def cmake_args(self):
        return [self.define_from_variant("TANDEM_TESTS", "tests"), self.define_from_variant("TANDEM_ARCH", "arch")]

"""amfs for Spack. Copy this folder to the packages of a repository of your own."""

from spack.package import *


class AmfsHpc(PythonPackage):
    """Many-task workflows at the speed at which the machine can start processes, their files in the memory of the nodes."""

    pypi = "amfs-hpc/amfs_hpc-0.2.0.tar.gz"

    license("Apache-2.0")

    # The checksum is in SHA256SUMS of the release; until there is one: spack dev-build amfs-hpc@develop in a clone.
    version("develop")

    variant("mpi", default=False, description="Start nodes by mpiexec (mpi4py)")
    variant("fs", default=False, description="Mounts in pure Python beside the native ones (fusepy)")

    depends_on("c", type="build")
    depends_on("cmake@3.21:", type="build")
    depends_on("py-scikit-build-core@0.11:", type="build")

    with default_args(type=("build", "run")):
        depends_on("python@3.11:")
        depends_on("py-click@8.1:")
        depends_on("py-lark@1.2:")
        depends_on("py-msgspec@0.18:")
        depends_on("py-pyyaml@6:")
        depends_on("py-pyzmq@25:")
        depends_on("py-rich@13:")
        depends_on("py-xxhash@3.2:")
        depends_on("py-mpi4py@4:", when="+mpi")
        depends_on("py-fusepy@3:", when="+fs")

    conflicts("platform=darwin", msg="amfs needs Linux")
    conflicts("platform=windows", msg="amfs needs Linux")

    import_modules = ["amfs", "amfs._native"]

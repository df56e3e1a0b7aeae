"""What a guest is made of. A change here builds anew what it names, and nothing else."""

from __future__ import annotations

SUITES = ("trixie", "trixie-backports")

# The kernels, by the name that tests give them: the suite whose linux-image-amd64 it is.
KERNELS = {"6.12": "trixie", "7.3": "trixie-backports"}

# What runs on the host: QEMU with its vfio-user device (10.1 and later have it), and what makes a guest.
TOOLS_SUITE = "trixie-backports"
TOOLS = ("qemu-system-x86", "e2fsprogs", "kmod", "zstd")

# The first program of a guest.
BUSYBOX = "busybox-static"

# The guest's own files, beside every package that Debian calls essential.
USERLAND = (
    "busybox",
    "ethtool",
    "ibverbs-utils",
    "iproute2",
    "iputils-ping",
    "kmod",
    "pciutils",
    "perftest",
    "procps",
    "python3",
    "python3-click",
    "python3-hypothesis",
    "python3-numpy",
    "python3-pytest",
    "python3-pytest-timeout",
    "python3-pyverbs",
    "python3-rich",
    "python3-scapy",
    "rdma-core",
    "rdmacm-utils",
    "tcpdump",
    "util-linux",
)

# What `update-alternatives` would have set up.
LINKS = {
    "etc/mtab": "/proc/self/mounts",
    "usr/bin/awk": "mawk",
    "usr/lib/x86_64-linux-gnu/libblas.so.3": "blas/libblas.so.3",
    "usr/lib/x86_64-linux-gnu/liblapack.so.3": "lapack/liblapack.so.3",
}

# What the compiled module is built against.
HEADERS = ("libpython3.13-dev",)

# Modules that the guest's root needs, then those that tests load; each with all that it depends on. One that a kernel
# has built in, or does not know, is left out.
EARLY = ("virtio_blk", "crc32c_generic", "ext4", "overlay")
MODULES = (
    "8021q",
    "9p",
    "9pnet_virtio",
    "bnxt_en",
    "bnxt_re",
    "bridge",
    "crc32_generic",
    "dummy",
    "ib_ipoib",
    "ib_umad",
    "ib_uverbs",
    "mlx5_core",
    "mlx5_ib",
    "rdma_cm",
    "rdma_rxe",
    "rdma_ucm",
    "tun",
    "veth",
    "vfio_iommu_type1",
    "vfio_pci",
    "virtio_net",
    "virtio_rng",
)

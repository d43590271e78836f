"""A machine with power modes as files: cpufreq as the kernel lays it out, and NVIDIA's program.

cpufreq: Documentation/admin-guide/pm/cpufreq.rst of Linux; frequencies of a Jetson Orin Nano's two clusters.
nvpmodel: Jetson Linux Developer Guide, "Supported Modes and Power Efficiency": what -q prints, how
/etc/nvpmodel.conf defines modes; /var/lib/nvpmodel/status keeps the mode over restarts. A mode that needs a
restart asks for one on stdin, and gives up when nobody answers.
"""

from __future__ import annotations

from pathlib import Path

STEPS = (729600, 1190400, 1420800, 1510400)
GOVERNORS = "conservative ondemand userspace powersave performance schedutil"

NVPMODEL = """#!/bin/sh
status='{root}/var/lib/nvpmodel/status'
conf='{root}/etc/nvpmodel.conf'
number=$(sed 's/pmode:0*\\([0-9]\\)/\\1/' "$status")
case "$1" in
-q)
    echo 'NVPM WARN: fan mode is not set!'
    echo "NV Power Mode: $(sed -n "s/^< POWER_MODEL ID=$number NAME=\\(.*\\) >/\\1/p" "$conf")"
    echo "$number"
    ;;
-m)
    echo "$2" >> '{root}/asked'
    if [ "$2" = 3 ]; then
        echo 'NVPM WARN: Golden image context is already created'
        echo "NVPM WARN: Reboot required for changing to this power mode: $2"
        echo 'NVPM WARN: DO YOU WANT TO REBOOT NOW? enter YES/yes to confirm:'
        read answer || {{ echo 'NVPM ERROR: optMask is 1, no request for power mode'; exit 255; }}
    fi
    echo "pmode:000$2" > "$status"
    # A mode has limits of its own.
    for policy in {root}/sys/devices/system/cpu/cpufreq/policy*; do
        [ "$2" = 1 ] && echo 1190400 > "$policy/scaling_max_freq" || echo 1510400 > "$policy/scaling_max_freq"
    done
    ;;
esac
"""

MODES = """# Modes of this board
< PARAM TYPE=FILE NAME=CPU_ONLINE >
CORE_1 /sys/devices/system/cpu/cpu1/online
< POWER_MODEL ID=0 NAME=15W >
CPU_ONLINE CORE_1 1
< POWER_MODEL ID=1 NAME=7W >
CPU_ONLINE CORE_1 0
< POWER_MODEL ID=2 NAME=MAXN_SUPER >
< POWER_MODEL ID=3 NAME=GPU_HALF >
< PM_CONFIG DEFAULT=0 >
"""


def make_cpufreq(root: Path, policies: tuple[str, ...] = ("policy0", "policy4")) -> None:
    """Policies with all frequencies, under schedutil."""
    for name in policies:
        folder = root / "sys/devices/system/cpu/cpufreq" / name
        folder.mkdir(parents=True)
        for attribute, value in {
            "scaling_governor": "schedutil",
            "scaling_available_governors": GOVERNORS,
            "scaling_available_frequencies": " ".join(map(str, STEPS)),
            "cpuinfo_min_freq": STEPS[0],
            "cpuinfo_max_freq": STEPS[-1],
            "scaling_min_freq": STEPS[0],
            "scaling_max_freq": STEPS[-1],
        }.items():
            (folder / attribute).write_text(f"{value}\n")
    boot_id = root / "proc/sys/kernel/random/boot_id"
    boot_id.parent.mkdir(parents=True, exist_ok=True)
    boot_id.write_text("11111111-2222-3333-4444-555555555555\n")


def make_nvpmodel(root: Path) -> None:
    """NVIDIA's program in mode 15W."""
    for folder in ("usr/sbin", "etc", "var/lib/nvpmodel"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    (root / "etc/nvpmodel.conf").write_text(MODES)
    (root / "var/lib/nvpmodel/status").write_text("pmode:0000\n")
    program = root / "usr/sbin/nvpmodel"
    program.write_text(NVPMODEL.format(root=root))
    program.chmod(0o755)


def contents(root: Path) -> dict[str, str]:
    """Everything that power modes change, by path."""
    folder = root / "sys/devices/system/cpu/cpufreq"
    paths = [path for policy in folder.glob("policy*") for path in policy.glob("scaling_[gm]*")]
    status = root / "var/lib/nvpmodel/status"
    return {str(path): path.read_text().strip() for path in [*paths, status] if path.exists()}

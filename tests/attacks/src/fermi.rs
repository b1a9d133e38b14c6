//! Attacks on the vGPU of a GF100.

use super::Outcome::{Limited as L, Quarantined as Q, Refused as R, Values as V};
use super::{Attack, Host, raw, unlisted};

pub(super) const ATTACKS: &[Attack] = &[
    raw(
        1,
        "widths",
        &[V],
        "registers and windows by 1, 2 and 8 bytes, unaligned, and at the end of each BAR",
    )
    .short(),
    raw(2, "bar0-fuzz", &[V, Q], "random words to random registers, all of BAR0, as fast as it goes").short(),
    raw(
        3,
        "privileged-registers",
        &[V],
        "unit resets, memory controller, clocks, voltage, fan, thermal, power gating",
    ),
    raw(4, "rom-and-fuses", &[V], "writes to the VBIOS window, fuses and straps; they must read as before"),
    raw(
        5,
        "config-mirror",
        &[V],
        "command, BARs, MSI and read-only identity written through the mirror in BAR0",
    ),
    raw(6, "falcon-firmware", &[V], "random code into FECS, GPCCS, PMU and started with physical addressing"),
    unlisted("copy-firmware", &[V], "copy-engine firmware of the attacker's, then work on that engine"),
    unlisted(
        "context-patch-list",
        &[V, Q],
        "graphics context image whose FECS patch list names foreign registers, bound and run",
    )
    .short(),
    raw(
        7,
        "pramin-window",
        &[V],
        "the window moved over all of VRAM's address range and system memory, read and written",
    )
    .short(),
    raw(
        7,
        "bar-window-tables",
        &[V, Q],
        "tables of BAR1 and BAR3 that name VRAM beyond the partition, read and written",
    ),
    raw(
        8,
        "foreign-vram",
        &[Q],
        "page-table entries at the partition's end, beyond it, and where 40 bits wrap; copied from and to",
    )
    .short(),
    raw(
        9,
        "foreign-memory",
        &[Q],
        "entries to system memory that is not the guest's, to BARs, and to a peer",
    ),
    raw(
        10,
        "table-loops",
        &[Q],
        "directory that names itself, tables that are directories, one table 8192 times, unaligned bases",
    ),
    raw(
        11,
        "rewrite-race",
        &[V, Q],
        "page-table entry rewritten by another processor while it is flushed and used",
    ),
    raw(
        11,
        "instance-race",
        &[V, Q],
        "instance block and ring rewritten by another processor while they are used",
    ),
    raw(12, "garbage-entries", &[Q], "random and half-written 64-bit entries"),
    raw(13, "table-flood", &[Q, R, L], "page tables for the whole address range"),
    raw(13, "flush-storm", &[L], "TLB flushes of a changing space from two processors").short(),
    raw(
        14,
        "foreign-instances",
        &[R],
        "instance blocks, rings and USERD outside the VM, channel numbers beyond its own",
    )
    .short(),
    raw(
        15,
        "runlist-abuse",
        &[R],
        "duplicates, foreign and mistyped entries, lengths beyond all limits, from two processors",
    ),
    raw(
        16,
        "ring-abuse",
        &[Q],
        "GP_PUT beyond the ring, entries with bad addresses and lengths, doorbells without work",
    ),
    raw(17, "doorbell-storm", &[L], "doorbells of all channels at full speed from two processors").short(),
    raw(17, "register-storm", &[L], "register reads and writes at full speed from two processors"),
    raw(18, "illegal-methods", &[Q], "methods, classes, headers and subchannels that do not exist"),
    raw(
        19,
        "endless-acquire",
        &[L, Q],
        "semaphores that nobody releases, and two channels that wait for each other",
    )
    .hang()
    .short(),
    raw(20, "endless-copy", &[L, Q], "copies of 16 TiB on the victim's engine").hang(),
    raw(21, "repeated-hangs", &[L], "endless work, taken away and started again, as fast as it goes").hang(),
    raw(22, "fault-storm", &[L], "a channel that faults, recovered and started again, as fast as it goes")
        .short(),
    raw(
        23,
        "interrupt-storm",
        &[L],
        "notifications and timer alarms at full speed, never acknowledged, messages rearmed",
    ),
    raw(24, "channel-exhaustion", &[R, Q], "more channels and address spaces than were granted"),
    raw(25, "residue-scan", &[V], "all VRAM that the attacker reaches, searched for the victim's pattern"),
    raw(26, "global-counters", &[V], "engine and counter registers watched while the victim works"),
    raw(27, "display-and-buses", &[V], "display, VGA, I2C, GPIO and audio registers"),
    raw(28, "peer-registers", &[V], "peer mappings and BAR remaps"),
    raw(29, "reset-in-dma", &[V], "bus mastering off, D3 and function reset while copies write into memory")
        .short(),
    raw(30, "reset-loop", &[V], "function resets at any point of bring-up"),
    raw(
        30,
        "crash-loop",
        &[V],
        "panics and triple faults in the middle of bring-up and with work under way, one after the other",
    )
    .host(Host::Repeats),
    raw(37, "memory-taken", &[V, Q], "the chipset takes guest memory away while copies use it"),
    raw(38, "dma-to-mmio", &[Q], "entries to ROM, interrupt controller and the GPU's own BARs"),
    raw(
        39,
        "clock-jumps",
        &[V],
        "the guest's clock and the GPU's timer set back and forth with work under way",
    ),
    raw(39, "machine-stopped", &[V], "the machine stopped for seconds with work under way, and continued")
        .host(Host::Stops),
    raw(40, "log-flood", &[L], "refused and failing requests as fast as they go"),
    raw(24, "driver-exhaustion", &[R, L], "buffers for twice the VRAM, each used").by_driver(),
    raw(
        8,
        "driver-bad-addresses",
        &[Q],
        "commands with unmapped addresses from a program above the stock driver",
    )
    .by_driver(),
];

//! The registers of a falcon, the processor of a unit, at their distances from the unit's base: what a driver
//! needs to load firmware, to start it, and to reset the unit. [`at`] has those of a unit.

use crate::registers::{Reg, RegisterDef};

crate::registers! {
    unit "FALCON", source "open-gpu-kernel-modules turing/tu102 dev_falcon_v4.h, ampere/ga102 dev_falcon_v4.h, dev_falcon_second_pri.h, dev_riscv_pri.h; nouveau nvkm/falcon/{gm200,tu102,ga102}.c; nova-core regs.rs";
    /// Clears pending interrupts.
    NV_PFALCON_FALCON_IRQSCLR @ 0x000004, reset 0, Handler, { 7:7 SWGEN1, 6:6 SWGEN0, 4:4 HALT };
    /// Interrupts pending.
    NV_PFALCON_FALCON_IRQSTAT @ 0x000008, reset 0, Handler, { 7:7 SWGEN1, 6:6 SWGEN0, 4:4 HALT };
    /// Disables interrupts.
    NV_PFALCON_FALCON_IRQMCLR @ 0x000014, reset 0, Scratch, {};
    /// First mailbox. After firmware has run: 0, or an error. On GSP also bit 31 after its firmware has
    /// unloaded.
    NV_PFALCON_FALCON_MAILBOX0 @ 0x000040, reset 0, Handler, { 31:0 DATA = { UNLOADED: 0x8000_0000 } };
    /// Second mailbox.
    NV_PFALCON_FALCON_MAILBOX1 @ 0x000044, reset 0, Handler, { 31:0 DATA };
    /// Interfaces that are enabled.
    NV_PFALCON_FALCON_ITFEN @ 0x000048, reset 0, Scratch, { 1:1 MTHDEN, 0:0 CTXEN };
    /// Version of the firmware's bootloader, left here by the driver.
    NV_PFALCON_FALCON_OS @ 0x000080, reset 0, Scratch, {};
    /// Identification of the chip, left here by the driver for firmware.
    NV_PFALCON_FALCON_RM @ 0x000084, reset 0, Scratch, {};
    /// Hardware configuration: the unit can be reset, its memory is scrubbed at once.
    NV_PFALCON_FALCON_HWCFG2 @ 0x0000f4, reset 0x8000_0400, Constant, { 31:31 RESET_READY, 12:12 MEM_SCRUBBING, 10:10 RISCV };
    /// Starts the falcon, and shows that it has halted.
    NV_PFALCON_FALCON_CPUCTL @ 0x000100, reset 0, Handler, { 6:6 ALIAS_EN, 4:4 HALTED, 1:1 STARTCPU };
    /// Where it starts.
    NV_PFALCON_FALCON_BOOTVEC @ 0x000104, reset 0, Scratch, { 31:0 VEC };
    /// Sizes of its memories, in blocks of 256 bytes.
    NV_PFALCON_FALCON_HWCFG @ 0x000108, reset 0x20100, Constant, { 17:9 DMEM_SIZE, 8:0 IMEM_SIZE };
    /// Control of its DMA, and progress of the scrubbing of its memories.
    NV_PFALCON_FALCON_DMACTL @ 0x00010c, reset 0, Scratch, { 2:2 IMEM_SCRUBBING, 1:1 DMEM_SCRUBBING, 0:0 REQUIRE_CTX };
    /// DMA: address of the image, bits 39:8.
    NV_PFALCON_FALCON_DMATRFBASE @ 0x000110, reset 0, Handler, { 31:0 BASE };
    /// DMA: where in the falcon's memory.
    NV_PFALCON_FALCON_DMATRFMOFFS @ 0x000114, reset 0, Handler, { 23:0 OFFS };
    /// DMA: starts a transfer. It is over when the write is.
    NV_PFALCON_FALCON_DMATRFCMD @ 0x000118, reset 0, Handler, { 14:12 CTXDMA, 10:8 SIZE, 5:5 WRITE, 4:4 IMEM, 3:2 SEC, 1:1 IDLE, 0:0 FULL };
    /// DMA: where in the image.
    NV_PFALCON_FALCON_DMATRFFBOFFS @ 0x00011c, reset 0, Handler, { 31:0 OFFS };
    /// DMA: address of the image, bits 48:40.
    NV_PFALCON_FALCON_DMATRFBASE1 @ 0x000128, reset 0, Handler, { 8:0 BASE };
    /// What it is: version 6, a port for each memory.
    NV_PFALCON_FALCON_HWCFG1 @ 0x00012c, reset 0x1106, Constant, { 15:12 DMEM_PORTS, 11:8 IMEM_PORTS, 7:6 CORE_REV_SUBVERSION, 5:4 SECURITY_MODEL, 3:0 CORE_REV };
    /// Port of instruction memory: where, and whether it moves on.
    NV_PFALCON_FALCON_IMEMC @ 0x000180, reset 0, Handler, { 28:28 SECURE, 25:25 AINCR, 24:24 AINCW, 15:8 BLK, 7:2 OFFS };
    /// Instruction memory at the port's position.
    NV_PFALCON_FALCON_IMEMD @ 0x000184, reset 0, Handler, { 31:0 DATA };
    /// Tag of the block of instruction memory. Nothing runs: it does not matter here.
    NV_PFALCON_FALCON_IMEMT @ 0x000188, reset 0, Scratch, { 15:0 TAG };
    /// Port of data memory: where, and whether it moves on.
    NV_PFALCON_FALCON_DMEMC @ 0x0001c0, reset 0, Handler, { 25:25 AINCR, 24:24 AINCW, 15:8 BLK, 7:2 OFFS };
    /// Data memory at the port's position.
    NV_PFALCON_FALCON_DMEMD @ 0x0001c4, reset 0, Handler, { 31:0 DATA };
    /// Resets the unit.
    NV_PFALCON_FALCON_ENGINE @ 0x0003c0, reset 0, Handler, { 0:0 RESET };
    /// Debug mode of the falcon's security. It is a production unit.
    NV_PFALCON_FALCON_DEBUG_INFO @ 0x000408, reset 0, Constant, { 20:20 DEBUG };
    /// What an index of the falcon's DMA addresses.
    NV_PFALCON_FBIF_TRANSCFG[8; 4] @ 0x000600, reset 0, Handler, { 16:16 L2C_WR, 2:2 MEM_TYPE = { PHYSICAL: 1 }, 1:0 TARGET = { LOCAL_FB: 0, COHERENT_SYSMEM: 1, NONCOHERENT_SYSMEM: 2 } };
    /// Control of the falcon's DMA: physical addresses without a context.
    NV_PFALCON_FBIF_CTL @ 0x000624, reset 0, Scratch, { 7:7 ALLOW_PHYS_NO_CTX };
}

/// Registers behind the first page, which Turing does not have.
pub mod second {
    crate::registers! {
        unit "FALCON2", source "open-gpu-kernel-modules ampere/ga102 dev_falcon_second_pri.h, dev_riscv_pri.h; nouveau nvkm/falcon/ga102.c; nova-core regs.rs";
        /// Boot ROM: algorithm of the signature. Signatures are not checked here.
        NV_PFALCON2_FALCON_MOD_SEL @ 0x001180, reset 0, Scratch, { 7:0 ALGO };
        /// Boot ROM: number of the firmware.
        NV_PFALCON2_FALCON_BROM_CURR_UCODE_ID @ 0x001198, reset 0, Scratch, { 7:0 VAL };
        /// Boot ROM: units that the firmware is for.
        NV_PFALCON2_FALCON_BROM_ENGIDMASK @ 0x00119c, reset 0, Scratch, {};
        /// Boot ROM: where the signature is.
        NV_PFALCON2_FALCON_BROM_PARAADDR @ 0x001210, reset 0, Scratch, {};
        /// Which core runs after a reset: the falcon, or RISC-V.
        NV_PRISCV_RISCV_BCR_CTRL @ 0x001668, reset 0, Handler, { 8:8 BRFETCH, 4:4 CORE_SELECT, 0:0 VALID };
    }
}

/// A register of the unit at `base`.
pub const fn reg(base: u32, reg: Reg) -> Reg {
    Reg(base + reg.0)
}

/// A table of the unit at `base`, with its name.
pub const fn at<const COUNT: usize>(
    table: &[RegisterDef],
    base: u32,
    unit: &'static str,
) -> [RegisterDef; COUNT] {
    assert!(table.len() == COUNT, "as many registers as the table has");
    let mut all = [table[0]; COUNT];
    let mut index = 0;
    while index < COUNT {
        let entry = table[index];
        all[index] = RegisterDef { offset: base + entry.offset, unit, ..entry };
        index += 1;
    }
    all
}

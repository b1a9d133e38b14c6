//! PFB, the memory controller, with the MMU's flush, the L2 slices (LTC) and the VRAM population.

crate::registers! {
    unit "PFB", source "open-gpu-doc dev_fb, dev_ltc; nouveau nvkm/subdev/{fb,ltc,mmu}";
    /// Memory partitions that exist.
    NV_PTOP_FBP_COUNT @ 0x022438, reset 2, Constant, { 4:0 VALUE };
    /// Memory partitions that are fused off.
    NV_FUSE_FBP_DISABLE @ 0x022554, reset 0, Constant, {};
    /// L2 units in use, copied by drivers into PGRAPH.
    NV_PFB_NUM_ACTIVE_LTCS @ 0x100800, reset 2, Constant, { 4:0 COUNT };
    /// System page that flushes write to, address bits 39:8.
    NV_PFB_SYSMEM_FLUSH_ADDR @ 0x100c10, reset 0, Scratch, {};
    /// MMU settings and state of its invalidation queue.
    NV_PFB_PRI_MMU_CTRL @ 0x100c80, reset 0, Handler, {
        23:16 INVALIDATE_FREE, 15:15 INVALIDATE_EMPTY, 12:12 COMPTAG_WIDTH, 0:0 VM_PG_SIZE_64KB
    };
    /// Page directory whose translations an invalidation drops.
    NV_PFB_PRI_MMU_INVALIDATE_PDB @ 0x100cb8, reset 0, Handler, { 31:4 ADDR, 1:0 APERTURE };
    /// Starts an invalidation.
    NV_PFB_PRI_MMU_INVALIDATE @ 0x100cbc, reset 0, Handler, {
        31:31 TRIGGER, 2:2 HUBTLB_ONLY, 1:1 ALL_PDB, 0:0 ALL_VA
    };
    /// Page that reads of bad addresses get in debug mode.
    NV_PFB_PRI_MMU_DEBUG_WR @ 0x100cc8, reset 0, Scratch, {};
    /// Page that writes to bad addresses go to in debug mode.
    NV_PFB_PRI_MMU_DEBUG_RD @ 0x100ccc, reset 0, Scratch, {};
    /// MiB of VRAM behind each memory partition.
    NV_PFBP_FBPA_CSTATUS[2; 0x1000] @ 0x11020c, reset 0, Handler, { 15:0 RAMAMOUNT };
    /// L2 slice: interrupts.
    NV_PLTC_LTS_INTR[16; 0x400] @ 0x141020, reset 0, Scratch, {};
    /// L2 slice: progress of a clear of compression tags; never busy.
    NV_PLTC_LTS_CBC_CTRL_1[16; 0x400] @ 0x1410c8, reset 0, Constant, {};
    /// L2: interrupts that reach PMC.
    NV_PLTCG_LTCS_LTSS_INTR_EN @ 0x17e820, reset 0, Scratch, {};
    /// L2: settings.
    NV_PLTCG_LTCS_MISC @ 0x17e8c0, reset 0, Scratch, { 1:1 LARGE_PAGES_128K };
    /// L2: starts work on compression tags; done at once, as nothing is compressed.
    NV_PLTCG_CBC_CTRL_1 @ 0x17e8c8, reset 0, Handler, { 2:2 CLEAR, 1:1 INVALIDATE, 0:0 CLEAN };
    /// L2: first compression tag line of that work.
    NV_PLTCG_CBC_CTRL_2 @ 0x17e8cc, reset 0, Scratch, {};
    /// L2: last compression tag line of that work.
    NV_PLTCG_CBC_CTRL_3 @ 0x17e8d0, reset 0, Scratch, {};
    /// L2: VRAM that holds the compression tags.
    NV_PLTCG_CBC_BASE @ 0x17e8d4, reset 0, Scratch, {};
    /// L2: units that share the compression tags.
    NV_PLTCG_CBC_NUM_ACTIVE_LTCS @ 0x17e8d8, reset 0, Scratch, {};
    /// L2: shape of the slices.
    NV_PLTCG_CBC_PARAM @ 0x17e8dc, reset 0x2000_0000, Constant, { 31:28 SLICES_PER_LTC };
    /// L2: entry of the clear-value table that the next registers write.
    NV_PLTCG_ZBC_INDEX @ 0x17ea44, reset 0, Scratch, { 3:0 INDEX };
    /// L2: colour clear value of that entry.
    NV_PLTCG_ZBC_COLOR[4; 4] @ 0x17ea48, reset 0, Scratch, {};
    /// L2: depth clear value of that entry.
    NV_PLTCG_ZBC_DEPTH @ 0x17ea58, reset 0, Scratch, {};
}

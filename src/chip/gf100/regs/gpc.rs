//! The GPCs (graphics processing clusters) and their TPCs: one GPC with two TPCs. Ranges named GPCS and TPCS
//! address all of them at once (broadcast).

crate::registers! {
    unit "GPC", source "nouveau nvkm/engine/gr/{gf100,ctxgf100}.c; open-gpu-doc dev_graphics; envytools rnndb/graph";
    /// State of all GPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_GPCS_CTX_418000 @ 0x418000, reset 0, Scratch, {};
    /// State of all GPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_GPCS_CTX_418380[2; 4] @ 0x418380, reset 0, Scratch, {};
    /// State of all GPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_GPCS_CTX_418400[6; 4] @ 0x418400, reset 0, Scratch, {};
    /// State of all GPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_GPCS_CTX_418450[9; 4] @ 0x418450, reset 0, Scratch, {};
    /// State of all GPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_GPCS_CTX_4184A0 @ 0x4184a0, reset 0, Scratch, {};
    /// State of all GPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_GPCS_CTX_418600[2; 4] @ 0x418600, reset 0, Scratch, {};
    /// State of all GPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_GPCS_CTX_418680[2; 4] @ 0x418680, reset 0, Scratch, {};
    /// State of all GPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_GPCS_CTX_418700[6; 4] @ 0x418700, reset 0, Scratch, {};
    /// State of all GPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_GPCS_CTX_418800 @ 0x418800, reset 0, Scratch, {};
    /// State of all GPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_GPCS_CTX_418808[6; 4] @ 0x418808, reset 0, Scratch, {};
    /// State of all GPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_GPCS_CTX_418828 @ 0x418828, reset 0, Scratch, {};
    /// State of all GPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_GPCS_CTX_418830 @ 0x418830, reset 0, Scratch, {};
    /// State of all GPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_GPCS_CTX_418880 @ 0x418880, reset 0, Scratch, {};
    /// State of all GPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_GPCS_CTX_418888[4; 4] @ 0x418888, reset 0, Scratch, {};
    /// State of all GPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_GPCS_CTX_4188A4 @ 0x4188a4, reset 0, Scratch, {};
    /// L2 units in use, for the GPCs.
    NV_PGRAPH_PRI_GPCS_MMU_NUM_ACTIVE_LTCS @ 0x4188ac, reset 0, Scratch, {};
    /// State of all GPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_GPCS_CTX_4188B4[2; 4] @ 0x4188b4, reset 0, Scratch, {};
    /// State of all GPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_GPCS_CTX_4188C8[5; 4] @ 0x4188c8, reset 0, Scratch, {};
    /// State of all GPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_GPCS_CTX_4188E0 @ 0x4188e0, reset 0, Scratch, {};
    /// State of all GPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_GPCS_CTX_4188E8[6; 4] @ 0x4188e8, reset 0, Scratch, {};
    /// State of all GPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_GPCS_CTX_418910[4; 4] @ 0x418910, reset 0, Scratch, {};
    /// State of all GPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_GPCS_CTX_418924[3; 4] @ 0x418924, reset 0, Scratch, {};
    /// State of all GPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_GPCS_CTX_418980[4; 4] @ 0x418980, reset 0, Scratch, {};
    /// State of all GPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_GPCS_CTX_418A00[7; 4] @ 0x418a00, reset 0, Scratch, {};
    /// State of all GPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_GPCS_CTX_418A20[7; 4] @ 0x418a20, reset 0, Scratch, {};
    /// State of all GPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_GPCS_CTX_418A40[7; 4] @ 0x418a40, reset 0, Scratch, {};
    /// State of all GPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_GPCS_CTX_418A60[7; 4] @ 0x418a60, reset 0, Scratch, {};
    /// State of all GPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_GPCS_CTX_418A80[7; 4] @ 0x418a80, reset 0, Scratch, {};
    /// State of all GPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_GPCS_CTX_418AA0[7; 4] @ 0x418aa0, reset 0, Scratch, {};
    /// State of all GPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_GPCS_CTX_418AC0[7; 4] @ 0x418ac0, reset 0, Scratch, {};
    /// State of all GPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_GPCS_CTX_418AE0[7; 4] @ 0x418ae0, reset 0, Scratch, {};
    /// State of all GPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_GPCS_CTX_418B00[8; 4] @ 0x418b00, reset 0, Scratch, {};
    /// State of all GPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_GPCS_CTX_418BB8 @ 0x418bb8, reset 0, Scratch, {};
    /// State of all GPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_GPCS_CTX_418C04[2; 4] @ 0x418c04, reset 0, Scratch, {};
    /// State of all GPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_GPCS_CTX_418C10[8; 4] @ 0x418c10, reset 0, Scratch, {};
    /// State of all GPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_GPCS_CTX_418C80 @ 0x418c80, reset 0, Scratch, {};
    /// State of all GPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_GPCS_CTX_418C88[2; 4] @ 0x418c88, reset 0, Scratch, {};
    /// State of all GPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_GPCS_CTX_418D00 @ 0x418d00, reset 0, Scratch, {};
    /// State of all GPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_GPCS_CTX_418E00 @ 0x418e00, reset 0, Scratch, {};
    /// State of all GPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_GPCS_CTX_418E08 @ 0x418e08, reset 0, Scratch, {};
    /// State of all GPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_GPCS_CTX_418F08 @ 0x418f08, reset 0, Scratch, {};
    /// State of all GPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_GPCS_CTX_419000[4; 4] @ 0x419000, reset 0, Scratch, {};
    /// State of all GPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_GPCS_CTX_419014[2; 4] @ 0x419014, reset 0, Scratch, {};
    /// State of all TPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_TPCS_CTX_419800 @ 0x419800, reset 0, Scratch, {};
    /// State of all TPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_TPCS_CTX_41980C[4; 4] @ 0x41980c, reset 0, Scratch, {};
    /// State of all TPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_TPCS_CTX_41983C @ 0x41983c, reset 0, Scratch, {};
    /// State of all TPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_TPCS_CTX_419844[7; 4] @ 0x419844, reset 0, Scratch, {};
    /// State of all TPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_TPCS_CTX_419864 @ 0x419864, reset 0, Scratch, {};
    /// State of all TPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_TPCS_CTX_419880 @ 0x419880, reset 0, Scratch, {};
    /// State of all TPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_TPCS_CTX_419888 @ 0x419888, reset 0, Scratch, {};
    /// State of all TPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_TPCS_CTX_419A00[6; 4] @ 0x419a00, reset 0, Scratch, {};
    /// State of all TPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_TPCS_CTX_419AB0 @ 0x419ab0, reset 0, Scratch, {};
    /// State of all TPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_TPCS_CTX_419AB8[3; 4] @ 0x419ab8, reset 0, Scratch, {};
    /// State of all TPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_TPCS_CTX_419B00[6; 4] @ 0x419b00, reset 0, Scratch, {};
    /// State of all TPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_TPCS_CTX_419BD0[2; 4] @ 0x419bd0, reset 0, Scratch, {};
    /// State of all TPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_TPCS_CTX_419BDC[3; 4] @ 0x419bdc, reset 0, Scratch, {};
    /// State of all TPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_TPCS_CTX_419C00[4; 4] @ 0x419c00, reset 0, Scratch, {};
    /// State of all TPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_TPCS_CTX_419C20 @ 0x419c20, reset 0, Scratch, {};
    /// State of all TPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_TPCS_CTX_419C98 @ 0x419c98, reset 0, Scratch, {};
    /// State of all TPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_TPCS_CTX_419CA8 @ 0x419ca8, reset 0, Scratch, {};
    /// State of all TPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_TPCS_CTX_419CB0[6; 4] @ 0x419cb0, reset 0, Scratch, {};
    /// State of all TPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_TPCS_CTX_419CE8 @ 0x419ce8, reset 0, Scratch, {};
    /// State of all TPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_TPCS_CTX_419CF4 @ 0x419cf4, reset 0, Scratch, {};
    /// State of all TPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_TPCS_CTX_419D08[3; 4] @ 0x419d08, reset 0, Scratch, {};
    /// State of all TPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_TPCS_CTX_419D20[2; 4] @ 0x419d20, reset 0, Scratch, {};
    /// State of all TPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_TPCS_CTX_419D2C @ 0x419d2c, reset 0, Scratch, {};
    /// State of all TPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_TPCS_CTX_419E00[5; 4] @ 0x419e00, reset 0, Scratch, {};
    /// State of all TPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_TPCS_CTX_419E44[20; 4] @ 0x419e44, reset 0, Scratch, {};
    /// State of all TPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_TPCS_CTX_419E98 @ 0x419e98, reset 0, Scratch, {};
    /// State of all TPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_TPCS_CTX_419EA0[9; 4] @ 0x419ea0, reset 0, Scratch, {};
    /// State of all TPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_TPCS_CTX_419EC8 @ 0x419ec8, reset 0, Scratch, {};
    /// State of all TPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_TPCS_CTX_419ED0[2; 4] @ 0x419ed0, reset 0, Scratch, {};
    /// State of all TPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_TPCS_CTX_419EDC @ 0x419edc, reset 0, Scratch, {};
    /// State of all TPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_TPCS_CTX_419F00 @ 0x419f00, reset 0, Scratch, {};
    /// State of all TPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_TPCS_CTX_419F2C @ 0x419f2c, reset 0, Scratch, {};
    /// State of all TPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_TPCS_CTX_419F50[2; 4] @ 0x419f50, reset 0, Scratch, {};
    /// State of all PPCS at once that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_PPCS_CTX_41BE00 @ 0x41be00, reset 0, Scratch, {};
    /// Errors of the GPC's raster output path.
    NV_PGRAPH_PRI_GPC_PROP_HWW_ESR @ 0x500420, reset 0, Scratch, { 31:31 RESET, 30:30 EN };
    /// Where it failed.
    NV_PGRAPH_PRI_GPC_PROP_HWW_ESR_COORD @ 0x500434, reset 0, Scratch, {};
    /// Format that it failed with.
    NV_PGRAPH_PRI_GPC_PROP_HWW_ESR_FORMAT @ 0x500438, reset 0, Scratch, {};
    /// Storage that it failed with.
    NV_PGRAPH_PRI_GPC_PROP_HWW_ESR_STATE @ 0x50043c, reset 0, Scratch, {};
    /// Errors of the GPC's triangle setup.
    NV_PGRAPH_PRI_GPC_SETUP_HWW_ESR @ 0x500824, reset 0, Scratch, { 31:31 RESET, 30:30 EN };
    /// Errors of the GPC's depth culling.
    NV_PGRAPH_PRI_GPC_ZCULL_HWW_ESR @ 0x500900, reset 0, Scratch, { 31:31 RESET, 30:30 EN };
    /// Depth culling: tiles of the GPC.
    NV_PGRAPH_PRI_GPC_ZCULL_TILES @ 0x500910, reset 0, Scratch, {};
    /// Depth culling: TPCs of the GPC.
    NV_PGRAPH_PRI_GPC_ZCULL_TPCS @ 0x500914, reset 0, Scratch, {};
    /// Depth culling: share of the GPC.
    NV_PGRAPH_PRI_GPC_ZCULL_RATIO @ 0x500918, reset 0, Scratch, {};
    /// TPCs of the GPC, for the primitive distributor.
    NV_PGRAPH_PRI_GPC_GPM_PD_CFG @ 0x500c08, reset 0, Scratch, {};
    /// Number of each TPC's multiprocessor.
    NV_PGRAPH_PRI_GPC_GPM_SM_ID[4; 4] @ 0x500c10, reset 0, Scratch, {};
    /// TPCs of the GPC, for the compute distributor.
    NV_PGRAPH_PRI_GPC_GPM_SD_CFG @ 0x500c8c, reset 0, Scratch, {};
    /// Errors of the GPC's constant cache.
    NV_PGRAPH_PRI_GPC_GCC_HWW_ESR @ 0x501028, reset 0, Scratch, { 31:31 RESET, 30:30 EN };
    /// Progress of the GPC's context-switch controller.
    NV_PGRAPH_PRI_GPC_CC_DONE @ 0x502400, reset 0, Scratch, {};
    /// Units of the GPC.
    NV_PGRAPH_PRI_GPC_FS_GPC @ 0x502608, reset 2, Constant, { 20:16 ZCULL, 4:0 TPC };
    /// Mailboxes of the GPC's context-switch controller.
    NV_PGRAPH_PRI_GPC_CC_SCRATCH[8; 4] @ 0x502800, reset 0, Scratch, {};
    /// Units of the GPC with an exception.
    NV_PGRAPH_PRI_GPC_GPCCS_EXCEPTION @ 0x502c90, reset 0, WriteOneToClear, { 17:16 TPC, 3:3 SETUP, 2:2 GCC, 1:1 ZCULL, 0:0 PROP };
    /// Those that reach PGRAPH.
    NV_PGRAPH_PRI_GPC_GPCCS_EXCEPTION_EN @ 0x502c94, reset 0, Scratch, {};
    /// Vertex stream cache settings of the TPC.
    NV_PGRAPH_PRI_TPC_PE_VSC_STREAM[2; 0x800] @ 0x50405c, reset 0, Scratch, {};
    /// Errors of the TPC's geometry unit.
    NV_PGRAPH_PRI_TPC_PE_HWW_ESR[2; 0x800] @ 0x504084, reset 0, Scratch, { 31:31 RESET, 30:30 EN };
    /// Number of the TPC's multiprocessor, for its geometry unit.
    NV_PGRAPH_PRI_TPC_PE_SM_ID[2; 0x800] @ 0x504088, reset 0, Scratch, {};
    /// Errors of the TPC's texture unit.
    NV_PGRAPH_PRI_TPC_TEX_HWW_ESR[2; 0x800] @ 0x504224, reset 0, Scratch, { 31:31 RESET, 30:30 EN };
    /// Errors of the TPC's work distributor.
    NV_PGRAPH_PRI_TPC_MPC_HWW_ESR[2; 0x800] @ 0x504430, reset 0, Scratch, { 31:31 RESET, 30:30 EN };
    /// Errors of the TPC's L1 cache.
    NV_PGRAPH_PRI_TPC_L1C_HWW_ESR[2; 0x800] @ 0x50448c, reset 0, Scratch, { 31:31 RESET, 30:30 EN };
    /// Number of the TPC's multiprocessor.
    NV_PGRAPH_PRI_TPC_TPC_SM_ID[2; 0x800] @ 0x5044e8, reset 0, Scratch, {};
    /// Units of the TPC with an exception.
    NV_PGRAPH_PRI_TPC_TPCCS_EXCEPTION[2; 0x800] @ 0x504508, reset 0, WriteOneToClear, { 4:4 MPC, 3:3 L1C, 2:2 PE, 1:1 SM, 0:0 TEX };
    /// Those that reach the GPC.
    NV_PGRAPH_PRI_TPC_TPCCS_EXCEPTION_EN[2; 0x800] @ 0x50450c, reset 0, Scratch, {};
    /// State of the TPC's controller.
    NV_PGRAPH_PRI_TPC_TPCCS_STATUS[2; 0x800] @ 0x504520, reset 0, Scratch, {};
    /// Warp errors that are reported.
    NV_PGRAPH_PRI_TPC_SM_WARP_REPORT_MASK[2; 0x800] @ 0x504644, reset 0, Scratch, {};
    /// Warp error of the TPC's multiprocessor.
    NV_PGRAPH_PRI_TPC_SM_WARP_ESR[2; 0x800] @ 0x504648, reset 0, Scratch, {};
    /// Other multiprocessor errors that are reported.
    NV_PGRAPH_PRI_TPC_SM_GLOBAL_REPORT_MASK[2; 0x800] @ 0x50464c, reset 0, Scratch, {};
    /// Other error of the TPC's multiprocessor.
    NV_PGRAPH_PRI_TPC_SM_GLOBAL_ESR[2; 0x800] @ 0x504650, reset 0, Scratch, {};
    /// Settings of the TPC's multiprocessor.
    NV_PGRAPH_PRI_TPC_SM_CFG[2; 0x800] @ 0x504698, reset 0, Scratch, {};
}

//! PGRAPH, the graphics and compute engine: its front end and the units that all GPCs share.

crate::registers! {
    unit "PGRAPH", source "nouveau nvkm/engine/gr/{gf100,ctxgf100}.c; open-gpu-doc dev_graphics; envytools rnndb/graph";
    /// State of the front that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_CTX_400054 @ 0x400054, reset 0, Scratch, {};
    /// State of the front that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_CTX_400080 @ 0x400080, reset 0, Scratch, {};
    /// State of the front that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_CTX_400088[3; 4] @ 0x400088, reset 0, Scratch, {};
    /// Interrupts pending; a written 1 clears.
    NV_PGRAPH_INTR @ 0x400100, reset 0, Handler, { 21:21 EXCEPTION, 20:20 CLASS_ERROR, 19:19 FECS, 5:5 ILLEGAL_CLASS, 4:4 ILLEGAL_METHOD, 0:0 NOTIFY };
    /// Units of PGRAPH with an exception; a written 1 clears.
    NV_PGRAPH_EXCEPTION @ 0x400108, reset 0, WriteOneToClear, { 25:25 BE, 24:24 GPC, 8:8 SKED, 7:7 MME, 6:6 PD, 4:4 DS, 3:3 SCC, 1:1 MEMFMT, 0:0 FE };
    /// Why a class refused data.
    NV_PGRAPH_CLASS_ERROR @ 0x400110, reset 0, Handler, { 15:0 CODE = { INVALID_VALUE: 0x04 } };
    /// GPCs with an exception; a written 1 clears.
    NV_PGRAPH_EXCEPTION1 @ 0x400118, reset 0, WriteOneToClear, {};
    /// Further exceptions; a written 1 clears.
    NV_PGRAPH_EXCEPTION2 @ 0x40011c, reset 0, WriteOneToClear, {};
    /// Interrupts that do not stop the engine.
    NV_PGRAPH_INTR_NONSTALL @ 0x400124, reset 0, Scratch, {};
    /// GPC exceptions that reach EXCEPTION.
    NV_PGRAPH_EXCEPTION1_EN @ 0x400130, reset 0, Scratch, {};
    /// Further exceptions that reach EXCEPTION.
    NV_PGRAPH_EXCEPTION2_EN @ 0x400134, reset 0, Scratch, {};
    /// Exceptions that reach INTR.
    NV_PGRAPH_EXCEPTION_EN @ 0x400138, reset 0, Scratch, {};
    /// Interrupts that reach PMC.
    NV_PGRAPH_INTR_EN @ 0x40013c, reset 0xffff_ffff, Handler, {};
    /// State of the front that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_CTX_400140[3; 4] @ 0x400140, reset 0, Scratch, {};
    /// State bundle to execute; done at once.
    NV_PGRAPH_PIPE_BUNDLE_ADDRESS @ 0x400200, reset 0, Scratch, {};
    /// Its data.
    NV_PGRAPH_PIPE_BUNDLE_DATA @ 0x400204, reset 0, Scratch, {};
    /// State bundles come from registers.
    NV_PGRAPH_PIPE_BUNDLE_CONFIG @ 0x400208, reset 0, Scratch, { 31:31 OVERRIDE_PIPE_MODE };
    /// Its data, high word.
    NV_PGRAPH_PIPE_BUNDLE_DATA_HI @ 0x40020c, reset 0, Scratch, {};
    /// Whether the engine takes methods.
    NV_PGRAPH_GRFIFO_CONTROL @ 0x400500, reset 0, Scratch, { 16:16 SEMAPHORE_ACCESS, 0:0 ACCESS };
    /// Whether the engine works.
    NV_PGRAPH_ENGINE_STATUS @ 0x40060c, reset 0, Handler, { 0:0 BUSY };
    /// What of the engine works.
    NV_PGRAPH_STATUS @ 0x400700, reset 0, Handler, { 2:2 BUNDLE, 0:0 STATE };
    /// Method that raised the interrupt.
    NV_PGRAPH_TRAPPED_ADDR @ 0x400704, reset 0, Handler, { 18:16 SUBCH, 13:2 MTHD };
    /// Its data.
    NV_PGRAPH_TRAPPED_DATA_LOW @ 0x400708, reset 0, Handler, {};
    /// Its data, high word.
    NV_PGRAPH_TRAPPED_DATA_HIGH @ 0x40070c, reset 0, Scratch, {};
    /// Errors of the front end.
    NV_PGRAPH_PRI_FE_HWW_ESR @ 0x404000, reset 0, Scratch, { 31:31 RESET, 30:30 EN };
    /// State of the front end that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_FE_CTX_404004[11; 4] @ 0x404004, reset 0, Scratch, {};
    /// State of the front end that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_FE_CTX_404044 @ 0x404044, reset 0, Scratch, {};
    /// State of the front end that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_FE_CTX_404094[14; 4] @ 0x404094, reset 0, Scratch, {};
    /// State of the front end that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_FE_CTX_4040D0[7; 4] @ 0x4040d0, reset 0, Scratch, {};
    /// State of the front end that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_FE_CTX_4040F0 @ 0x4040f0, reset 0, Scratch, {};
    /// State of the front end that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_FE_CTX_4040F8 @ 0x4040f8, reset 0, Scratch, {};
    /// State of the front end that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_FE_CTX_404130[3; 4] @ 0x404130, reset 0, Scratch, {};
    /// State of the front end that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_FE_CTX_404150 @ 0x404150, reset 0, Scratch, {};
    /// Idle time-out of the front end.
    NV_PGRAPH_PRI_FE_IDLE_TIMEOUT @ 0x404154, reset 0x400, Scratch, {};
    /// State of the front end that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_FE_CTX_404158[2; 4] @ 0x404158, reset 0, Scratch, {};
    /// State of the front end that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_FE_CTX_404164[2; 4] @ 0x404164, reset 0, Scratch, {};
    /// Power of the engine; requests complete at once.
    NV_PGRAPH_PRI_FE_PWR_MODE @ 0x404170, reset 0, Handler, { 4:4 REQ_SEND, 1:0 MODE };
    /// State of the front end that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_FE_CTX_404174[3; 4] @ 0x404174, reset 0, Scratch, {};
    /// Class bound to each subchannel.
    NV_PGRAPH_PRI_FE_OBJECT_TABLE[8; 4] @ 0x404200, reset 0, Handler, { 15:0 CLASS };
    /// State of the macro engine that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_MME_CTX_404404[14; 4] @ 0x404404, reset 0, Scratch, {};
    /// State of the macro engine that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_MME_CTX_404460[4; 4] @ 0x404460, reset 0, Scratch, {};
    /// State of the macro engine that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_MME_CTX_404480 @ 0x404480, reset 0, Scratch, {};
    /// Method default to set.
    NV_PGRAPH_PRI_MME_SHADOW_RAM_INDEX @ 0x404488, reset 0, Scratch, { 31:31 WRITE, 27:16 MTHD, 15:0 CLASS };
    /// Its value.
    NV_PGRAPH_PRI_MME_SHADOW_RAM_DATA @ 0x40448c, reset 0, Scratch, {};
    /// Errors of the macro engine.
    NV_PGRAPH_PRI_MME_HWW_ESR @ 0x404490, reset 0, Scratch, { 31:31 RESET, 30:30 EN };
    /// Program counter of the macro that failed.
    NV_PGRAPH_PRI_MME_HWW_ESR_INFO @ 0x404494, reset 0, Scratch, {};
    /// State of the macro engine that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_MME_CTX_404498 @ 0x404498, reset 0, Scratch, {};
    /// Instruction of the macro that failed.
    NV_PGRAPH_PRI_MME_HWW_ESR_OPCODE @ 0x40449c, reset 0, Scratch, {};
    /// Errors of the memory copy unit.
    NV_PGRAPH_PRI_MEMFMT_HWW_ESR @ 0x404600, reset 0, Scratch, { 31:31 RESET, 30:30 EN };
    /// State of the memory copy unit that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_MEMFMT_CTX_404604[4; 4] @ 0x404604, reset 0, Scratch, {};
    /// State of the memory copy unit that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_MEMFMT_CTX_404618[53; 4] @ 0x404618, reset 0, Scratch, {};
    /// State of the memory copy unit that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_MEMFMT_CTX_4046F0[2; 4] @ 0x4046f0, reset 0, Scratch, {};
    /// State of the memory copy unit that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_MEMFMT_CTX_404700[22; 4] @ 0x404700, reset 0, Scratch, {};
    /// State of the shader dispatcher that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_DS_CTX_405800[10; 4] @ 0x405800, reset 0, Scratch, {};
    /// State of the shader dispatcher that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_DS_CTX_405830[3; 4] @ 0x405830, reset 0, Scratch, {};
    /// Errors of the shader dispatcher.
    NV_PGRAPH_PRI_DS_HWW_ESR @ 0x405840, reset 0, Scratch, { 31:31 RESET, 30:30 EN };
    /// Those that are reported.
    NV_PGRAPH_PRI_DS_HWW_REPORT_MASK @ 0x405844, reset 0, Scratch, {};
    /// State of the shader dispatcher that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_DS_CTX_405850[2; 4] @ 0x405850, reset 0, Scratch, {};
    /// State of the shader dispatcher that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_DS_CTX_405870[4; 4] @ 0x405870, reset 0, Scratch, {};
    /// State of the shader dispatcher that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_DS_CTX_405908 @ 0x405908, reset 0, Scratch, {};
    /// State of the shader dispatcher that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_DS_CTX_405A00[2; 4] @ 0x405a00, reset 0, Scratch, {};
    /// State of the shader dispatcher that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_DS_CTX_405A18 @ 0x405a18, reset 0, Scratch, {};
    /// Errors of the primitive distributor.
    NV_PGRAPH_PRI_PD_HWW_ESR @ 0x406018, reset 0, Scratch, { 31:31 RESET, 30:30 EN };
    /// Further errors of the primitive distributor.
    NV_PGRAPH_PRI_PD_HWW_ESR_2 @ 0x40601c, reset 0, Scratch, { 31:31 RESET, 30:30 EN };
    /// State of the primitive distributor that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_PD_CTX_406020[6; 4] @ 0x406020, reset 0, Scratch, {};
    /// State of the primitive distributor that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_PD_CTX_4060A8 @ 0x4060a8, reset 0, Scratch, {};
    /// State of the primitive distributor that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_PD_CTX_4064A8[2; 4] @ 0x4064a8, reset 0, Scratch, {};
    /// State of the primitive distributor that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_PD_CTX_4064B4[2; 4] @ 0x4064b4, reset 0, Scratch, {};
    /// TPCs that take work of kind A for each number of TPCs in use.
    NV_PGRAPH_PRI_PD_ALPHA_RATIO_TABLE[32; 32] @ 0x406800, reset 0, Scratch, {};
    /// TPCs that take work of kind B for each number of TPCs in use.
    NV_PGRAPH_PRI_PD_BETA_RATIO_TABLE[32; 32] @ 0x406c00, reset 0, Scratch, {};
    /// Errors of the compute scheduler.
    NV_PGRAPH_PRI_SKED_HWW_ESR @ 0x407020, reset 0, Scratch, { 31:31 RESET, 30:30 EN };
    /// State of the 2D rasteriser that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_RSTR2D_CTX_407804[8; 4] @ 0x407804, reset 0, Scratch, {};
    /// State of the 2D rasteriser that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_RSTR2D_CTX_4078BC @ 0x4078bc, reset 0, Scratch, {};
    /// State of the constant cache that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_SCC_CTX_408000[7; 4] @ 0x408000, reset 0, Scratch, {};
    /// Clears the constant cache's RAM.
    NV_PGRAPH_PRI_SCC_INIT @ 0x40802c, reset 0, Scratch, { 0:0 RAM };
    /// Errors of the constant cache.
    NV_PGRAPH_PRI_SCC_HWW_ESR @ 0x408030, reset 0, Scratch, { 31:31 RESET, 30:30 EN };
    /// State of the constant cache that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_SCC_CTX_40803C @ 0x40803c, reset 0, Scratch, {};
    /// State of the constant cache that belongs to the context, set by drivers from fixed lists.
    NV_PGRAPH_PRI_SCC_CTX_408064 @ 0x408064, reset 0, Scratch, {};
    /// State of the render back ends, all at once that belongs to the context, set by drivers from fixed
    /// lists.
    NV_PGRAPH_PRI_BES_CTX_408800[4; 4] @ 0x408800, reset 0, Scratch, {};
    /// State of the render back ends, all at once that belongs to the context, set by drivers from fixed
    /// lists.
    NV_PGRAPH_PRI_BES_CTX_408900[3; 4] @ 0x408900, reset 0, Scratch, {};
    /// State of the render back ends, all at once that belongs to the context, set by drivers from fixed
    /// lists.
    NV_PGRAPH_PRI_BES_CTX_408910[9; 4] @ 0x408910, reset 0, Scratch, {};
    /// State of the render back ends, all at once that belongs to the context, set by drivers from fixed
    /// lists.
    NV_PGRAPH_PRI_BES_CTX_408950[2; 4] @ 0x408950, reset 0, Scratch, {};
    /// State of the render back ends, all at once that belongs to the context, set by drivers from fixed
    /// lists.
    NV_PGRAPH_PRI_BES_CTX_408980[4; 4] @ 0x408980, reset 0, Scratch, {};
    /// Errors of each depth unit.
    NV_PGRAPH_PRI_BE_ZROP_HWW_ESR[2; 0x400] @ 0x410070, reset 0, Scratch, { 31:31 RESET, 30:30 EN };
    /// Errors of each colour unit.
    NV_PGRAPH_PRI_BE_CROP_HWW_ESR[2; 0x400] @ 0x410144, reset 0, Scratch, { 31:31 RESET, 30:30 EN };
    /// Depth unit errors that are reported.
    NV_PGRAPH_PRI_BE_ZROP_REPORT_MASK[2; 0x400] @ 0x410204, reset 0, Scratch, {};
    /// Colour unit errors that are reported.
    NV_PGRAPH_PRI_BE_CROP_REPORT_MASK[2; 0x400] @ 0x410208, reset 0, Scratch, {};
}

//! FSP, the processor that starts the others: its message memory (EMEM) and the heads and tails of its
//! queues. Of eight ports and queues drivers use the first.

crate::registers! {
    unit "FSP", source "open-gpu-kernel-modules hopper/gh100 dev_fsp_pri.h, kernel/gpu/fsp; nouveau nvkm/subdev/fsp/gh100.c, falcon/gp102.c";
    /// Port of EMEM: where, and whether reads and writes of the data register move on.
    NV_PFSP_EMEMC @ 0x8f2ac0, reset 0, Handler, { 25:25 AINCR, 24:24 AINCW, 15:8 BLK, 7:2 OFFS };
    /// Data at the port's position.
    NV_PFSP_EMEMD @ 0x8f2ac4, reset 0, Handler, { 31:0 DATA };
    /// Where the message to FSP begins in EMEM. The write sends it; equal to the tail again when FSP took it.
    NV_PFSP_QUEUE_HEAD @ 0x8f2c00, reset 0, Handler, { 31:0 ADDRESS };
    /// The last word of the message to FSP.
    NV_PFSP_QUEUE_TAIL @ 0x8f2c04, reset 0, Handler, { 31:0 ADDRESS };
    /// Where FSP's answer begins in EMEM; equal to the tail while there is none.
    NV_PFSP_MSGQ_HEAD @ 0x8f2c80, reset 0, Handler, { 31:0 VAL };
    /// The last word of FSP's answer.
    NV_PFSP_MSGQ_TAIL @ 0x8f2c84, reset 0, Handler, { 31:0 VAL };
}

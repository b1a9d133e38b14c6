//! PFIFO, the host unit: channels, runlist, preemption, faults; and its PBDMA units.

crate::registers! {
    unit "PFIFO", source "open-gpu-doc dev_fifo; nouveau nvkm/engine/fifo/gf100.c; envytools rnndb/fifo";
    /// Interrupts pending. Bits 31 to 28 follow the registers named in their place; the others are latched.
    NV_PFIFO_INTR_0 @ 0x002100, reset 0, Handler, {
        31:31 NON_STALL, 30:30 RUNLIST, 29:29 PBDMA, 28:28 MMU_FAULT, 24:24 DROPPED_MMU_FAULT, 16:16 CHSW_ERROR,
        8:8 SCHED_ERROR, 0:0 BIND_ERROR
    };
    /// Interrupts that reach PMC.
    NV_PFIFO_INTR_EN_0 @ 0x002140, reset 0, Handler, {
        31:31 NON_STALL, 30:30 RUNLIST, 29:29 PBDMA, 28:28 MMU_FAULT, 24:24 DROPPED_MMU_FAULT, 16:16 CHSW_ERROR,
        8:8 SCHED_ERROR, 0:0 BIND_ERROR
    };
    /// The FIFO as a whole.
    NV_PFIFO_ENABLE @ 0x002200, reset 0, Handler, { 0:0 ENABLE };
    /// PBDMA enables inside PFIFO; bits without a PBDMA stay 0 (nouveau of Linux 6.1 counts PBDMAs so).
    NV_PFIFO_PBDMA_ENABLE @ 0x002204, reset 0, Handler, { 2:0 PBDMA };
    /// PBDMA that feeds each engine, as an inverted mask.
    NV_PFIFO_ENGINE_PBDMA[6; 4] @ 0x002208, reset 0, Scratch, {};
    /// Where in BAR1 the channels' USERD pages lie; a store to GP_PUT there is the doorbell.
    NV_PFIFO_USERD_POLL @ 0x002254, reset 0, Handler, { 28:28 ENABLE, 27:0 BAR1_ADDR };
    /// Address of the runlist that the next write to NV_PFIFO_RUNLIST commits.
    NV_PFIFO_RUNLIST_BASE @ 0x002270, reset 0, Handler, { 29:28 TARGET, 27:0 PTR };
    /// Commits a runlist of that many entries.
    NV_PFIFO_RUNLIST @ 0x002274, reset 0, Handler, { 24:20 ENGINES, 15:0 LENGTH };
    /// Progress of the commit.
    NV_PFIFO_RUNLIST_STATUS @ 0x00227c, reset 0, Handler, { 20:20 PENDING };
    /// Why bind failed.
    NV_PFIFO_BIND_ERROR @ 0x00252c, reset 0, Constant, {};
    /// Why scheduling failed.
    NV_PFIFO_SCHED_ERROR @ 0x00254c, reset 0, Handler, {
        7:0 CODE = {
            /// A context switch did not end in time.
            CTXSW_TIMEOUT: 0x0a,
        }
    };
    /// Why a channel switch failed.
    NV_PFIFO_CHSW_ERROR @ 0x00256c, reset 0, Constant, {};
    /// MMU faults that met an occupied fault record.
    NV_PFIFO_DROPPED_MMU_FAULT @ 0x00258c, reset 0, Constant, {};
    /// Units with an MMU fault to report; a written 1 frees the record.
    NV_PFIFO_MMU_FAULT_ID @ 0x00259c, reset 0, Handler, {
        23:23 PMU, 22:22 PCE1, 21:21 PCE0, 20:20 PMSPDEC, 7:7 HOST, 5:5 BAR3, 4:4 BAR1, 3:3 IFB, 0:0 PGRAPH
    };
    /// PBDMA units with an interrupt pending.
    NV_PFIFO_INTR_PBDMA_ID @ 0x0025a0, reset 0, Handler, { 2:0 PBDMA };
    /// Engines with a non-stall interrupt pending.
    NV_PFIFO_INTR_ENGINE_ID @ 0x0025a4, reset 0, Handler, { 5:5 PCE1, 4:4 PCE0, 0:0 PGRAPH };
    /// Non-stall interrupts of each engine.
    NV_PFIFO_INTR_ENGINE[16; 4] @ 0x0025a8, reset 0, Handler, { 0:0 NON_STALL };
    /// Non-stall interrupts that reach NV_PFIFO_INTR_0.
    NV_PFIFO_INTR_ENGINE_EN @ 0x002628, reset 0, Handler, { 0:0 NON_STALL };
    /// Errors of the scheduler to clear; nothing is kept here.
    NV_PFIFO_ERROR_SCHED_DISABLE @ 0x00262c, reset 0, Scratch, {};
    /// Runlist processing stopped, a bit for each engine.
    NV_PFIFO_SCHED_DISABLE @ 0x002630, reset 0, Handler, { 5:0 ENGINES };
    /// Takes a channel off its engine.
    NV_PFIFO_PREEMPT @ 0x002634, reset 0, Handler, { 20:20 PENDING, 6:0 CHID };
    /// What each engine runs.
    NV_PFIFO_ENGINE_STATUS[8; 4] @ 0x002640, reset 0, Handler, {
        31:31 UNK31, 28:28 BUSY, 20:20 SAVE, 18:18 UNK18, 14:14 CTXSW_LOAD, 12:12 CTXSW_SAVE, 6:0 CHID
    };
    /// MMU fault of each unit: instance block of the channel.
    NV_PFIFO_MMU_FAULT_INST[32; 16] @ 0x002800, reset 0, Handler, { 27:0 PTR };
    /// MMU fault of each unit: virtual address, low word.
    NV_PFIFO_MMU_FAULT_VA_LO[32; 16] @ 0x002804, reset 0, Handler, {};
    /// MMU fault of each unit: virtual address, bits 39:32.
    NV_PFIFO_MMU_FAULT_VA_HI[32; 16] @ 0x002808, reset 0, Handler, {};
    /// MMU fault of each unit: what happened.
    NV_PFIFO_MMU_FAULT_INFO[32; 16] @ 0x00280c, reset 0, Handler, {
        28:24 GPC,
        12:8 CLIENT = {
            PCOPY0: 0x01, PCOPY1: 0x02, DISPATCH: 0x04, PFIFO: 0x06, BAR_READ: 0x07, BAR_WRITE: 0x08,
        },
        7:7 WRITE, 6:6 HUB, 3:0 REASON
    };
    /// Runlist events; a written 1 clears.
    NV_PFIFO_INTR_RUNLIST @ 0x002a00, reset 0, Handler, { 28:28 IDLE };
    /// Runlist events that reach NV_PFIFO_INTR_0.
    NV_PFIFO_INTR_RUNLIST_EN @ 0x002a04, reset 0xbfff_ffff, Scratch, {};
    /// Pretends an MMU fault on an engine, part of a driver's recovery.
    NV_PFIFO_MMU_FAULT_TRIGGER[8; 4] @ 0x002a30, reset 0, Handler, { 8:8 TRIGGER, 4:0 UNIT };
    /// Instance block of each channel.
    NV_PFIFO_CHAN_INST[128; 8] @ 0x003000, reset 0, Handler, { 31:31 VALID, 30:30 POLL_ENABLE, 29:28 TARGET, 27:0 PTR };
    /// Start bit of each channel.
    NV_PFIFO_CHAN_STATE[128; 8] @ 0x003004, reset 0, Handler, { 20:16 ENGINES, 0:0 ENABLE };
    /// PBDMA: method being executed.
    NV_PPBDMA_METHOD0[3; 0x2000] @ 0x0400c0, reset 0, Handler, {
        31:31 VALID, 18:16 SUBCH, 13:2 ADDR, 1:1 UNK1, 0:0 INCR
    };
    /// PBDMA: its data.
    NV_PPBDMA_DATA0[3; 0x2000] @ 0x0400c4, reset 0, Handler, {};
    /// PBDMA: interrupts pending; a written 1 clears. GPPTR: GP_PUT is outside the ring. GPENTRY, PBENTRY: an
    /// entry or a header of unknown form. METHOD: one that nobody has. METHODCRC: a wrong sum. DEVICE: no
    /// hardware is behind the subchannel. SEMAPHORE: an unknown operation. ACQUIRE: it took too long.
    /// SIGNATURE: RAMFC has none.
    NV_PPBDMA_INTR_0[3; 0x2000] @ 0x040108, reset 0, Handler, {
        31:31 SIGNATURE, 26:26 ACQUIRE, 25:25 SEMAPHORE, 23:23 DEVICE, 22:22 METHODCRC, 21:21 METHOD,
        18:18 PBENTRY, 15:15 GPENTRY, 14:14 GPPTR
    };
    /// PBDMA: interrupts that reach PFIFO.
    NV_PPBDMA_INTR_EN_0[3; 0x2000] @ 0x04010c, reset 0, Handler, {};
    /// PBDMA: channel that it serves.
    NV_PPBDMA_CHANNEL[3; 0x2000] @ 0x040120, reset 0, Handler, { 6:0 CHID };
    /// PBDMA: stall settings.
    NV_PPBDMA_INTR_STALL[3; 0x2000] @ 0x04013c, reset 0, Scratch, {};
}

//! The PRI ring that carries register accesses to the units, and the top-level unit counts.

crate::registers! {
    unit "PRIVRING", source "nouveau nvkm/subdev/privring/gf100.c; open-gpu-doc dev_pri_ringmaster";
    /// Command to the ring's master; done at once.
    NV_PPRIV_MASTER_RING_COMMAND @ 0x121c4c, reset 0, Handler, { 5:0 CMD };
    /// Ring stations with an error, hubs and memory partitions.
    NV_PPRIV_MASTER_RING_INTERRUPT_STATUS0 @ 0x121c58, reset 0, Constant, {};
    /// Ring stations with an error, GPCs.
    NV_PPRIV_MASTER_RING_INTERRUPT_STATUS1 @ 0x121c5c, reset 0, Constant, {};
    /// Hub stations.
    NV_PPRIV_MASTER_RING_HUB_COUNT @ 0x121c70, reset 1, Constant, { 4:0 COUNT };
    /// Memory partition stations.
    NV_PPRIV_MASTER_RING_FBP_COUNT @ 0x121c74, reset 2, Constant, { 4:0 COUNT };
    /// GPC stations.
    NV_PPRIV_MASTER_RING_GPC_COUNT @ 0x121c78, reset 1, Constant, { 4:0 COUNT };
    /// Time-out of ring accesses.
    NV_PPRIV_SYS_PRIV_DECODE_CONFIG @ 0x122310, reset 0, Scratch, { 17:0 VALUE };
    /// Clock settings of the ring's stations.
    NV_PPRIV_SYS_CLOCK[3; 4] @ 0x12232c, reset 0, Scratch, {};
    /// Poll time of the ring.
    NV_PPRIV_SYS_POLL @ 0x122348, reset 0, Scratch, { 17:0 VALUE };
}

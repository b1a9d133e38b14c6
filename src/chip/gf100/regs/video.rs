//! The falcons of the video engines. No video engine is modelled: drivers quiet them when they start and
//! never bring them up without firmware files.

crate::registers! {
    unit "VIDEO", source "nouveau nvkm/engine/{msvld,mspdec,msppp}/gf100.c, nvkm/engine/falcon.c";
    /// Bitstream decoder: disables interrupts of the falcon.
    NV_PMSVLD_INTR_EN_CLEAR @ 0x084014, reset 0, Scratch, {};
    /// Bitstream decoder: requests that the falcon takes.
    NV_PMSVLD_ACCESS_EN @ 0x084048, reset 0, Scratch, { 1:1 CHSW, 0:0 FIFO };
    /// Picture decoder: disables interrupts of the falcon.
    NV_PMSPDEC_INTR_EN_CLEAR @ 0x085014, reset 0, Scratch, {};
    /// Picture decoder: requests that the falcon takes.
    NV_PMSPDEC_ACCESS_EN @ 0x085048, reset 0, Scratch, { 1:1 CHSW, 0:0 FIFO };
    /// Post-processor: disables interrupts of the falcon.
    NV_PMSPPP_INTR_EN_CLEAR @ 0x086014, reset 0, Scratch, {};
    /// Post-processor: requests that the falcon takes.
    NV_PMSPPP_ACCESS_EN @ 0x086048, reset 0, Scratch, { 1:1 CHSW, 0:0 FIFO };
}

//! Doorbells of GSP's queues.

crate::registers! {
    unit "GSP QUEUES", source "open-gpu-kernel-modules turing/tu102 dev_gsp.h; nouveau nvkm/subdev/gsp/rm/r535/rpc.c";
    /// Doorbells to the firmware, by queue. The first: the command queue has something new.
    NV_PGSP_QUEUE_HEAD[8; 8] @ 0x110c00, reset 0, Handler, { 31:0 ADDRESS };
}

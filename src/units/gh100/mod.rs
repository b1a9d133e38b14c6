//! The register face of a GH100 as GSP firmware leaves it to a driver: FSP and GSP mailboxes, the VFN interrupt
//! tree, PRAMIN, BAR1 and BAR2, TLB invalidation, doorbells. Everything else is asked of [`gsp`].

pub mod gsp;

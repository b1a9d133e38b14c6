//! GF100 (Fermi): the chip of the GPUvm papers.

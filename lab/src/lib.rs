//! The laboratory: fetches QEMU and guest kernels, builds the initramfs, runs guests and judges them.

//! The limits that a VM has, by name, and how far it is from each: what operators see of them.
//!
//! Some are kept by the aggregator (what crosses VMs), others by the device backend (what its guest may cost
//! it). Figures of the second kind are the backend's own word.

macro_rules! limits {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// A quota or rate limit of a VM.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Limit {
            $($(#[$doc])* $variant,)*
        }

        impl Limit {
            /// All of them.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$variant),*];

            /// Its name in configuration and status.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

limits! {
    /// Host memory for page tables, in bytes (aggregator).
    PageTables = "page_tables",
    /// Pages mapped in all address spaces (aggregator).
    Mappings = "mappings",
    /// Limit of channels, enforced by the aggregator.
    Channels = "channels",
    /// Address spaces (aggregator).
    Spaces = "spaces",
    /// Guest memory ranges (aggregator).
    MemoryRanges = "memory_ranges",
    /// Files and mappings of the VM's memory that are given back and not closed yet (aggregator).
    Unclosed = "unclosed",
    /// Doorbells a second (aggregator).
    Doorbells = "doorbells",
    /// Share of the aggregator's thread while others want it, in percent (aggregator).
    ThreadTime = "thread_time",
    /// How often the host cleans up after it, in bytes zeroed (aggregator).
    Cleanups = "cleanups",
    /// Guest page tables that are followed (device backend).
    GuestTables = "guest_tables",
    /// Pages of one address space that point outside the guest's memory (device backend).
    BadPages = "bad_pages",
    /// TLB flushes a second (device backend).
    Flushes = "flushes",
    /// Requests to the aggregator a second (device backend).
    Requests = "requests",
    /// Interrupts to the guest a second (device backend).
    Interrupts = "interrupts",
    /// Lines in the device backend's log a second (device backend).
    LogLines = "log_lines",
    /// Objects of GH100's firmware (device backend).
    Objects = "objects",
}

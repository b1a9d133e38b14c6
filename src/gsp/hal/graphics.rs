//! What graphics engines of whole chips have. Cards have some clusters switched off, each card others; one
//! that is behind a vGPU says what it has.
//!
//! Where the numbers are from (a texture cluster has two multiprocessors, which is what cards are sold by):
//!
//! * NVIDIA's white papers on each architecture: TU102, TU104, TU106, GA102, GA104, GH100, AD102 to AD104,
//!   GB202
//! * clusters as the press told them: TU116 (TechPowerUp on the GTX 1660 Ti), GA103 (io-tech.fi, 28 January
//!   2022), GA106 beside GA104 (on RTX 3060s with a GA104, September 2021), AD106 (SemiAnalysis, June 2022),
//!   GB203 to GB207 (kopite7kimi, 11 June 2024; sold since with as many multiprocessors)
//! * assumed, the multiprocessors of the largest card shared out: TU117 (16), GA107 (20), AD107 (24, in
//!   another number of clusters than GB207, says kopite7kimi on 2 June 2024)

#[cfg(test)]
mod tests {
    use super::super::tests::ALL;

    /// Two multiprocessors a texture cluster: no card of a chip may have more than the chip.
    #[test]
    fn chips_have_what_their_largest_cards_have() {
        for (name, gpcs, multiprocessors) in [
            ("TU102", 6, 72),
            ("TU104", 6, 48),
            ("TU106", 3, 36),
            ("TU116", 3, 24),
            ("TU117", 2, 16),
            ("GA102", 7, 84),
            ("GA104", 6, 48),
            ("GA103", 6, 60),
            ("GA106", 3, 30),
            ("GA107", 2, 20),
            ("AD102", 12, 144),
            ("AD103", 7, 80),
            ("AD104", 5, 60),
            ("AD106", 3, 36),
            ("AD107", 3, 24),
            ("GH100", 8, 144),
            ("GB202", 12, 192),
            ("GB203", 7, 84),
            ("GB205", 5, 50),
            ("GB206", 3, 36),
            ("GB207", 2, 20),
        ] {
            let units = ALL.iter().find(|hal| hal.short_name == name).unwrap().graphics;
            assert_eq!((units.gpc_mask(), 2 * units.total()), ((1 << gpcs) - 1, multiprocessors), "{name}");
        }
        assert!(ALL.iter().all(|hal| hal.graphics.total() > 0));
    }
}

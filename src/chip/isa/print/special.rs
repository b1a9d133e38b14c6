//! Names of special registers.

/// The name of a special register.
pub(crate) fn name(number: u8) -> String {
    NAMES
        .iter()
        .find(|(held, _)| *held == number)
        .map_or_else(|| format!("SR{number}"), |(_, name)| (*name).to_owned())
}

const NAMES: &[(u8, &str)] = &[
    (0x00, "SR_LANEID"),
    (0x20, "SR_TID"),
    (0x21, "SR_TID.X"),
    (0x22, "SR_TID.Y"),
    (0x23, "SR_TID.Z"),
    (0x25, "SR_CTAID.X"),
    (0x26, "SR_CTAID.Y"),
    (0x27, "SR_CTAID.Z"),
    (0x28, "SR_NTID"),
    (0x88, "SR_CgaCtaId"),
    (0xff, "SRZ"),
];

//! What BMOV moves: convergence barriers, and the other words of a warp's state.

/// The first one; five say what state each lane is in.
pub const FIRST: u8 = 16;
/// The last of the five.
pub const THREAD_STATE_LAST: u8 = 20;
/// The lanes that have ended.
pub const MEXITED: u8 = 24;
/// The lanes that run here.
pub const MACTIVE: u8 = 26;
/// How an older kind of stack is used.
pub const OPT_STACK: u8 = 28;

/// Behind the sixteen barriers.
const NAMES: [&str; 17] = [
    "THREAD_STATE_ENUM.0",
    "THREAD_STATE_ENUM.1",
    "THREAD_STATE_ENUM.2",
    "THREAD_STATE_ENUM.3",
    "THREAD_STATE_ENUM.4",
    "TRAP_RETURN_PC.LO",
    "TRAP_RETURN_PC.HI",
    "TRAP_RETURN_MASK",
    "MEXITED",
    "MKILL",
    "MACTIVE",
    "MATEXIT",
    "OPT_STACK",
    "API_CALL_DEPTH",
    "ATEXIT_PC.LO",
    "ATEXIT_PC.HI",
    "MCOLLECTIVE",
];

/// As it is printed.
pub(crate) fn name(number: u8) -> String {
    match number.checked_sub(FIRST).and_then(|behind| NAMES.get(usize::from(behind))) {
        Some(name) => (*name).to_owned(),
        None => format!("B{number}"),
    }
}

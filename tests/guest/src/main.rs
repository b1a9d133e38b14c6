//! What runs inside a test guest.
fn main() {}

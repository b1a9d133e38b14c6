//! What guests' monitors show, looked at from outside: `gpuvmk screenshot` takes pictures of them while guest
//! programs say what they show ([`audience`]), and each picture is compared with that, pixel for pixel
//! ([`pattern`]) or letter for letter ([`console`]).
//!
//! Nothing here is shared with the guest program or with what composes pictures: what a format's bits mean
//! and what a letter looks like is said here once more.

mod audience;
mod console;
mod pattern;
mod picture;

pub use audience::{Audience, Look};
pub use picture::Picture;

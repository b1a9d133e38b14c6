//! Whether the software GPU executes shaders.

/// What the software GPU does with a launch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shaders {
    /// It stops its channel, and says why. A launch that does nothing would look like a result, and most
    /// operations have not been compared with a GPU yet.
    #[default]
    Refused,
    /// It runs, on SM 7.5 to 9.0.
    Executed,
}

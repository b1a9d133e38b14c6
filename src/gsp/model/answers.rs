//! How calls to GSP are answered: the form of the tables of functions, classes and controls.
//!
//! Each table says of a number its name, what it is sent to, how large its parameters are, how it is
//! answered, and where that is known from. docs/controls.md is written from them ([`super::document`]).

use super::rm::Rm;
use crate::abi::status::Status;
use gpuvmk_backend::GspBackend;

/// Where the numbers, the layouts and the meaning of a call are known from.
pub(super) type Source = &'static str;

/// What decides an answer: it changes the parameters in place, or says which status the driver is told.
pub(super) type Handler<T> = fn(&mut Rm, &dyn GspBackend, T, &mut [u8]) -> Result<(), Status>;

/// How a call is answered whose parameters have the right size and that names the right object.
#[derive(Clone, Copy)]
pub(super) enum Answer<T> {
    /// The model decides.
    Handler(Handler<T>),
    /// The same bytes every time. They are as many as the parameters; a test holds the tables to that.
    Constant(&'static [u8]),
    /// All parameters are zero.
    Zeroes,
}

impl<T> Answer<T> {
    /// Carries the call out.
    ///
    /// # Errors
    /// The status that the driver is told.
    pub(super) fn give(
        self,
        rm: &mut Rm,
        back: &dyn GspBackend,
        target: T,
        parameters: &mut [u8],
    ) -> Result<(), Status> {
        match self {
            Self::Handler(handler) => handler(rm, back, target, parameters),
            Self::Constant(bytes) => {
                parameters.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
                Ok(())
            }
            Self::Zeroes => {
                parameters.fill(0);
                Ok(())
            }
        }
    }

    /// What kind of answer it is, for the document.
    pub(super) const fn kind(&self) -> &'static str {
        match self {
            Self::Handler(_) => "handler",
            Self::Constant(_) => "constant",
            Self::Zeroes => "zeroes",
        }
    }
}

/// Declares controls: number by its name, object, bytes of parameters, answer.
///
/// ```text
/// controls! {
///     source "open-gpu-kernel-modules ctrl2080gpu.h; nouveau r570/gr.c";
///     /// What it asks, in a sentence.
///     NV2080_CTRL_CMD_GPU_GET_FERMI_GPC_INFO on Subdevice, 4 => Answer::Handler(gpc_info);
/// }
/// ```
macro_rules! controls {
    ($(
        source $source:literal;
        $($(#[doc = $doc:literal])+ $name:ident on $object:ident, $size:expr => $answer:expr;)+
    )+) => {
        pub(in crate::model) static CONTROLS: &[$crate::model::control::Control] = &[$($(
            $crate::model::control::Control {
                number: $name,
                name: stringify!($name),
                object: $crate::model::objects::Type::$object,
                size: $size,
                answer: $answer,
                source: $source,
                doc: concat!($($doc),+),
            },
        )+)+];
    };
}

pub(super) use controls;

//! The doorbell: a register to which a driver writes a channel's token.

use gpuvmk_chip::addr::Chid;
use gpuvmk_chip::registers::{Field, Reg};

/// A channel as a doorbell names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token {
    /// Runlist.
    pub runlist: u16,
    /// Channel on it.
    pub chid: Chid,
}

/// Where the doorbell is, and where a token's parts are in what is written there.
#[derive(Clone, Copy, Debug)]
pub struct Doorbell {
    /// The register.
    pub register: Reg,
    /// Runlist, of at most 16 bits.
    pub runlist: Field,
    /// Channel on the runlist, of at most 16 bits.
    pub chid: Field,
    /// Bits that a token has set. A value without them rings for no channel.
    pub required: u32,
}

impl Doorbell {
    /// The token in a value that was written; none where it rings for no channel.
    pub const fn token(&self, value: u32) -> Option<Token> {
        if value & self.required != self.required {
            return None;
        }
        Some(Token { runlist: self.runlist.get_u16(value), chid: Chid(self.chid.get_u16(value)) })
    }

    /// The value that a driver writes for a token that [`Self::token`] has given.
    pub fn value(&self, token: Token) -> u32 {
        self.runlist.of(token.runlist.into()) | self.chid.of(token.chid.0.into()) | self.required
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gsp_face::hal::GH100;

    /// As Blackwell has it: fewer bits, and one that says that a runlist is named.
    const NARROW: Doorbell = Doorbell {
        register: Reg(0x90),
        runlist: Field::new(22, 16),
        chid: Field::new(11, 0),
        required: 1 << 30,
    };

    #[test]
    fn halves_of_the_word_on_gh100() {
        let token = Token { runlist: 0x1234, chid: Chid(0xfedc) };
        assert_eq!(GH100.doorbell.token(0x1234_fedc), Some(token));
        assert_eq!(GH100.doorbell.value(token), 0x1234_fedc);
    }

    #[test]
    fn required_bits_are_written_and_looked_for() {
        let token = Token { runlist: 5, chid: Chid(0x123) };
        assert_eq!(NARROW.value(token), 0x4005_0123);
        assert_eq!(NARROW.token(0x4005_0123), Some(token));
        assert_eq!(NARROW.token(0x4085_f123), Some(token), "bits between the fields say nothing");
        assert_eq!(NARROW.token(0x0005_0123), None);
    }
}

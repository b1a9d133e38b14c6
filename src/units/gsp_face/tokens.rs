//! Which channel a doorbell's token names, remembered so that a doorbell need not ask GSP, which may be busy.
//!
//! A fixed number of places, one for each value of a token's low bits; a collision costs a lookup in GSP. The
//! holder of GSP updates the places before it releases the lock. While GSP carries commands out, a doorbell
//! sees the state before them: a guest that frees a channel and rings it at the same time gets either result.

use super::hal::Token;
use gpuvmk_gsp::DoorbellTarget;

/// Places, a power of two: every channel of some runlists.
const PLACES: usize = 1024;

/// The places.
#[derive(Debug)]
pub struct Tokens(Box<[Option<(Token, DoorbellTarget)>]>);

impl Default for Tokens {
    fn default() -> Self {
        Self(vec![None; PLACES].into_boxed_slice())
    }
}

fn place(token: Token) -> usize {
    // Channel numbers are dense and start at 0 on every runlist.
    (usize::from(token.chid.0) ^ usize::from(token.runlist) << 8) % PLACES
}

impl Tokens {
    /// The channel, if it is known.
    pub fn get(&self, token: Token) -> Option<DoorbellTarget> {
        let (known, target) = (*self.0.get(place(token))?)?;
        (known == token).then_some(target)
    }

    /// Remembers a channel.
    pub fn put(&mut self, token: Token, target: DoorbellTarget) {
        if let Some(place) = self.0.get_mut(place(token)) {
            *place = Some((token, target));
        }
    }

    /// Asks again for all that is remembered. True when a token is not any more.
    pub fn refresh(&mut self, ask: impl Fn(Token) -> Option<DoorbellTarget>) -> bool {
        let mut gone = false;
        for place in &mut self.0 {
            if let Some((token, _)) = *place {
                *place = ask(token).map(|target| (token, target));
                gone |= place.is_none();
            }
        }
        gone
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.0.fill(None);
    }

    /// All tokens that are known.
    pub fn known(&self) -> impl Iterator<Item = Token> {
        self.0.iter().flatten().map(|(token, _)| *token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use gpuvmk_chip::addr::{Chid, GuestChannel};

    const TARGET: DoorbellTarget = DoorbellTarget { channel: GuestChannel(4), userd: 0x1000 };

    #[test]
    fn token_is_found_and_one_at_the_same_place_is_not() {
        let mut tokens = Tokens::default();
        tokens.put(Token { runlist: 1, chid: Chid(7) }, TARGET);
        assert_eq!(tokens.get(Token { runlist: 1, chid: Chid(7) }), Some(TARGET));
        assert_eq!(tokens.get(Token { runlist: 5, chid: Chid(7) }), None);
        assert_eq!(tokens.get(Token { runlist: 0, chid: Chid(0x107) }), None);
    }

    #[test]
    fn refresh_moves_and_removes() {
        let mut tokens = Tokens::default();
        let [kept, gone] = [Token { runlist: 0, chid: Chid(1) }, Token { runlist: 0, chid: Chid(2) }];
        tokens.put(kept, TARGET);
        tokens.put(gone, TARGET);
        let moved = DoorbellTarget { channel: GuestChannel(9), ..TARGET };
        assert!(tokens.refresh(|token| (token == kept).then_some(moved)));
        assert_eq!((tokens.get(kept), tokens.get(gone)), (Some(moved), None));
        assert_eq!(tokens.known().collect::<Vec<_>>(), [kept]);
        assert!(!tokens.refresh(|_| Some(TARGET)));
        tokens.clear();
        assert_eq!(tokens.get(kept), None);
    }
}

//! What a vhost-user back end says: its answers in a session, and what it asks.

use gpuvmk::vmm::vhost_user::{try_answers, try_requests};

/// The first byte says which of the two the others are.
pub fn run(data: &[u8]) {
    match data.split_first() {
        Some((kind, requests)) if kind & 1 != 0 => try_requests(requests),
        Some((_, answers)) => {
            try_answers(answers);
        }
        None => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn honest_sessions_of_the_corpus_come_to_their_end_and_others_do_not() {
        let answers = |name: &str| std::fs::read(format!("corpus/back_end/{name}")).unwrap().split_off(1);
        for name in ["honest", "no-acknowledgements", "no-protocol"] {
            assert!(try_answers(&answers(name)), "{name}");
        }
        for name in ["no-queues", "place-beyond-rings"] {
            assert!(!try_answers(&answers(name)), "{name}");
        }
        let honest = answers("honest");
        assert!((0..honest.len()).all(|size| !try_answers(honest.get(..size).unwrap_or_default())));
    }
}

//! Connections that wait for a place. Each user's come in turn, and nobody waits for another user's.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use super::peer::Peer;
use gpuvmk_ordered::OrderedMap;

/// Connections that wait, of one user and of all.
const MOST_OF_USER: usize = 64;
const MOST: usize = 96;

/// What is said where all places to wait are taken.
const FULL: &str = "too many connections wait for a place";

/// How long a connection waits at most.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// A connection that was accepted and has no place yet.
#[derive(Debug)]
pub(super) struct Newcomer {
    pub socket: OwnedFd,
    pub peer: Peer,
    /// The VM whose door it came by.
    pub vm: Option<String>,
    /// When it came.
    pub since: Instant,
}

/// Those of one user.
#[derive(Debug)]
struct Queue {
    newcomers: VecDeque<Newcomer>,
    /// When the first one is to try again.
    next: Instant,
}

/// Those of all users.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    users: OrderedMap<u32, Queue>,
}

impl Waiting {
    fn len(&self) -> usize {
        self.users.values().map(|queue| queue.newcomers.len()).sum()
    }

    /// Puts a newcomer behind the others of its user, to try at `now` if there are none.
    ///
    /// # Errors
    /// Too many wait: who has to go, and what is said of it. That is the newcomer, or the last one of a user
    /// who has more than the newcomer's.
    pub fn push(&mut self, newcomer: Newcomer, now: Instant) -> Result<(), (Box<Newcomer>, &'static str)> {
        if self.len() >= MOST {
            let own = self.users.get(&newcomer.peer.uid).map_or(0, |queue| queue.newcomers.len());
            let most = self.users.values_mut().max_by_key(|queue| queue.newcomers.len());
            let last = most.filter(|queue| queue.newcomers.len() > own + 1);
            let Some(last) = last.and_then(|queue| queue.newcomers.pop_back()) else {
                return Err((Box::new(newcomer), FULL));
            };
            // There is room now.
            return self.push(newcomer, now).and(Err((Box::new(last), FULL)));
        }
        let queue = self
            .users
            .entry(newcomer.peer.uid)
            .or_insert_with(|| Queue { newcomers: VecDeque::new(), next: now });
        if queue.newcomers.len() >= MOST_OF_USER {
            return Err((Box::new(newcomer), "too many of its user's connections wait for a place"));
        }
        queue.newcomers.push_back(newcomer);
        Ok(())
    }

    /// The first newcomer of a user whose time has come.
    pub fn pop(&mut self, now: Instant) -> Option<Newcomer> {
        let (uid, queue) = self.users.iter_mut().find(|(_, queue)| queue.next <= now)?;
        let uid = *uid;
        let newcomer = queue.newcomers.pop_front();
        if queue.newcomers.is_empty() {
            self.users.remove(&uid);
        }
        newcomer
    }

    /// Puts back one that was taken, in front of the others of its user, which wait with it.
    pub fn put_back(&mut self, newcomer: Newcomer, next: Instant) {
        let queue =
            self.users.entry(newcomer.peer.uid).or_insert_with(|| Queue { newcomers: VecDeque::new(), next });
        queue.newcomers.push_front(newcomer);
        queue.next = next;
    }

    /// How long until [`Self::pop`] gives one; `None`: nobody waits.
    pub fn left(&self, now: Instant) -> Option<Duration> {
        self.users.values().map(|queue| queue.next.saturating_duration_since(now)).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn newcomer(uid: u32, since: Instant) -> Newcomer {
        let (socket, _) = rustix::net::socketpair(
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::SEQPACKET,
            rustix::net::SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        let peer = Peer::of(&socket).unwrap().of_user(uid);
        Newcomer { socket, peer, vm: None, since }
    }

    #[test]
    fn users_wait_for_themselves_alone_and_in_turn() {
        let (mut waiting, start) = (Waiting::default(), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!(waiting.left(start), None);
        for ms in 0..3 {
            waiting.push(newcomer(7, at(ms)), at(ms)).unwrap();
        }
        let first = waiting.pop(at(3)).unwrap();
        assert_eq!((first.peer.uid, first.since), (7, at(0)));
        waiting.put_back(first, at(20));
        assert_eq!(waiting.left(at(5)), Some(Duration::from_millis(15)));
        assert!(waiting.pop(at(19)).is_none(), "the others wait with the first");

        waiting.push(newcomer(8, at(5)), at(5)).unwrap();
        assert_eq!(waiting.left(at(5)), Some(Duration::ZERO));
        assert_eq!(waiting.pop(at(5)).map(|it| it.peer.uid), Some(8));
        let order: Vec<_> = std::iter::from_fn(|| waiting.pop(at(20))).map(|it| it.since).collect();
        assert_eq!(order, [at(0), at(1), at(2)]);
        assert_eq!(waiting.left(at(20)), None);
    }

    #[test]
    fn so_many_wait_of_one_user_and_of_all() {
        let (mut waiting, now) = (Waiting::default(), Instant::now());
        let took = |waiting: &mut Waiting, uid| {
            (0..MOST + 1).take_while(|_| waiting.push(newcomer(uid, now), now).is_ok()).count()
        };
        assert_eq!(took(&mut waiting, 7), MOST_OF_USER);
        assert_eq!(took(&mut waiting, 8), MOST - MOST_OF_USER);
        assert_eq!(waiting.len(), MOST);
        // A third user is let in, and one of who has most goes; the others' shares become alike at last.
        for _ in 0..MOST {
            let (_, why) = waiting.push(newcomer(9, now), now).unwrap_err();
            assert_eq!(why, FULL);
            assert_eq!(waiting.len(), MOST);
        }
        let of = |uid| waiting.users[&uid].newcomers.len();
        assert_eq!([of(7), of(8), of(9)], [32, 32, 32]);
    }
}

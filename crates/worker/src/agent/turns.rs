//! Which server an agent asks next, and whether it waits before.
//!
//! The agent asks the servers that it knows one after the other. A server that does not lead names the one that does,
//! and the agent goes there. If it has just come from there, because that server did not answer, the others may not
//! know yet that it is gone: the agent goes on asking the one that answers, which is soon the leader itself or knows it.
//!
//! Where there are several, a server that does not answer is left early: the work that waits for this worker may wait at
//! another one. Only after all of them were silent does the agent wait for longer, as it does for the only server: what
//! is slow may be the network, or the worker itself.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::connect::Backoff;

/// How long an agent waits for the answer of one of several servers.
const ANSWER_OF_SEVERAL: Duration = Duration::from_secs(3);
/// The longest that an agent waits for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// How often in a row the agent goes at once where it is sent, before it waits as after any failure.
const LED_AT_ONCE: u32 = 2;
/// A session that was open for so long is no sign of a trouble that comes again at once.
const STABLE: Duration = Duration::from_secs(1);
/// For how long the agent goes to no server that did not answer it, whoever sends it there. Longer than a leader that is
/// gone is still named.
const AVOIDED: Duration = Duration::from_secs(8);

/// How a session at a server went, or the try to open one.
#[derive(Debug)]
pub(super) struct Ended<'a> {
    /// The address of the server.
    pub(super) server: &'a str,
    /// The leader, as the server named it.
    pub(super) leader: Option<&'a str>,
    /// Whether the server did not answer.
    pub(super) silent: bool,
    /// Whether the session was open.
    pub(super) was_open: bool,
    /// How long it took in all.
    pub(super) lasted: Duration,
}

/// The turns of the servers.
#[derive(Debug)]
pub(super) struct Turns {
    turn: usize,
    led: u32,
    backoff: Backoff,
    /// Servers that did not answer when they were asked last, and when that was.
    silent: BTreeMap<String, Instant>,
    /// How many tries in a row took all the patience there was.
    waited_out: usize,
}

impl Turns {
    pub(super) fn among(servers: usize) -> Self {
        Self { turn: 0, led: 0, backoff: Backoff::among(servers), silent: BTreeMap::new(), waited_out: 0 }
    }

    /// The turn that is now.
    pub(super) fn current(&self) -> usize {
        self.turn
    }

    /// How long to wait for an answer of the server whose turn it is, one of so many.
    pub(super) fn patience(&self, servers: usize) -> Duration {
        if servers <= 1 {
            return ANSWER_MAX;
        }
        let rounds = u32::try_from(self.waited_out / servers).unwrap_or(u32::MAX);
        ANSWER_OF_SEVERAL.saturating_mul(rounds.saturating_add(1)).min(ANSWER_MAX)
    }

    /// Goes on after what was tried at this turn. Returns how long to wait before; `turn_of` finds the turn of an
    /// address, and `servers` is how many there are.
    pub(super) fn next(
        &mut self,
        ended: &Ended<'_>,
        now: Instant,
        servers: usize,
        turn_of: impl Fn(&str) -> Option<usize>,
    ) -> Option<Duration> {
        let here = self.turn;
        self.turn += 1;
        self.silent.remove(ended.server);
        if ended.silent {
            self.silent.insert(ended.server.to_owned(), now);
        }
        let waited_out = ended.silent && !ended.was_open && ended.lasted >= self.patience(servers);
        self.waited_out = if waited_out { self.waited_out + 1 } else { 0 };
        // Its server gave the work to another one, or is gone, and whatever is to be started waits for us.
        if ended.was_open && ended.lasted > STABLE && servers > 1 {
            return None;
        }
        if ended.lasted > ANSWER_MAX {
            self.backoff = Backoff::among(servers);
        }
        if let Some(leader) = ended.leader {
            let is_avoided =
                self.silent.get(leader).is_some_and(|at| now.saturating_duration_since(*at) < AVOIDED);
            if is_avoided {
                self.turn = turn_of(ended.server).unwrap_or(here);
            } else {
                self.turn = turn_of(leader).unwrap_or(self.turn);
                self.led += 1;
                if self.led <= LED_AT_ONCE {
                    return None;
                }
            }
        }
        self.led = 0;
        Some(self.backoff.pause())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVERS: [&str; 2] = ["http://a", "http://b"];

    struct Tries {
        turns: Turns,
        now: Instant,
    }

    impl Tries {
        fn new() -> Self {
            Self { turns: Turns::among(SERVERS.len()), now: Instant::now() }
        }

        fn server(&self) -> &'static str {
            SERVERS[self.turns.current() % SERVERS.len()]
        }

        /// A try at the server whose turn it is; answers with the pause before the next.
        fn end(&mut self, leader: Option<&str>, silent: bool, lasted: Duration) -> Option<Duration> {
            self.now += lasted;
            let was_open = lasted > STABLE && !silent;
            let ended = Ended { server: self.server(), leader, silent, was_open, lasted };
            let turn_of = |url: &str| SERVERS.iter().position(|server| *server == url);
            let pause = self.turns.next(&ended, self.now, SERVERS.len(), turn_of);
            self.now += pause.unwrap_or_default();
            pause
        }
    }

    const QUICK: Duration = Duration::from_millis(5);

    #[tokio::test]
    async fn the_agent_goes_at_once_where_it_is_sent() {
        let mut tries = Tries::new();
        assert_eq!(tries.end(Some("http://b"), false, QUICK), None);
        assert_eq!(tries.server(), "http://b");
    }

    #[tokio::test]
    async fn two_servers_that_send_it_to_each_other_are_not_asked_in_a_tight_loop() {
        let mut tries = Tries::new();
        let pauses: Vec<_> =
            (0..6).map(|n| tries.end(Some(SERVERS[(n + 1) % 2]), false, QUICK).is_some()).collect();
        assert_eq!(pauses, [false, false, true, false, false, true]);
    }

    /// The leader is cut off from this worker and from the database, and the other server does not know it yet.
    #[tokio::test]
    async fn it_does_not_go_back_to_a_server_that_did_not_answer_because_another_names_it() {
        let mut tries = Tries::new();
        tries.end(None, true, Duration::from_secs(4));
        assert_eq!(tries.server(), "http://b");
        let begin = tries.now;
        while tries.now - begin < Duration::from_secs(7) {
            assert!(
                tries.end(Some("http://a"), false, QUICK).is_some_and(|pause| pause < Duration::from_secs(1))
            );
            assert_eq!(tries.server(), "http://b");
        }
        // In the end it believes what it is told.
        tries.now += AVOIDED;
        tries.end(Some("http://a"), false, QUICK);
        assert_eq!(tries.server(), "http://a");
    }

    /// A worker that comes while the leader is cut off must not keep the work that waits for it waiting.
    #[tokio::test]
    async fn it_leaves_a_silent_server_early_only_while_another_may_answer() {
        let seconds = Duration::from_secs;
        assert_eq!(Turns::among(1).patience(1), seconds(10));

        let mut tries = Tries::new();
        let mut waits = Vec::new();
        for _ in 0..8 {
            let wait = tries.turns.patience(SERVERS.len());
            waits.push(wait.as_secs());
            tries.end(None, true, wait);
        }
        assert_eq!(waits, [3, 3, 6, 6, 9, 9, 10, 10]);
        tries.end(None, true, QUICK);
        assert_eq!(tries.turns.patience(SERVERS.len()), seconds(3), "a refused connection is an answer");
    }

    #[tokio::test]
    async fn a_session_that_ends_is_opened_elsewhere_at_once() {
        let mut tries = Tries::new();
        assert_eq!(tries.end(None, false, Duration::from_secs(60)), None);
        assert_eq!(tries.server(), "http://b");
    }
}

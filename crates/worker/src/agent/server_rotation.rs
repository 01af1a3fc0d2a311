//! Selects the next server to contact, and the delay before that.
//!
//! The agent contacts its known servers in turn. A standby returns the address of the leader, and the agent contacts
//! that server next. If the agent has just left that leader because it did not answer, the other servers may not know
//! yet that it has failed. The agent then asks the servers that answer, of which one soon becomes the leader. A server that
//! refuses the connection at once is not avoided: an attempt costs nothing, and the server may be back.
//!
//! If there are several servers, the agent leaves an unresponsive one early: executions that wait for this worker may
//! be assigned by another server. Only after all servers were unresponsive does the agent wait longer, as for a
//! single server: the network or the worker itself may be slow.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::connect::Backoff;

/// Time that the agent waits for one of several servers to answer.
const ANSWER_OF_SEVERAL: Duration = Duration::from_secs(3);
/// Maximum time that the agent waits for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Number of consecutive redirects to a leader that the agent follows without a delay.
const REDIRECTS_AT_ONCE: u32 = 2;
/// After a session of this duration, the agent reconnects without a delay.
const STABLE: Duration = Duration::from_secs(1);
/// An attempt that failed within this time was refused, so the machine of the server answers.
const REFUSED: Duration = Duration::from_millis(500);
/// Duration for which the agent avoids an unresponsive server, even if a standby names it as the leader. Longer than
/// a failed leader is still named.
const AVOIDED: Duration = Duration::from_secs(8);

/// Result of a session, or of the attempt to open one.
#[derive(Debug)]
pub(super) struct SessionResult<'a> {
    /// Address of the server.
    pub(super) server: &'a str,
    /// Address of the leader, as reported by the server.
    pub(super) leader: Option<&'a str>,
    /// Whether the server did not answer.
    pub(super) silent: bool,
    /// Whether the session was opened.
    pub(super) was_open: bool,
    /// Duration of the session, including the attempt to open it.
    pub(super) lasted: Duration,
}

/// Rotation of the known servers.
#[derive(Debug)]
pub(super) struct ServerRotation {
    turn: usize,
    redirects: u32,
    backoff: Backoff,
    /// Unresponsive servers, with the time of their last failure.
    silent: BTreeMap<String, Instant>,
    /// Number of consecutive attempts that timed out.
    timeouts: usize,
}

impl ServerRotation {
    pub(super) fn among(servers: usize) -> Self {
        Self { turn: 0, redirects: 0, backoff: Backoff::among(servers), silent: BTreeMap::new(), timeouts: 0 }
    }

    /// Index of the current server.
    pub(super) fn current(&self) -> usize {
        self.turn
    }

    /// Timeout for the current server, if there are `servers` in total.
    pub(super) fn answer_timeout(&self, servers: usize) -> Duration {
        if servers <= 1 {
            return ANSWER_MAX;
        }
        let rounds = u32::try_from(self.timeouts / servers).unwrap_or(u32::MAX);
        ANSWER_OF_SEVERAL.saturating_mul(rounds.saturating_add(1)).min(ANSWER_MAX)
    }

    /// Selects the next server after the result at the current one. Returns the delay before the next attempt, `None`
    /// for no delay. `turn_of` returns the index of an address, and `servers` is the number of known servers.
    pub(super) fn next(
        &mut self,
        ended: &SessionResult<'_>,
        now: Instant,
        servers: usize,
        turn_of: impl Fn(&str) -> Option<usize>,
    ) -> Option<Duration> {
        let here = self.turn;
        self.turn += 1;
        self.silent.remove(ended.server);
        if ended.silent && ended.lasted >= REFUSED {
            self.silent.insert(ended.server.to_owned(), now);
        }
        let waited_out = ended.silent && !ended.was_open && ended.lasted >= self.answer_timeout(servers);
        self.timeouts = if waited_out { self.timeouts + 1 } else { 0 };
        // The server has lost the leadership or failed, and executions to start may wait for this worker.
        if ended.was_open && ended.lasted > STABLE && servers > 1 {
            return None;
        }
        if ended.lasted > ANSWER_MAX {
            self.backoff = Backoff::among(servers);
        }
        if let Some(leader) = ended.leader {
            self.silent.retain(|_, at| now.saturating_duration_since(*at) < AVOIDED);
            if self.silent.contains_key(leader) {
                let avoided: Vec<_> = self.silent.keys().filter_map(|url| turn_of(url)).collect();
                let here = turn_of(ended.server).unwrap_or(here);
                let mut others = (1..servers).map(|step| (here + step) % servers);
                self.turn = others.find(|turn| !avoided.contains(turn)).unwrap_or(here);
            } else {
                self.turn = turn_of(leader).unwrap_or(self.turn);
                self.redirects += 1;
                if self.redirects <= REDIRECTS_AT_ONCE {
                    return None;
                }
            }
        }
        self.redirects = 0;
        Some(self.backoff.pause())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVERS: [&str; 2] = ["http://a", "http://b"];
    const THREE: [&str; 3] = ["http://a", "http://b", "http://c"];

    struct RotationTest {
        servers: &'static [&'static str],
        turns: ServerRotation,
        now: Instant,
    }

    impl RotationTest {
        fn new() -> Self {
            Self::among(&SERVERS)
        }

        fn among(servers: &'static [&'static str]) -> Self {
            Self { servers, turns: ServerRotation::among(servers.len()), now: Instant::now() }
        }

        fn server(&self) -> &'static str {
            self.servers[self.turns.current() % self.servers.len()]
        }

        /// Simulates an attempt at the current server; returns the delay before the next attempt.
        fn end(&mut self, leader: Option<&str>, silent: bool, lasted: Duration) -> Option<Duration> {
            self.now += lasted;
            let was_open = lasted > STABLE && !silent;
            let ended = SessionResult { server: self.server(), leader, silent, was_open, lasted };
            let turn_of = |url: &str| self.servers.iter().position(|server| *server == url);
            let pause = self.turns.next(&ended, self.now, self.servers.len(), turn_of);
            self.now += pause.unwrap_or_default();
            pause
        }
    }

    const QUICK: Duration = Duration::from_millis(5);

    #[tokio::test]
    async fn a_redirect_is_followed_without_a_delay() {
        let mut tries = RotationTest::new();
        assert_eq!(tries.end(Some("http://b"), false, QUICK), None);
        assert_eq!(tries.server(), "http://b");
    }

    #[tokio::test]
    async fn mutual_redirects_are_delayed() {
        let mut tries = RotationTest::new();
        let pauses: Vec<_> =
            (0..6).map(|n| tries.end(Some(SERVERS[(n + 1) % 2]), false, QUICK).is_some()).collect();
        assert_eq!(pauses, [false, false, true, false, false, true]);
    }

    /// The leader is cut off from this worker and from the database, and the other server does not know that yet.
    #[tokio::test]
    async fn an_unresponsive_server_is_avoided_although_another_names_it_as_leader() {
        let mut tries = RotationTest::new();
        tries.end(None, true, Duration::from_secs(4));
        assert_eq!(tries.server(), "http://b");
        let begin = tries.now;
        while tries.now - begin < Duration::from_secs(7) {
            assert!(
                tries.end(Some("http://a"), false, QUICK).is_some_and(|pause| pause < Duration::from_secs(1))
            );
            assert_eq!(tries.server(), "http://b");
        }
        // After the avoidance period, the agent follows the redirect.
        tries.now += AVOIDED;
        tries.end(Some("http://a"), false, QUICK);
        assert_eq!(tries.server(), "http://a");
    }

    /// The leader is cut off from this worker, and none of the others knows that yet. One of them will lead.
    #[tokio::test]
    async fn all_other_servers_are_asked_while_the_named_leader_is_avoided() {
        let mut tries = RotationTest::among(&THREE);
        tries.end(None, true, Duration::from_secs(4));
        let mut asked = Vec::new();
        for _ in 0..4 {
            asked.push(tries.server());
            tries.end(Some("http://a"), false, QUICK);
        }
        assert_eq!(asked, ["http://b", "http://c", "http://b", "http://c"]);
    }

    /// A server was killed, and has become the leader soon after its restart.
    #[tokio::test]
    async fn a_server_that_refused_a_connection_is_asked_as_soon_as_it_leads() {
        let mut tries = RotationTest::among(&THREE);
        tries.end(None, true, QUICK);
        assert_eq!(tries.server(), "http://b");
        assert_eq!(tries.end(Some("http://a"), false, QUICK), None);
        assert_eq!(tries.server(), "http://a");
    }

    /// A worker that connects while the leader is cut off must not delay the executions that wait for it.
    #[tokio::test]
    async fn an_unresponsive_server_is_left_early_only_while_another_may_answer() {
        let seconds = Duration::from_secs;
        assert_eq!(ServerRotation::among(1).answer_timeout(1), seconds(10));

        let mut tries = RotationTest::new();
        let mut waits = Vec::new();
        for _ in 0..8 {
            let wait = tries.turns.answer_timeout(SERVERS.len());
            waits.push(wait.as_secs());
            tries.end(None, true, wait);
        }
        assert_eq!(waits, [3, 3, 6, 6, 9, 9, 10, 10]);
        tries.end(None, true, QUICK);
        assert_eq!(
            tries.turns.answer_timeout(SERVERS.len()),
            seconds(3),
            "a refused connection is an answer"
        );
    }

    #[tokio::test]
    async fn a_closed_session_is_reopened_on_another_server_without_a_delay() {
        let mut tries = RotationTest::new();
        assert_eq!(tries.end(None, false, Duration::from_secs(60)), None);
        assert_eq!(tries.server(), "http://b");
    }
}
